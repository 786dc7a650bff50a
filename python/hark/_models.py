"""Trained models: loading, text and tokens, generation, predictions, weights. Made by hark.load()."""

import ctypes
import json
import mmap
import os
import tempfile
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Sequence, Union

import numpy

from . import _library as lib

if TYPE_CHECKING:
    import torch


def _struct(name, *fields):
    """A struct that begins with struct_size, set."""
    kind = type(name, (ctypes.Structure,), {"_fields_": [("struct_size", c_size_t), *fields]})
    return lambda **values: kind(struct_size=ctypes.sizeof(kind), **values)


_LoadOptions = _struct(
    "LoadOptions",
    ("checkpoint", c_char_p),
    ("skip_verification", c_bool),
    ("description", c_char_p),
    ("description_bytes", c_size_t),
    ("vocabulary", c_char_p),
    ("vocabulary_bytes", c_size_t),
    ("matrices", c_int),
)
_Info = _struct(
    "Info",
    ("type", c_char_p),
    ("tokenizer", c_char_p),
    ("vocabulary", c_int64),
    ("reserved", c_int64),
    ("context", c_int64),
    ("layers", c_int64),
    ("heads", c_int64),
    ("key_heads", c_int64),
    ("width", c_int64),
    ("parameters", c_int64),
    ("bytes", c_size_t),
    ("fingerprint", c_uint64),
    ("architecture", c_char_p),
    ("begin", c_int64),
    ("matrices", c_int),
    ("ends", c_void_p),
    ("end_count", c_int64),
)
_DecodingOptions = _struct(
    "DecodingOptions",
    ("capacity", c_int64),
    ("cancel", c_void_p),
    ("cancel_user", c_void_p),
    ("memory", c_void_p),
    ("memory_bytes", c_size_t),
    ("stream", c_bool),
)
_Sampling = _struct("Sampling", ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double), ("seed", c_uint64), ("min_p", c_double))
_Shape = _struct(
    "Shape",
    ("outputs", c_int64),
    ("of_tokens", c_bool),
    ("parts", c_int64),
    ("longest", c_int64),
    ("features", c_int64),
    ("selected", c_int64),
)
_PredictorOptions = _struct(
    "PredictorOptions",
    ("examples", c_int64),
    ("tokens", c_int64),
    ("select", c_void_p),
    ("select_user", c_void_p),
    ("gives_chunks", c_bool),
)
_Input = _struct(
    "Input",
    ("examples", c_int64),
    ("offsets", c_void_p),
    ("tokens", c_void_p),
    ("vectors", c_void_p),
    ("chunks", c_void_p),
    ("chunk_count", c_int64),
)

_load = lib._declare("hark_model_load", c_int, c_void_p, c_char_p, c_void_p, POINTER(c_void_p))
_destroy = lib._declare("hark_model_destroy", None, c_void_p, POINTER(c_void_p))
_describe = lib._declare("hark_model_describe", c_int, c_void_p, c_void_p)
_tokenize = lib._declare(
    "hark_model_tokenize", c_int, c_void_p, c_void_p, c_char_p, c_size_t, c_bool, c_bool, c_void_p, c_size_t, POINTER(c_size_t)
)
_save = lib._declare("hark_model_save", c_int, c_void_p, c_void_p, c_char_p)
_token_text = lib._declare("hark_model_token_text", c_void_p, c_void_p, c_int32, POINTER(c_size_t))
_class_name = lib._declare("hark_model_class_name", c_char_p, c_void_p, c_int64)
_decoding_create = lib._declare("hark_decoding_create", c_int, c_void_p, c_void_p, c_void_p, POINTER(c_void_p))
_decoding_destroy = lib._declare("hark_decoding_destroy", None, POINTER(c_void_p))
_prefill = lib._declare("hark_decoding_prefill", c_int, c_void_p, c_void_p, c_int64)
_choose = lib._declare("hark_decoding_choose", c_int, c_void_p, c_void_p, c_uint64, POINTER(c_int32))
_truncate = lib._declare("hark_decoding_truncate", c_int, c_void_p, c_int64)
_length = lib._declare("hark_decoding_length", c_int64, c_void_p)
_predictor_shape = lib._declare("hark_predictor_shape", c_int, c_void_p, c_void_p)
_predictor_create = lib._declare("hark_predictor_create", c_int, c_void_p, c_void_p, c_void_p, POINTER(c_void_p))
_predictor_destroy = lib._declare("hark_predictor_destroy", None, POINTER(c_void_p))
_predictor_run = lib._declare("hark_predictor_run", c_int, c_void_p, c_void_p, c_void_p, c_size_t)

_MATRICES = {None: 0, "file": 0, "f32": lib.F32, "bf16": lib.BF16, "f16": lib.F16, "int8": lib.I8}  # the words of --weights
_MATRIX_WORDS = {kind: word for word, kind in _MATRICES.items() if kind}
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def _map_safetensors(path):
    """(content, place of the first tensor, metadata, {name: entry}) of a safetensors file, which is mapped."""
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    begin = 8 + int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8:begin])
    except ValueError as error:
        raise ValueError(f"load: {path} is not a safetensors file: {error}") from None
    return content, begin, header.pop("__metadata__", {}), header


def read_safetensors(path):
    """(metadata, {name: array}) of a safetensors file; the arrays are read-only, and in the mapped file but for those of BF16, F16 and
    I8, which are converted to float32: integers are multiplied by the scales of their rows, NAME.scale, which are left out."""
    content, begin, metadata, header = _map_safetensors(path)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        array = numpy.frombuffer(content, "u1", last - first, begin + first).view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (array.astype("u4") << 16).view("f4") if entry["dtype"] == "BF16" else array
    for name in [name for name, entry in header.items() if entry["dtype"] == "I8"]:
        scale = tensors.pop(f"{name}.scale", None)
        if scale is None or scale.shape != tensors[name].shape[:1]:
            raise ValueError(f"load: {path}: the integers of {name} have no scales of their rows, {name}.scale")
        tensors[name] = tensors[name].astype("f4") * scale.reshape(-1, *[1] * (tensors[name].ndim - 1))
    for name, array in tensors.items():
        tensors[name] = array.astype("f4") if array.dtype == "f2" else array
        tensors[name].flags.writeable = False
    return metadata, tensors


def _file_of(path: str, checkpoint: Optional[str]) -> str:
    """The safetensors file that hark_model_load reads; of a folder with shards the folder."""
    folder, name = os.path.split(path)
    if name in ("config.json", "model.safetensors.index.json") and os.path.isfile(os.path.join(folder, "config.json")):
        path = folder or os.curdir  # of another program: these names refer to their folder
    if os.path.isfile(path):
        return path
    if os.path.isfile(os.path.join(path, "model.safetensors")):
        return os.path.join(path, "model.safetensors")
    if os.path.isfile(os.path.join(path, "model.safetensors.index.json")):
        return path
    names = [checkpoint] if checkpoint else ["best", "last"]
    for name in names:
        pointer = os.path.join(path, name)
        if os.path.isfile(pointer):
            with open(pointer) as file:
                name = file.read().strip()
        found = os.path.join(path, "checkpoints", name, "model.safetensors")
        if os.path.isfile(found):
            return found
    raise FileNotFoundError(f"load: there is no checkpoint {' or '.join(names)} in {path}")


class Tokenizer:
    """Text and tokens of a model. ``kind``: "characters", "bytes", "subwords" or "byte_bpe"; "tokenizer.json" or "tokenizer.model" of an
    imported model; None where the model has no vocabulary of text."""

    def __init__(self, model: "Model"):
        self._model = model
        self.kind: Optional[str] = model.info["tokenizer"]

    def encode(self, text: str, map_unknown: bool = False, special: bool = False) -> numpy.ndarray:
        """Tokens, int32. A character that is not in the vocabulary is the token "unknown" with map_unknown, else ValueError names it.
        special: with the tokens that a tokenizer.json puts around a text."""
        if not isinstance(text, str):
            raise TypeError(f"encode: the text is {type(text).__name__}, expected str")
        data, count, context = text.encode(), c_size_t(), lib.context()
        tokens = numpy.empty(len(data) + 16, "i4")
        for _ in range(2):  # an imported model may have more tokens than bytes
            arguments = (data, len(data), map_unknown, special, tokens.ctypes.data, len(tokens), byref(count))
            context.check(_tokenize(context.handle, self._model._handle, *arguments))
            if count.value <= len(tokens):
                break
            tokens = numpy.empty(count.value, "i4")
        return tokens[: count.value].copy()

    def bytes_of(self, token: int) -> bytes:
        """The bytes of one token's text; a part of a character where tokens are bytes."""
        count = c_size_t()
        address = _token_text(self._model._handle, int(token), byref(count))
        return ctypes.string_at(address, count.value) if count.value else b""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; bytes that are no character are U+FFFD."""
        return b"".join(self.bytes_of(token) for token in tokens).decode(errors="replace")


class _Decoding:
    """The state of one text, with a context of its own: a generator may go on in another thread. A context manager."""

    def __init__(self, model: "Model", capacity: int):
        self.context, self.lock = lib.Context(lib._threads, "cpu"), threading.Lock()
        self.handle, self.capacity = c_void_p(), capacity or model.info["context"]
        options = _DecodingOptions(capacity=capacity)
        self.context.check(_decoding_create(self.context.handle, model._handle, byref(options), byref(self.handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.lock:
            _decoding_destroy(byref(self.handle))

    def feed(self, history, seen: int) -> int:
        """Reads what was not read yet, as hark generate does: a full decoding begins again with the last half of its capacity."""
        with self.lock:
            if len(history) - seen > self.capacity - _length(self.handle):
                self.context.check(_truncate(self.handle, 0))
                seen = max(0, len(history) - max(1, self.capacity // 2))
            tokens = numpy.array(history[seen:], "i4")
            arguments = self.handle, tokens.ctypes.data, len(tokens)
            self.context.complete(_prefill(*arguments), _prefill, *arguments)
        return len(history)

    def choose(self, sampling, index: int) -> int:
        token = c_int32()
        with self.lock:
            self.context.check(_choose(self.handle, byref(sampling), index, byref(token)))
        return token.value


class Model:
    """A trained model. ``info``: what it is, a dict; ``description``: its keys under ``model`` in docs/configuration.md; ``tokenizer``."""

    def __init__(self, path: Union[str, os.PathLike], checkpoint: Optional[str] = None, weights: Optional[str] = None):
        path = os.fspath(path)
        if not (weights is None or (isinstance(weights, str) and weights in _MATRICES)):
            kind = ValueError if isinstance(weights, str) else TypeError
            raise kind(f"load: weights is {weights!r}, expected file, f32, bf16, f16 or int8")
        self._handle, self._context = c_void_p(), lib.context()
        options = _LoadOptions(checkpoint=checkpoint.encode() if checkpoint else None, matrices=_MATRICES[weights])
        self._context.check(_load(self._context.handle, os.fsencode(path), byref(options), byref(self._handle)))
        self.file = _file_of(path, checkpoint)
        self._path, self._checkpoint, self._weights = path, checkpoint, weights
        info = _Info()
        self._context.check(_describe(self._handle, byref(info)))
        self.info: Dict[str, object] = {
            name: x.decode() if isinstance(x, bytes) else x
            for name, x in [(n, getattr(info, n)) for n, *_ in info._fields_ if n not in ("struct_size", "end_count")]
        }
        self.info["ends"] = list((c_int32 * info.end_count).from_address(info.ends)) if info.end_count else []
        self.info["matrices"] = _MATRIX_WORDS[info.matrices]
        self.tokenizer = Tokenizer(self)
        self._file_contents = self._file_metadata = None

    def __del__(self):
        if getattr(self, "_handle", None) and self._context.handle and self._context.process == os.getpid():
            _destroy(self._context.handle, byref(self._handle))

    def __repr__(self):
        info = self.info
        return f"<hark model: {info['architecture']}, {info['layers']} layers, width {info['width']}, {info['parameters']} parameters>"

    def _metadata(self):
        """The texts of a file of hark; empty for the files of another program, whose tensors have other names."""
        if self._file_metadata is None:
            metadata = _map_safetensors(self.file)[2] if os.path.isfile(self.file) else {}
            self._file_metadata = metadata if "model" in metadata else {}
        return self._file_metadata

    def _contents(self):
        if self._file_contents is None:
            self._file_contents = read_safetensors(self.file) if self._metadata() else self._written_contents()
        return self._file_contents

    def _written_contents(self):
        """Of a model of another program: by a file of hark, with matrices as that program's files have them."""
        model, context = self if self._weights in (None, "file") else Model(self._path, self._checkpoint), lib.context()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            context.check(_save(context.handle, model._handle, os.fsencode(path)))
            return read_safetensors(path)

    @property
    def weights(self) -> Dict[str, numpy.ndarray]:
        """The weights by their names in docs/formats.md, as read-only arrays: in the mapped file where they are f32, else float32 copies.

        They are those of the file, whatever ``weights`` the model was loaded with. Those of another program's folder are in a temporary
        file, which their first use writes.
        """
        return self._contents()[1]

    @property
    def description(self) -> Dict[str, object]:
        """The model's description with dotted keys: {"layers": 4, "attention.structure": "dense", ...}."""
        metadata = self._metadata() or self._contents()[0]
        return flatten(json.loads(metadata["model"])["model"])

    @property
    def classes(self) -> List[str]:
        """Names of the classes of a model that was trained on labelled examples."""
        names: List[str] = []
        while (name := _class_name(self._handle, len(names))) is not None:
            names.append(name.decode())
        return names

    def _tokens(self, text_or_tokens) -> numpy.ndarray:
        if isinstance(text_or_tokens, str):
            return self.tokenizer.encode(text_or_tokens, special=True)
        tokens = numpy.asarray(text_or_tokens)
        if tokens.dtype.kind not in "iu" or tokens.ndim != 1:
            raise TypeError(f"tokens are {tokens.dtype} {list(tokens.shape)}, expected a text or one dimension of whole numbers")
        return tokens.astype("i4")

    def logits(self, tokens: Union[str, Sequence[int]]) -> numpy.ndarray:
        """Logits after every token, [tokens, vocabulary], float32. tokens: numbers or a text, at most the model's context."""
        return self._rows([self._tokens(tokens)], all_rows=True)

    def generate(
        self,
        prompt: Union[str, Sequence[int]] = "",
        *,
        max_new_tokens: int = 500,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 1,
        context: int = 0,
    ) -> Iterator[str]:
        """Continues a text, and yields it piece by piece as hark generate writes it: the same tokens for the same arguments.

        top_k, top_p, min_p: draw from that number of most likely tokens (0: all), from the most likely ones that together have this
        probability (1: all), from those with at least this fraction of the probability of the most likely one (0: all).

        A piece is the text of whole characters. Each time the context is full it is cut to its last half. Stop by leaving the loop.
        """
        pieces = _Pieces()
        for token in self.generate_tokens(
            prompt,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            context=context,
        ):
            text = pieces.add(self.tokenizer.bytes_of(token))
            if text:
                yield text
        if rest := pieces.end():
            yield rest

    def generate_tokens(
        self, prompt="", *, max_new_tokens=500, temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=1, context=0
    ) -> Iterator[int]:
        """As generate, the numbers of the tokens."""
        sampling = _Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
        with _Decoding(self, context) as decoding:
            history, seen = list(self._beginning(prompt)), 0
            for index in range(max_new_tokens):
                seen = decoding.feed(history, seen)
                token = decoding.choose(sampling, index)
                yield token
                history.append(token)
                if self.info["begin"] and self.tokenizer.bytes_of(token) == b"\n":
                    break

    def _beginning(self, prompt) -> numpy.ndarray:
        """The tokens that are read first: of the prompt, or those of the beginning of a line."""
        begin = self.info["begin"]
        if not len(prompt) and self.info["reserved"] == 0 and len(start := self.tokenizer.encode("", special=True)):
            return start
        if not len(prompt):
            tokens = numpy.empty(0, "i4") if begin else self.tokenizer.encode("\n", map_unknown=True)
        else:
            tokens = self._tokens(prompt)
        return numpy.concatenate([numpy.array([begin], "i4"), tokens]) if begin else tokens

    def predict(self, texts) -> numpy.ndarray:
        """Predictions for several examples, float32: logits of classes or predicted numbers [examples, outputs]; for models with a row for
        every token a list of [tokens, outputs]. An example is a text, an array of tokens, a pair of them for models of pairs, or real
        vectors [rows, features]."""
        if isinstance(texts, str):
            raise TypeError("predict: texts is str, expected a list of examples")
        shape = self._prediction_shape()
        sequences = [part for example in texts for part in (example if shape.parts == 2 else (example,))]
        if shape.features:
            return self._rows([numpy.ascontiguousarray(x, "f4").reshape(-1, shape.features) for x in sequences])
        return self._rows([self._tokens(x) for x in sequences])

    def _prediction_shape(self):
        shape = _Shape()
        lib.context().check(_predictor_shape(self._handle, byref(shape)))
        return shape

    def _rows(self, sequences, all_rows=False):
        shape, context = self._prediction_shape(), lib.context()
        examples = len(sequences) // shape.parts
        offsets = numpy.concatenate([[0], numpy.cumsum([len(x) for x in sequences])]).astype("i8")
        data = numpy.ascontiguousarray(numpy.concatenate(sequences)) if sequences else numpy.empty(0, "i4")
        handle = c_void_p()
        options = _PredictorOptions(examples=max(examples, 1), tokens=max(int(offsets[-1]), 1))
        context.check(_predictor_create(context.handle, self._handle, byref(options), byref(handle)))
        try:
            numbers = numpy.empty((int(offsets[-1]) if shape.of_tokens else examples, shape.outputs), "f4")
            given = _Input(examples=examples, offsets=offsets.ctypes.data, **{"vectors" if shape.features else "tokens": data.ctypes.data})
            arguments = handle, byref(given), numbers.ctypes.data, numbers.size
            context.complete(_predictor_run(*arguments), _predictor_run, *arguments)
        finally:
            _predictor_destroy(byref(handle))
        if shape.of_tokens and not all_rows:
            return [numbers[first:last] for first, last in zip(offsets[:-1], offsets[1:])]
        return numbers

    def to_torch(self) -> "torch.nn.Module":
        """The model as a torch.nn.Module with the same weights (decoders and encoders): ``module(tokens)`` gives the logits."""
        from .torch import _model

        return _model.convert(self)


class _Pieces:
    """Bytes to texts of whole characters."""

    def __init__(self):
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def end(self) -> str:
        return self._decoder.decode(b"", True)


def flatten(tree, prefix="") -> Dict[str, object]:
    """Nested sections as dotted keys."""
    result: Dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            result.update(flatten(value, f"{prefix}{name}."))
        else:
            result[prefix + name] = value
    return result


def load(path: Union[str, os.PathLike], checkpoint: Optional[str] = None, *, weights: Optional[str] = None) -> Model:
    """Loads a trained model: a run's folder, a checkpoint's folder, a safetensors file of hark export or hark import, or a folder of
    Hugging Face's transformers (docs/models.md).

    checkpoint: of a run, "best", "last" or "step-N"; default: best, or last. weights: the type in which matrices are held and multiplied,
    "f32", "bf16", "f16" or "int8"; default: as they are stored ("file"). These are the words of --weights, with the same results. Raises
    FileNotFoundError, ValueError (damaged, not a model, weights that it cannot have).
    """
    return Model(path, checkpoint, weights)
