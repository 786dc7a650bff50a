"""libhark_python: the package's own C, which joins hark to PyTorch's threads and to XLA's foreign functions. ``available``: it was
found.
"""

import ctypes
import os
from typing import Optional

from . import _library as lib


def _find() -> Optional[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.dirname(lib.path), here, os.path.join(here, "..", "..", "build", "python-native")]
    for folder in folders:
        path = os.path.join(folder, "libhark_python.so")
        if os.path.isfile(path):
            return path
    return None


_path = os.environ.get("HARK_PYTHON_LIBRARY") or _find()
available = _path is not None
library = ctypes.CDLL(_path) if available else None

if available:
    team_create = library.hark_python_team_create
    team_create.restype, team_create.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
    team_destroy = library.hark_python_team_destroy
    team_destroy.restype, team_destroy.argtypes = None, (ctypes.c_void_p,)

#: XLA's handlers, or None: a library that was built without XLA's headers has none.
xla_forward = getattr(library, "hark_python_xla_forward", None)
xla_backward = getattr(library, "hark_python_xla_backward", None)
