"""hark.torch.nn: values, gradients, printing, copies."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
import hark.torch  # noqa: E402
from hark.torch import nn  # noqa: E402

torch.set_num_threads(1)


def test_positional_kernel_has_values_and_gradients():
    kernel = nn.PositionalKernel("bank[3](decay*periodic)", heads=2, length=32)
    table = kernel(16)
    assert table.shape == (2, 16)
    assert set(kernel.natural()[0]) >= {"decay.l"}
    torch.autograd.gradcheck(lambda p: torch.func.functional_call(kernel, {"parameters_": p}, (16,)), kernel.parameters_)
    assert "decay" in str(kernel) and "heads=2" in repr(kernel)


def test_decay_is_its_formula():
    kernel = nn.PositionalKernel("decay(sigma2=1,l=4)" if "sigma2" in nn.PositionalKernel("decay").natural()[0] else "decay")
    values = kernel.natural()[0]
    table = kernel(8)
    step = table[0, 1] - table[0, 0]
    torch.testing.assert_close(table[0], table[0, 0] + step * torch.arange(8, dtype=torch.float64))
    torch.testing.assert_close(-1 / step, torch.tensor(values["decay.l"][0], dtype=torch.float64))


def test_directed_kernels():
    """A table of both directions; a layer that is not causal uses it, and a causal layer the left side alone."""
    kernel = nn.PositionalKernel("left(decay)*right(rbf)", heads=4, length=32)
    both, left = kernel(-6), kernel(6)
    assert kernel.directed and both.shape == (4, 11) and torch.equal(both[:, 5:], left)
    assert not torch.equal(both[:, 5:], both[:, :6].flip(1))
    torch.autograd.gradcheck(lambda p: torch.func.functional_call(kernel, {"parameters_": p}, (-6,)), kernel.parameters_)
    torch.manual_seed(0)
    layer = nn.Attention(16, 4, positional=nn.PositionalKernel("right(window(0))")).double()
    causal = nn.Attention(16, 4, causal=True, positional=nn.PositionalKernel("left(window(99))")).double()
    causal.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    torch.testing.assert_close(layer(x), causal(x))


def test_copies_of_a_positional_kernel():
    kernel = nn.PositionalKernel("decay", heads=2)
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(other(5), kernel(5))


def test_rotary_equals_the_operator():
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    for pairs in ("half", "interleaved"):
        rotary = nn.RotaryEmbedding(8, pairs=pairs, learned=False).double()
        rows = x.transpose(1, 2).reshape(2, 5, 24).contiguous()
        expected = hark.torch.op("rotary")(rows, heads=3, pairs=pairs).view(2, 5, 3, 8).transpose(1, 2)
        torch.testing.assert_close(rotary(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("words", [{}, {"structure": "hierarchical", "causal": True}, {"structure": "window", "window": 4}])
def test_attention_module(words):
    torch.manual_seed(0)
    more = {} if words.get("structure") == "window" else {"positional": nn.PositionalKernel("decay", heads=4)}
    layer = nn.Attention(16, 4, 2, rotary=nn.RotaryEmbedding(4), **more, **words)
    x = torch.randn(2, 20, 16, requires_grad=True)
    layer(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())
    if words.get("causal"):
        changed = x.detach().clone()
        changed[:, 12:] += 1
        assert torch.equal(layer(changed)[:, :12], layer(x)[:, :12])


def test_attention_module_equals_the_formula():
    torch.manual_seed(0)
    layer = nn.Attention(16, 4, bias=False, causal=True).double()
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    q, k, v = (y.view(2, 7, 4, 4).transpose(1, 2) for y in layer.projection(x).chunk(3, -1))
    expected = layer.output(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, 16))
    torch.testing.assert_close(layer(x), expected)


def test_forget_gates_and_dropout():
    torch.manual_seed(0)
    layer = nn.Attention(16, 4, causal=True, forget_gates=True, dropout=0.5)
    x = torch.randn(1, 6, 16)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    layer(x).sum().backward()
    assert layer.gates.weight.grad.abs().sum() > 0


def test_contextual_positions():
    torch.manual_seed(0)
    layer, plain = nn.Attention(16, 4, 2, causal=True, contextual_positions=5), nn.Attention(16, 4, 2, causal=True)
    assert layer.contextual.shape == (1, 5, 4)
    plain.load_state_dict({name: x for name, x in layer.state_dict().items() if name != "contextual"})
    x = torch.randn(2, 9, 16)
    torch.testing.assert_close(layer(x), plain(x))  # a table of zeros
    layer(x).square().sum().backward()
    assert layer.contextual.grad.abs().amax(-1).gt(0).sum() > 1
    torch.nn.init.normal_(layer.contextual)
    assert not torch.allclose(layer(x), plain(x))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="width"):
        nn.Attention(10, 4)
    with pytest.raises(ValueError, match="even"):
        nn.RotaryEmbedding(3)
    with pytest.raises(ValueError, match="column"):
        nn.PositionalKernel("bank[8](nothing)")
    with pytest.raises(TypeError, match="expression"):
        nn.PositionalKernel(3)


def test_hugging_face_attention():
    transformers = pytest.importorskip("transformers")
    transformers.AttentionInterface.register("hark", hark.torch.hugging_face_attention())
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 50, (2, 9))
    results = []
    for name in ("eager", "hark"):
        model.config._attn_implementation = name
        results.append(model(ids).logits)
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)
