"""Positional kernels of the library (include/hark/positional.h): expressions, initial and natural values."""

import ctypes
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_size_t, c_void_p
from typing import Dict, List

from . import _library as lib


class _Named(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("kernel_number", c_int),
        ("column", c_int),
        ("first", c_int64),
        ("count", c_int64),
    ]


class _Start(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("length", c_int64), ("heads", c_int64), ("head", c_int64)]


_create = lib._declare("hark_positional_create", c_int, c_void_p, ctypes.c_char_p, POINTER(c_void_p))
_destroy = lib._declare("hark_positional_destroy", None, c_void_p, POINTER(c_void_p))
_count = lib._declare("hark_positional_parameter_count", c_int64, c_void_p)
_is_directed = lib._declare("hark_positional_is_directed", ctypes.c_bool, c_void_p, c_void_p)
_named_count = lib._declare("hark_positional_named_count", c_int, c_void_p)
_named = lib._declare("hark_positional_named", _Named, c_void_p, c_int)
_initial = lib._declare("hark_positional_initial", c_int, c_void_p, c_void_p, POINTER(_Start), POINTER(c_double))
_natural = lib._declare("hark_positional_natural", c_int, c_void_p, c_void_p, POINTER(c_double), POINTER(c_double))
_print = lib._declare("hark_positional_print", c_size_t, c_void_p, POINTER(c_double), ctypes.c_char_p, c_size_t)


class Kernel:
    """A parsed expression. Raises ValueError with the column of what is wrong in it."""

    def __init__(self, text: str):
        if not isinstance(text, str):
            raise TypeError(f"PositionalKernel: the expression is {type(text).__name__}, expected str")
        self._context = lib.context()
        self._handle = c_void_p()
        self._context.check(_create(self._context.handle, text.encode(), byref(self._handle)))
        self.count = _count(self._handle)
        self.directed = _is_directed(self._handle, None)

    def __del__(self):
        if getattr(self, "_handle", None) and self._context.handle:
            _destroy(self._context.handle, byref(self._handle))

    def _vector(self, values=()):
        return (c_double * self.count)(*values)

    def initial(self, length: int, heads: int, head: int) -> List[float]:
        """Initial parameters of one of ``heads`` heads for contexts of ``length`` tokens."""
        result, context = self._vector(), lib.context()
        start = _Start(ctypes.sizeof(_Start), length, heads, head)
        context.check(_initial(context.handle, self._handle, byref(start), result))
        return list(result)

    def natural(self, parameters) -> Dict[str, List[float]]:
        """Natural values by "kernel.name"; a kernel that occurs again has its number: "decay#1.l"."""
        result, context = self._vector(), lib.context()
        context.check(_natural(context.handle, self._handle, self._vector(parameters), result))
        values = {}
        for index in range(_named_count(self._handle)):
            row = _named(self._handle, index)
            key = f"{row.kernel.decode()}.{row.name.decode()}"
            if key in values:
                key = f"{row.kernel.decode()}#{row.kernel_number}.{row.name.decode()}"
            values[key] = list(result[row.first : row.first + row.count])
        return values

    def text(self, parameters) -> str:
        """The expression with all its values."""
        vector = self._vector(parameters)
        size = _print(self._handle, vector, None, 0) + 1
        text = ctypes.create_string_buffer(size)
        _print(self._handle, vector, text, size)
        return text.value.decode()
