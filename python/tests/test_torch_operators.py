"""hark.torch.op: every record with its own samples, against hark.op and against differences."""

import numpy
import pytest

torch = pytest.importorskip("torch")
import hark  # noqa: E402
import hark.torch  # noqa: E402

torch.set_num_threads(1)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


CASES = {
    "linear": ((random(4, 3), random(2, 3), random(2)), {}),
    "layer_norm": ((random(4, 6), random(6), random(6)), {}),
    "rms_norm": ((random(4, 6), random(6)), {}),
    "gelu": ((random(3, 5),), {"tanh_approximation": True}),
    "silu": ((random(3, 5),), {}),
    "scale": ((random(3, 5),), {"factor": 2.5}),
    "add": ((random(3, 5), random(3, 5)), {}),
    "segment_pool": ((random(6, 2), torch.tensor([0, 4, 6])), {"kind": "average", "slots": 2}),
    "rotary": ((random(2, 5, 8),), {"heads": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_equal_numpy_and_have_gradients(name):
    if name not in hark.op.names():
        pytest.skip(f"there is no operator {name}")
    inputs, attributes = CASES[name]
    op = hark.torch.op(name)
    try:
        out = op(*inputs, **attributes)
    except ValueError as error:
        pytest.fail(str(error))
    assert numpy.array_equal(out.numpy(), hark.op(name)(*[x.numpy() for x in inputs], **attributes))
    given = [x.clone().requires_grad_(i in op.differentiable and x.is_floating_point()) for i, x in enumerate(inputs)]
    torch.autograd.gradcheck(lambda *x: op(*x, **attributes), given)


def test_every_operator_is_there():
    assert hark.torch.op.names() == hark.op.names()
    for name in hark.op.names():
        assert hark.torch.op(name).formula == hark.op(name).formula


def test_wrong_inputs_are_named():
    with pytest.raises(TypeError, match="gelu: input 0"):
        hark.torch.op("gelu")([1.0])
    with pytest.raises(ValueError, match="nothing"):
        hark.torch.op("nothing")
    with pytest.raises(TypeError, match="bfloat16"):
        hark.torch.op("gelu")(torch.ones(3, dtype=torch.bfloat16))
