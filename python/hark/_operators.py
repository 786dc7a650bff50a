"""Every operator of the library by its name, made by walking the library's table of records."""

import ctypes
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, List, Tuple

import numpy

from . import _arrays
from . import _attention as core
from . import _library as lib
from . import _structs as s

BOOL, INT, INT32, INT64, DOUBLE, ENUM, DOUBLES, STREAM, TEXT, DOUBLE_LIST, INT32_LIST, INT64_LIST, DESC, DESC_INSIDE, HANDLE = range(15)
_REAL = (lib.F32, lib.F64, lib.BF16)
_WHOLE = {INT: ctypes.c_int, INT32: ctypes.c_int32, INT64: ctypes.c_int64}
_LISTS = {DOUBLE_LIST: "f8", INT32_LIST: "i4", INT64_LIST: "i8"}
_KINDS = {
    BOOL: "bool",
    INT: "int",
    INT32: "int",
    INT64: "int",
    DOUBLE: "float",
    STREAM: "dict of seed, first_index, micro_step, layer_purpose",
    TEXT: "str",
    DOUBLES: "floats",
    DOUBLE_LIST: "floats",
    INT32_LIST: "ints",
    INT64_LIST: "ints",
    DESC: "dict of fields of hark_attention_desc",
    DESC_INSIDE: "dict of fields of hark_attention_desc",
}


class Attribute:
    """One attribute of an operator: ``name``, ``kind`` in words, ``usual``, the value that it has when it is not given."""

    def __init__(self, row):
        self.name, self._kind, self._offset, self._count = row.name.decode(), row.kind, row.offset, row.count
        self.words = tuple(row.words.decode().split("|")) if row.words else ()
        self.kind = " or ".join(self.words) if self.words else _KINDS.get(row.kind, "not settable")
        self.usual = self._value_of(row.usual)

    @property
    def schema(self) -> str:
        """The type in a schema of PyTorch: "bool", "int", "float", "str", "float[]" or "int[]"; "" for what cannot be set. What is a dict
        is written as the text of one."""
        if self.words or self._kind in (TEXT, STREAM, DESC, DESC_INSIDE):
            return "str"
        if self._kind in (DOUBLES, DOUBLE_LIST):
            return "float[]"
        if self._kind in (INT32_LIST, INT64_LIST):
            return "int[]"
        return {BOOL: "bool", DOUBLE: "float", INT: "int", INT32: "int", INT64: "int"}.get(self._kind, "")

    @property
    def is_dict(self) -> bool:
        return self._kind in (STREAM, DESC, DESC_INSIDE)

    def _value_of(self, number):
        if self._kind == BOOL:
            return bool(number)
        if self._kind in _WHOLE:
            return int(number)
        if self._kind == DOUBLE:
            return number
        return self.words[0] if self.words else None

    def _wrong(self, operator, value, kind=TypeError):
        return kind(f"{operator}: attribute {self.name} is {value!r}, expected {self.kind}")

    def write(self, operator, base, value, keep) -> None:
        """Stores a value at its place in the attributes at address ``base``; ``keep``: list of what must live as long as they."""
        place = base + self._offset
        try:
            self._write(operator, place, value, keep)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self._wrong(operator, value, ValueError if isinstance(error, ValueError) else TypeError) from error

    def _write(self, operator, place, value, keep) -> None:
        kind = self._kind
        if kind == BOOL:
            if not isinstance(value, (bool, numpy.bool_)):
                raise TypeError
            ctypes.c_bool.from_address(place).value = bool(value)
        elif kind in _WHOLE:
            number = _WHOLE[kind].from_address(place)
            number.value = core._whole(self.name, value)
            if number.value != value:
                raise ValueError
        elif kind == DOUBLE:
            if isinstance(value, str):
                raise TypeError
            ctypes.c_double.from_address(place).value = float(value)
        elif kind == ENUM:
            if not isinstance(value, str):
                raise TypeError
            ctypes.c_int.from_address(place).value = self.words.index(value)
        elif kind == DOUBLES:
            numbers = [float(x) for x in value]
            if len(numbers) > self._count:
                raise ValueError
            (ctypes.c_double * len(numbers)).from_address(place)[:] = numbers
        elif kind == STREAM:
            stream = s.RandomStream.from_address(place)
            for field, number in dict(value).items():
                if field not in ("seed", "first_index", "micro_step", "layer_purpose"):
                    raise KeyError(field)
                setattr(stream, field, number)
        elif kind == TEXT:
            keep.append(value.encode())
            ctypes.c_char_p.from_address(place).value = keep[-1]
        elif kind in _LISTS:
            array = numpy.asarray(value)
            if array.dtype.kind not in ("iuf" if kind == DOUBLE_LIST else "iu"):
                raise TypeError
            keep.append(numpy.ascontiguousarray(array, _LISTS[kind]))
            c_void_p.from_address(place).value = _arrays._address(keep[-1])
        elif kind in (DESC, DESC_INSIDE):
            self._write_desc(place, dict(value), keep)
        else:
            raise TypeError

    def _write_desc(self, place, fields, keep) -> None:
        if self._kind == DESC_INSIDE:
            desc = s.AttentionDesc.from_address(place)
        else:
            desc = s.AttentionDesc()
            keep.append(desc)
            c_void_p.from_address(place).value = ctypes.addressof(desc)
        desc.struct_size = ctypes.sizeof(desc)
        for name, value in fields.items():
            if name not in dict(s.AttentionDesc._fields_):
                raise KeyError(name)
            setattr(desc, name, core._word(name, value) if name in core._ENUMS else value)


def _describe(operator: str, index: int, given):
    """The tensor of an input, and the array that it reads."""
    tensor = s.Tensor()
    if given is None:
        return tensor, None
    array = numpy.ascontiguousarray(given) if numpy.ndim(given) else numpy.asarray(given)
    kind = lib.TYPE_OF_DTYPE.get(array.dtype)
    if kind is None:
        raise TypeError(f"{operator}: input {index} is {array.dtype}, expected float32, float64, int32, int64, uint8, bool, float16, int8 or bfloat16 (ml_dtypes)")
    if array.ndim > s.MAX_RANK:
        raise ValueError(f"{operator}: input {index} has {array.ndim} dimensions, expected at most {s.MAX_RANK}")
    core._fill(tensor, kind, (array.shape, core.contiguous(array.shape)))
    tensor.data = _arrays._address(array)
    return tensor, array


def describe_results(operator, shapes, attributes):
    """([(shape, numpy type) or None of every output], the same of what is saved), without arrays. shapes: pairs (shape, hark_type) of the
    inputs, None for absent ones."""
    record, keep = operator._record, []
    if not record.input_minimum <= len(shapes) <= record.input_maximum:
        raise TypeError(f"{operator.name}: {len(shapes)} inputs, expected {record.input_minimum} to {record.input_maximum}")
    memory = ctypes.create_string_buffer(max(record.attributes_size, 1) + 16)
    operator._write_attributes(ctypes.addressof(memory), attributes, keep)
    inputs = (s.Tensor * s.MAX_INPUTS)()
    for tensor, given in zip(inputs, shapes):
        if given is not None:
            core._fill(tensor, given[1], (given[0], core.contiguous(given[0])))
    context, inferred = lib.context(), s.Inferred()
    address = ctypes.addressof(memory) if record.attributes_size else None
    context.check(record.infer(context.handle, address, inputs, len(shapes), byref(inferred)))

    def of(tensor):
        return (tuple(tensor.shape[: tensor.rank]), lib.dtype_of(operator.name, tensor.type)) if tensor.type else None

    return [of(x) for x in inferred.outputs[: record.output_count]], [of(x) for x in inferred.saved]


def _empty(operator, tensor):
    """An array of a described tensor, whose address is stored in it; None if the tensor is absent."""
    if tensor.type == 0:
        return None
    array = numpy.empty(tensor.shape[: tensor.rank], lib.dtype_of(operator, tensor.type))
    tensor.data = _arrays._address(array)
    return array


class _Run:
    """One call of a record: attributes, inputs, what infer described, and the memory of all of it."""

    def __init__(self, operator, inputs, attributes, context=lib.context):
        """context: a function that returns the calling thread's context."""
        self.operator, self.keep, self.context_of = operator, [], context
        name, record = operator.name, operator._record
        if not record.input_minimum <= len(inputs) <= record.input_maximum:
            raise TypeError(f"{name}: {len(inputs)} inputs, expected {record.input_minimum} to {record.input_maximum}")
        self.attributes = ctypes.create_string_buffer(max(record.attributes_size, 1) + 16)
        operator._write_attributes(ctypes.addressof(self.attributes), attributes, self.keep)
        self.call = call = s.Call(op=operator._address, input_count=len(inputs))
        call.attributes = ctypes.addressof(self.attributes) if record.attributes_size else None
        self.inputs = []
        for index, given in enumerate(inputs):
            call.inputs[index], array = _describe(name, index, given)
            if array is not None and record.updates >> index & 1 and array is not given:
                raise ValueError(f"{name}: input {index} is changed by the call, expected a contiguous array")
            self.inputs.append(array)
        self.context = context()
        self.inferred = s.Inferred()
        self.context.check(record.infer(self.context.handle, call.attributes, call.inputs, len(inputs), byref(self.inferred)))

    def forward(self):
        call, inferred = self.call, self.inferred
        for index in range(s.MAX_OUTPUTS):
            call.outputs[index], call.saved[index] = inferred.outputs[index], inferred.saved[index]
        self.outputs = [_empty(self.operator.name, call.outputs[index]) for index in range(self.operator._record.output_count)]
        self.saved = [_empty(self.operator.name, tensor) for tensor in call.saved]
        memory = self.context.workspace(inferred.forward_workspace)
        call.workspace, call.workspace_bytes = memory.address, inferred.forward_workspace
        arguments = self.context.handle, byref(call)
        self.context.complete(lib.operator_forward(*arguments), lib.operator_forward, *arguments)
        return self.outputs[0] if len(self.outputs) == 1 else tuple(self.outputs)

    def restore(self, outputs, saved) -> None:
        """Results of an earlier forward of the same call, as numpy arrays, in place of a forward; absent ones are None."""
        self.outputs, self.saved = list(outputs), list(saved)
        for places, described, arrays in (
            (self.call.outputs, self.inferred.outputs, self.outputs),
            (self.call.saved, self.inferred.saved, self.saved),
        ):
            for index, array in enumerate(arrays):
                places[index] = described[index]
                if array is not None:
                    places[index].data = _arrays._address(array)

    def backward(self, gradients, needs=None):
        """needs: a flag for each input; default: all that have gradients."""
        call, name, record = s.Call.from_buffer_copy(self.call), self.operator.name, self.operator._record
        if len(gradients) > record.output_count:
            raise TypeError(f"{name}: {len(gradients)} gradients, expected at most {record.output_count}")
        context = self.context_of()  # the calling thread may be another one
        keep = []
        for index, given in enumerate(gradients):
            call.output_gradients[index], array = _describe(name, index, given)
            keep.append(array)
            if array is not None and (array.shape != self.outputs[index].shape or array.dtype != self.outputs[index].dtype):
                raise ValueError(
                    f"{name}: the gradient of output {index} is {array.dtype} {list(array.shape)}, expected "
                    f"{self.outputs[index].dtype} {list(self.outputs[index].shape)}"
                )
        result = []
        for index, array in enumerate(self.inputs):
            kind = 0 if array is None else lib.TYPE_OF_DTYPE[array.dtype]
            requested = (
                array is not None and record.differentiable >> index & 1 and kind in _REAL and (needs is None or needs[index])
            )
            call.input_gradients[index] = s.Tensor()
            if requested:
                core._fill(call.input_gradients[index], lib.F32 if kind == lib.BF16 else kind, (array.shape, core.contiguous(array.shape)))
            result.append(_empty(name, call.input_gradients[index]))
        memory = context.workspace(self.inferred.backward_workspace)
        call.workspace, call.workspace_bytes = memory.address, self.inferred.backward_workspace
        arguments = context.handle, byref(call)
        context.complete(lib.operator_backward(*arguments), lib.operator_backward, *arguments)
        return tuple(result)


class Operator:
    """An operator of the library: ``op(*inputs, **attributes)`` computes it on NumPy arrays; an input that is left out is None.

    ``name``, ``formula``, ``attributes`` (by name), ``differentiable`` (the numbers of the inputs that have gradients).
    """

    def __init__(self, address):
        self._address = ctypes.addressof(address.contents)
        self._record = record = address.contents
        self.name, self.formula = record.name.decode(), record.formula.decode()
        self.differentiable = tuple(i for i in range(record.input_maximum) if record.differentiable >> i & 1)
        count = c_int()
        rows = lib.operator_attributes(self._address, byref(count))
        self.attributes = {row.name.decode(): Attribute(row) for row in rows[: count.value]} if count.value else {}
        self.__doc__ = f"{self.formula}\n\nAttributes: " + (", ".join(f"{x.name} ({x.kind})" for x in self.attributes.values()) or "none")

    def __repr__(self):
        return f"<hark operator {self.name}: {self.formula}>"

    def _write_attributes(self, base, given, keep) -> None:
        unknown = sorted(set(given) - set(self.attributes))
        if unknown:
            raise TypeError(f"{self.name}: there is no attribute {unknown[0]}, expected {', '.join(self.attributes) or 'none'}")
        for name, attribute in self.attributes.items():
            value = given.get(name, attribute.usual)
            if value is not None:
                attribute.write(self.name, base, value, keep)

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """The output, or the tuple of outputs. Inputs that the operator updates (adamw, adafactor) are changed in place."""
        return _Run(self, inputs, attributes).forward()

    def vjp(self, *inputs: Any, **attributes: Any) -> Tuple[Any, Callable[..., Tuple[Any, ...]]]:
        """The outputs, and a function that maps gradients of the outputs to the tuple of gradients of the inputs (None: has none)."""
        if not self.differentiable:
            raise ValueError(f"{self.name}: this operator has no gradient")
        run = _Run(self, inputs, attributes)
        outputs = run.forward()
        return outputs, lambda *gradients: run.backward(gradients)

    def infer(self, *inputs: Any, **attributes: Any) -> List[Tuple[Tuple[int, ...], numpy.dtype]]:
        """Shapes and types of the outputs for these inputs, without computing: [(shape, dtype), ...]."""
        outputs = _Run(self, inputs, attributes).inferred.outputs
        return [(tuple(t.shape[: t.rank]), lib.dtype_of(self.name, t.type)) for t in outputs[: self._record.output_count]]


class _Table:
    """``op(name)``: the operator of that name. ``op.names()``: all names, in the library's order."""

    def __init__(self):
        count = c_int()
        table = lib.operators(byref(count))
        self._all = {}
        for index in range(count.value):
            operator = Operator(table[index])
            self._all[operator.name] = operator

    def names(self) -> List[str]:
        return list(self._all)

    def __call__(self, name: str) -> Operator:
        if name in self._all:
            return self._all[name]
        raise ValueError(f"op: there is no operator {name!r}; hark.op.names() lists them")


op = _Table()
