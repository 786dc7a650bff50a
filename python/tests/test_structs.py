"""The ctypes structs have the layout that tests/unit/test_abi.c states for the headers."""

import ctypes
import pathlib
import re

import pytest

from hark import _structs

TABLE = (pathlib.Path(__file__).parents[2] / "tests/unit/test_abi.c").read_text()
SIZES = re.findall(r"\bSIZE\((hark_\w+), (\d+)\)", TABLE)
FIELDS = re.findall(r"\bFIELD\((hark_\w+), (\w+), (\d+)\)", TABLE)


@pytest.mark.parametrize("name", sorted(_structs.BY_NAME))
def test_size(name):
    sizes = dict(SIZES)
    assert ctypes.sizeof(_structs.BY_NAME[name]) == int(sizes[name])


@pytest.mark.parametrize("name", ["hark_context_options", "hark_attention_desc", "hark_attention_args"])
def test_offsets_of_structs_that_grow(name):
    rows = [(field, int(at)) for struct, field, at in FIELDS if struct == name]
    struct = _structs.BY_NAME[name]
    assert [(field, getattr(struct, field).offset) for field, *_ in struct._fields_] == rows
