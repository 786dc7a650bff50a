"""safetensors files for hark attend, written and read without another package."""

import json
import os
import pathlib
import subprocess

import numpy

COMMAND = os.environ.get("HARK_COMMAND") or str(pathlib.Path(__file__).parents[2] / "build" / "hark")
_NAMES = {"f4": "F32", "f8": "F64", "i8": "I64", "u1": "U8", "b1": "BOOL"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


def write(path, tensors) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        array = numpy.ascontiguousarray(array)
        header[name] = {
            "dtype": _NAMES[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    content = pathlib.Path(path).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        result[name] = numpy.frombuffer(content[8 + size + first : 8 + size + last], _TYPES[entry["dtype"]]).reshape(entry["shape"])
    return result


def attend(folder, tensors, *options):
    """The results of hark attend on these tensors."""
    source, target = folder / "in.safetensors", folder / "out.safetensors"
    write(source, tensors)
    done = subprocess.run(
        [COMMAND, "attend", "--input", source, "--output", target, "--threads", "1", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return read(target)
