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
        op = hark.torch.op(name)
        assert op.formula == hark.op(name).formula
        registered = getattr(torch.ops.hark_op, name).default._schema
        assert [x.name for x in registered.arguments if x.name in op.attributes] == [n for n, x in op.attributes.items() if x.schema]


@pytest.mark.parametrize("name", CASES)
def test_compiled_operators_have_no_graph_break(name):
    if name not in hark.op.names():
        pytest.skip(f"there is no operator {name}")
    inputs, attributes = CASES[name]
    op = hark.torch.op(name)

    def loss(*inputs):
        out = hark.torch.op(name)(*inputs, **attributes)
        return (out * torch.arange(1.0, out.numel() + 1, dtype=out.dtype).reshape(out.shape)).sum()

    def run(function):
        given = [x.clone().requires_grad_(i in op.differentiable and x.is_floating_point()) for i, x in enumerate(inputs)]
        value = function(*given)
        value.backward()
        return [value.detach(), *[x.grad for x in given if x.requires_grad]]

    torch.compiler.reset()  # every case compiles the same lines
    # aot_eager: the graphs of forward and backward, without a C++ compiler
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for have, expected in zip(run(compiled), run(loss)):
        assert torch.equal(have, expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # opcheck asks for gradients of its own copies
def test_checks_of_pytorch():
    x, gain = random(4, 6).requires_grad_(), random(6).requires_grad_()
    registered = hark.torch.op("rms_norm")._registered
    for gradients in (True, False):
        given = [x, gain] if gradients else [x.detach(), gain.detach()]
        arguments = (*registered.arguments(given, {"epsilon": 1e-3}), gradients)
        torch.library.opcheck(registered.call, arguments)


def test_gradients_that_were_not_prepared_are_refused():
    x, registered = random(3, 5).requires_grad_(), hark.torch.op("silu")._registered
    out = registered.call(*registered.arguments([x], {}), False)[0]
    with pytest.raises(RuntimeError, match="hark_op::silu: .* with_gradients=False"):
        out.sum().backward()


def test_dicts_and_lists_in_compiled_operators():
    q = random(2, 9, 12).requires_grad_()
    desc = {"type": 2, "batch": 2, "heads": 3, "query_length": 9, "key_length": 9, "head_dim": 4, "causal": True}

    def run(q):
        return hark.torch.op("attention")(q, q, q, own=desc).sum()

    results = []
    for function in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        q.grad = None
        function(q).backward()
        results.append(q.grad.clone())
    assert torch.equal(*results)


def test_dicts_may_have_scalars_of_numpy():
    q, registered = random(2, 9, 12), hark.torch.op("attention")._registered
    desc = {"type": 2, "batch": 2, "heads": 3, "query_length": 9, "key_length": 9, "head_dim": 4, "causal": True, "scale": 0.5}
    scalars = {**desc, "heads": numpy.int64(3), "causal": numpy.bool_(True), "scale": numpy.float32(0.5)}
    results = [registered.call(*registered.arguments([q, q, q], {"own": x}), False)[0] for x in (desc, scalars)]
    assert torch.equal(*results)


def test_an_operator_that_changes_its_inputs_is_compiled():
    def step(w, g, m, v):
        hark.torch.op("adamw")(w, g, m, v, rate=0.1)
        return w * 2

    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        state = [torch.ones(3), torch.ones(3), torch.zeros(3), torch.zeros(3)]
        results.append((function(*state), *state))
    assert all(torch.equal(*pair) for pair in zip(*results)) and not torch.equal(results[0][1], torch.ones(3))


def test_wrong_calls_are_named_while_tracing():
    gelu = torch.compile(lambda x: hark.torch.op("gelu")(x, tanh=True), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="there is no attribute tanh"):
        gelu(torch.ones(3))
    add = torch.compile(lambda x, y: hark.torch.op("add")(x, y), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="add"):
        add(torch.ones(3), torch.ones(4))


def test_wrong_inputs_are_named():
    with pytest.raises(TypeError, match="gelu: input 0"):
        hark.torch.op("gelu")([1.0])
    with pytest.raises(ValueError, match="nothing"):
        hark.torch.op("nothing")
    gelu, expected = hark.torch.op("gelu"), "is torch.bfloat16, expected float32, float64, float16, int32, int64, int8, uint8 or bool"
    with pytest.raises(TypeError, match=expected):
        gelu(torch.ones(3, dtype=torch.bfloat16))
    registered, x = gelu._registered, torch.ones(3, dtype=torch.bfloat16, device="meta")
    with pytest.raises(TypeError, match=expected):
        registered.call(*registered.arguments([x], {}), False)
