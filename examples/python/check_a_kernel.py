"""Compares an implementation of attention, forward and gradients, with hark's definition in float64. Here it is PyTorch's own attention:
replace `kernel` by yours."""

import numpy
import torch

import hark


def kernel(query, key, value):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def error(found, expected):
    """The largest difference, relative to the largest number."""
    return float(numpy.abs(found - expected).max() / numpy.abs(expected).max())


def main():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 4, 100, 32, generator=generator, requires_grad=True) for _ in range(3))
    out = kernel(query, key, value)
    dout = torch.randn(out.shape, generator=generator)
    out.backward(dout)

    arrays = [x.detach().numpy().astype("f8") for x in (query, key, value)]
    expected, vjp = hark.reference.attention_vjp(*arrays, causal=True)
    gradients = vjp(dout.numpy().astype("f8"))
    errors = {"out": error(out.detach().numpy(), expected)}
    errors.update({name: error(x.grad.numpy(), gradients[name]) for name, x in (("query", query), ("key", key), ("value", value))})
    for name, number in errors.items():
        print(f"{name:6} {number:.1e}")
    assert max(errors.values()) < 1e-5, "the implementation differs from the definition"


if __name__ == "__main__":
    main()
