"""libhark through ctypes: the shared library, its contexts, and its statuses as exceptions.

A context is used by one thread at a time, so every Python thread has its own, one for each backend and number of threads that it used. A
process that was forked makes new ones: the threads of its parent's contexts do not exist in it.
"""

import ctypes
import glob
import os
import signal
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_void_p

import numpy

from . import _structs as s

F32, F64, I32, I64, U8, F16, BF16, I8 = range(1, 9)
TYPE_OF_DTYPE = {
    numpy.dtype("f4"): F32,
    numpy.dtype("f8"): F64,
    numpy.dtype("i4"): I32,
    numpy.dtype("i8"): I64,
    numpy.dtype("u1"): U8,
    numpy.dtype("?"): U8,
    numpy.dtype("f2"): F16,
    numpy.dtype("i1"): I8,
}
DTYPE_OF_TYPE = {kind: dtype for dtype, kind in TYPE_OF_DTYPE.items() if dtype != numpy.dtype("?")}
try:
    import ml_dtypes
except ImportError:  # operators with numbers in bf16 raise TypeError
    pass
else:
    TYPE_OF_DTYPE[numpy.dtype(ml_dtypes.bfloat16)] = BF16
    DTYPE_OF_TYPE[BF16] = numpy.dtype(ml_dtypes.bfloat16)


def dtype_of(operator: str, kind: int) -> numpy.dtype:
    """The NumPy type of a tensor's type; TypeError where there is none."""
    if kind in DTYPE_OF_TYPE:
        return DTYPE_OF_TYPE[kind]
    raise TypeError(f"{operator}: bfloat16 arrays need the package ml_dtypes")


def _find() -> str:
    chosen = os.environ.get("HARK_LIBRARY")
    if chosen:
        return chosen
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "..", "..", "build")):  # an installed package; a checkout that was built
        found = sorted(glob.glob(os.path.join(folder, "libhark.so*")) + glob.glob(os.path.join(folder, "libhark.*dylib")))
        if found:
            return found[0]
    raise ImportError(f"hark: there is no libhark in {here}; install the package, or name the library in HARK_LIBRARY")


path = _find()
library = ctypes.CDLL(path)


def _declare(name, result, *arguments):
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


context_create = _declare("hark_context_create", c_int, POINTER(s.ContextOptions), POINTER(c_void_p))
context_destroy = _declare("hark_context_destroy", None, POINTER(c_void_p))
context_message = _declare("hark_context_message", c_char_p, c_void_p)
context_threads = _declare("hark_context_threads", c_int, c_void_p)
status_text = _declare("hark_status_text", c_char_p, c_int)
status_name = _declare("hark_status_name", c_char_p, c_int)
version = _declare("hark_version", c_char_p)
attention_plan_create = _declare("hark_attention_plan_create", c_int, c_void_p, POINTER(s.AttentionDesc), POINTER(c_void_p))
attention_plan_destroy = _declare("hark_attention_plan_destroy", None, c_void_p, POINTER(c_void_p))
attention_plan_sizes = _declare("hark_attention_plan_sizes", s.AttentionSizes, c_void_p)
attention_plan_distances = _declare("hark_attention_plan_distances", c_int64, c_void_p, c_bool, c_int64)
# Addresses in place of pointers to types: these are the calls whose time counts.
attention_forward = _declare("hark_attention_forward", c_int, c_void_p, c_void_p, c_void_p)
attention_backward = _declare("hark_attention_backward", c_int, c_void_p, c_void_p, c_void_p)
attention_sigma_gradient = _declare(
    "hark_attention_sigma_gradient", c_int, c_void_p, c_double, *[POINTER(s.Tensor)] * 4, POINTER(c_double)
)
operator_forward = _declare("hark_operator_forward", c_int, c_void_p, POINTER(s.Call))
operator_backward = _declare("hark_operator_backward", c_int, c_void_p, POINTER(s.Call))
operators = _declare("hark_operators", POINTER(POINTER(s.Operator)), POINTER(c_int))
operator_attributes = _declare("hark_operator_attributes", POINTER(s.Attribute), c_void_p, POINTER(c_int))

_EXCEPTIONS = {
    "HARK_INVALID_ARGUMENT": ValueError,
    "HARK_SHAPE_MISMATCH": ValueError,
    "HARK_UNSUPPORTED": ValueError,
    "HARK_BAD_CONFIGURATION": ValueError,
    "HARK_BAD_FILE": ValueError,
    "HARK_TOO_LARGE": MemoryError,
    "HARK_OUT_OF_MEMORY": MemoryError,
    "HARK_NOT_FOUND": FileNotFoundError,
    "HARK_IO_ERROR": OSError,
    "HARK_NOT_FINITE": FloatingPointError,
}


def error(status: int, message: str) -> Exception:
    """The exception of a status; its attribute ``status`` is the name in C, such as ``HARK_SHAPE_MISMATCH``."""
    name = status_name(status).decode()
    result = _EXCEPTIONS.get(name, RuntimeError)(message or status_text(status).decode())
    result.status = name
    return result


CANCELLED = 13  # HARK_CANCELLED
# The hark_cancel of contexts: Python's own function, which returns and forgets whether SIGINT arrived, as ctypes calls it: with the lock of
# the interpreter and without a line of Python, in which the signal's handler would run.
_interrupt_occurred = ctypes.pythonapi["PyOS_InterruptOccurred"]
_interrupt_occurred.restype, _interrupt_occurred.argtypes = c_int, (c_void_p,)
_cancel = ctypes.CFUNCTYPE(c_bool, c_void_p)(_interrupt_occurred)

WORKSPACE_ALIGNMENT = 64
WORKSPACE_KEPT = 1 << 26  # a larger one is allocated for the call alone


class Memory:
    """Bytes aligned for the library. ``address`` is 0 where there are none."""

    __slots__ = ("array", "address")

    def __init__(self, count: int):
        if count == 0:
            self.array, self.address = None, 0
            return
        self.array = numpy.empty(count + WORKSPACE_ALIGNMENT, numpy.uint8)
        start = self.array.__array_interface__["data"][0]
        self.address = start + -start % WORKSPACE_ALIGNMENT


class Context:
    """One ``hark_context``, with the workspace and the prepared calls that belong to its thread."""

    FRAMES = 256  # prepared calls that are kept

    def __init__(self, threads: int, backend: str, parallel=None):
        """parallel: an object whose ``address`` is that of a hark_parallel; it lives as long as the context."""
        self.process = os.getpid()
        self.parallel = parallel
        self.handle = c_void_p()
        options = s.ContextOptions(
            struct_size=ctypes.sizeof(s.ContextOptions),
            threads=threads,
            backend=backend.encode(),
            parallel=parallel.address if parallel else None,
            cancel=ctypes.cast(_cancel, c_void_p) if threading.current_thread() is threading.main_thread() else None,
        )
        status = context_create(byref(options), byref(self.handle))
        if status:
            raise error(status, f"hark: backend {backend} with {threads} threads: {status_text(status).decode()}")
        self.frames = {}
        self._kept = Memory(0)
        self._kept_bytes = 0

    def check(self, status: int) -> None:
        """Raises the exception of a status that is no success, with hark's message."""
        if status == CANCELLED:
            self.interrupt()
            raise KeyboardInterrupt
        if status:
            raise error(status, context_message(self.handle).decode(errors="replace"))

    @staticmethod
    def interrupt() -> None:
        """Lets the handler of SIGINT run, which the library took notice of; it usually raises KeyboardInterrupt."""
        signal.raise_signal(signal.SIGINT)

    def complete(self, status: int, function, *arguments) -> None:
        """What a call function(*arguments) that returned this status needs: nothing, an exception, or, where the handler of an interruption
        raised none, the same call again."""
        while status == CANCELLED:
            self.interrupt()
            status = function(*arguments)
        if status:
            self.check(status)

    def workspace(self, count: int) -> Memory:
        """Memory for one call; it is used again by the next call of this thread."""
        if count <= self._kept_bytes:
            return self._kept
        memory = Memory(count)
        if count <= WORKSPACE_KEPT:
            self._kept, self._kept_bytes = memory, count
        return memory

    def frame(self, key, make):
        """The prepared call of this key, made by ``make(self, *key)`` when it is new."""
        frame = self.frames.get(key)
        if frame is None:
            frame = self.add(key, make(self, *key))
        return frame

    def add(self, key, frame):
        """Keeps a prepared call under a key, and returns it."""
        if len(self.frames) >= self.FRAMES:
            del self.frames[next(iter(self.frames))]
        self.frames[key] = frame
        return frame

    def __del__(self):
        if getattr(self, "handle", None) and self.process == os.getpid():
            for frame in self.frames.values():  # plans are destroyed before their context
                frame.close()
            context_destroy(byref(self.handle))


class _OfThread(threading.local):
    def __init__(self):
        self.contexts = {}


_of_thread = _OfThread()
_threads = 0


def _forget_contexts() -> None:
    global _of_thread
    _of_thread = _OfThread()


os.register_at_fork(after_in_child=_forget_contexts)


def set_threads(count: int) -> None:
    """Number of threads in which NumPy calls of hark compute, for all Python threads; 0: as many as the process may use."""
    global _threads
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"set_threads: {count!r} is {type(count).__name__}, expected int")
    if not 0 <= count <= 4096:
        raise ValueError(f"set_threads: {count} is outside [0, 4096]")
    _threads = count


def threads() -> int:
    """Number of threads in which NumPy calls of this Python thread compute."""
    return context_threads(context().handle)


def context(backend: str = "cpu", count: int = -1) -> Context:
    """The calling thread's context of this backend and number of threads (-1: that of set_threads)."""
    key = (backend, _threads if count < 0 else count)
    contexts = _of_thread.contexts
    found = contexts.get(key)
    if found is None:
        found = contexts[key] = Context(key[1], backend)
    return found
