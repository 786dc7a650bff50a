"""Learns a kernel of the token distance on a CPU: the gradient of a bias of positions, which FlexAttention has only on GPUs.

Targets are a smoothing of random values with a decaying periodic kernel. The attention has no queries or keys, only the kernel, which must
find the period. Writes learn_a_kernel.svg where matplotlib is installed.
"""

import torch

import hark.torch
from hark.torch.nn import PositionalKernel

LENGTH, PERIOD = 128, 12.0


def smooth(kernel, values):
    nothing = torch.zeros(*values.shape[:3], 1, dtype=values.dtype)
    return hark.torch.attention(nothing, nothing, values, causal=True, log_kernel=kernel(LENGTH))


def main(steps=200):
    torch.manual_seed(0)
    true = PositionalKernel(f"decay(l=40)*periodic(tau={PERIOD})")
    learned = PositionalKernel("decay(l=20)*periodic(tau=10)")
    optimiser = torch.optim.Adam(learned.parameters(), 0.03)
    losses = []
    for _ in range(steps):
        values = torch.randn(4, 1, LENGTH, 8, dtype=torch.float64)
        loss = (smooth(learned, values) - smooth(true, values).detach()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    period = learned.natural()[0]["periodic.tau"][0]
    print(f"loss {losses[0]:.2e} to {losses[-1]:.2e}; period {period:.3f}, of the target {PERIOD}")
    print(learned)
    plot(true, learned)
    return losses, period


def plot(true, learned):
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    figure, axes = pyplot.subplots()
    true.plot(LENGTH, axes)
    learned.plot(LENGTH, axes)
    axes.legend(["target", "learned"])
    figure.savefig("learn_a_kernel.svg")


if __name__ == "__main__":
    main()
