"""Contexts that compute in PyTorch's own threads.

PyTorch's intra-op pool is that of an OpenMP runtime, whose entry ``GOMP_parallel`` is found through the library that loaded it. Where there
is none (a PyTorch built with another pool; a forked process, in which the threads of the runtime do not exist), hark has threads of its
own, as many as ``torch.get_num_threads()``.
"""

import ctypes
import os
from typing import Optional

import torch

from .. import _library as lib
from .. import _native

_LIBRARIES = ("libtorch_cpu.so", "libtorch.so")


def _entry() -> int:
    """The address of GOMP_parallel of PyTorch's runtime, or 0."""
    if "OpenMP" not in torch.__config__.parallel_info().split("ATen parallel backend:")[-1]:
        return 0
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", name))
            return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0


class Team:
    """PyTorch's threads, ``count`` of them, as a ``hark_parallel``."""

    def __init__(self, entry: int, count: int):
        self.address = _native.team_create(entry, count)
        if not self.address:
            raise MemoryError("hark: no memory for a team of threads")

    def __del__(self):
        if getattr(self, "address", None):
            _native.team_destroy(self.address)


_ENTRY = _entry() if _native.available else 0
_PROCESS = os.getpid()


def pool() -> str:
    """Where calls of this process compute: "pytorch" or "hark"."""
    return "pytorch" if _ENTRY and os.getpid() == _PROCESS else "hark"


def _make(count: int) -> lib.Context:
    team: Optional[Team] = Team(_ENTRY, count) if count > 1 and pool() == "pytorch" else None
    return lib.Context(count, "cpu", team)


def context() -> lib.Context:
    """The calling thread's context, of PyTorch's number of threads."""
    key = ("torch", torch.get_num_threads())
    contexts = lib._of_thread.contexts
    found = contexts.get(key)
    if found is None:
        found = contexts[key] = _make(key[1])
    return found
