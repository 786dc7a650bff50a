"""Modules: attention with projections, learned positional kernels, rotary embeddings with learned rates."""

import math
from typing import Any, Dict, List, Optional

import torch
from torch import nn

from .. import _positional
from . import _operators, attention

__all__ = ["Attention", "PositionalKernel", "RotaryEmbedding"]


class PositionalKernel(nn.Module):
    """A learned positional kernel G(|n - i|), written as an expression such as "bank[8](decay*periodic)" (docs/mathematics/positional.md).
    With a direction, as in "left(decay)*right(rbf)", it is G(n - i).

        kernel = PositionalKernel("bank[8](decay*periodic)", heads=8, length=1024)
        out = hark.torch.attention(q, k, v, log_kernel=kernel(1024))

    heads: 1 is one kernel for all heads. length: the context for which initial values are chosen. ``parameters_`` [heads, P]: as they are
    trained; natural() gives lengths, periods and so on.
    """

    def __init__(self, expression: str, heads: int = 1, length: int = 256, dtype=torch.float64):
        super().__init__()
        self.expression, self.heads = expression, heads
        self._kernel = _positional.Kernel(expression)
        initial = [self._kernel.initial(length, heads, head) for head in range(heads)]
        self.parameters_ = nn.Parameter(torch.tensor(initial, dtype=dtype))

    def forward(self, distances: int) -> torch.Tensor:
        """log G at distances 0 .. distances - 1: [heads, distances], of the parameters' type; -infinity where G is 0.

        With ``distances`` -T a table of both directions for ``directed_kernel``: [heads, 2 T - 1], of n - i from -(T - 1) to T - 1.
        """
        return _operators.op("positional")(self.parameters_, text=self.expression, distances=distances)

    @property
    def directed(self) -> bool:
        """Whether the expression has left(...) or right(...)."""
        return self._kernel.directed

    def natural(self) -> List[Dict[str, List[float]]]:
        """The natural values as a list, one dict for each head: {"decay.l": [...], ...}."""
        return [self._kernel.natural(row.tolist()) for row in self.parameters_.detach().double()]

    def plot(self, distances: int = 256, axes: Any = None) -> Any:
        """Draws G of every head over the distance with matplotlib; returns the axes.

        With a direction, the horizontal axis is the position of the key less that of the query.
        """
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.gca()
        with torch.no_grad():
            values = self(-distances if self.directed else distances).exp()
        places = range(distances - 1, -distances, -1) if self.directed else range(distances)
        for head, row in enumerate(values):
            axes.plot(places, row.numpy(), label=f"head {head}")
        axes.set_xlabel("position of the key less that of the query, in tokens" if self.directed else "distance in tokens")
        axes.set_ylabel("G")
        return axes

    def extra_repr(self) -> str:
        return f"{self.expression!r}, heads={self.heads}"

    def __str__(self) -> str:
        lines = [self._kernel.text(row.tolist()) for row in self.parameters_.detach().double()]
        return "\n".join(f"head {i}: {line}" for i, line in enumerate(lines))

    def __deepcopy__(self, memo):
        copy = type(self)(self.expression, self.heads, dtype=self.parameters_.dtype)
        copy.load_state_dict(self.state_dict())
        memo[id(self)] = copy
        return copy

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["_kernel"]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._kernel = _positional.Kernel(self.expression)


class RotaryEmbedding(nn.Module):
    """Rotary positions with learned rates: pairs of features are rotated by position * rate (RoFormer, arXiv 2104.09864).

    head_dim: even. heads: rates of each head apart; 1: shared. learned=False keeps the rates base^(-2j/d).
    pairs: "half", features j and j + d/2, or "interleaved", 2j and 2j + 1.
    """

    def __init__(self, head_dim: int, heads: int = 1, base: float = 10000.0, learned: bool = True, pairs: str = "half"):
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"RotaryEmbedding: head_dim is {head_dim}, expected an even number")
        if pairs not in ("half", "interleaved"):
            raise ValueError(f"RotaryEmbedding: pairs is {pairs!r}, expected 'half' or 'interleaved'")
        self.head_dim, self.heads, self.pairs = head_dim, heads, pairs
        log_rates = torch.arange(head_dim // 2) * (-2 * math.log(base) / head_dim)
        self.log_rates = nn.Parameter(log_rates.repeat(heads, 1), requires_grad=learned)

    def forward(self, x: torch.Tensor, first_position: int = 0) -> torch.Tensor:
        """x [B, H, L, head_dim], rotated; row n stands at position first_position + n."""
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"RotaryEmbedding: x has shape {list(x.shape)}, expected [B, H, L, {self.head_dim}]")
        position = torch.arange(first_position, first_position + x.shape[2], dtype=self.log_rates.dtype, device=x.device)
        angle = position[:, None] * self.log_rates.exp()[:, None, :]  # [heads, L, head_dim / 2]
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        if self.pairs == "half":
            a, b = x.chunk(2, -1)
            return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, heads={self.heads}, pairs={self.pairs!r}"


class Attention(nn.Module):
    """Multi-head self-attention with projections, of any of hark's structures.

        layer = Attention(256, 8, structure="hierarchical", causal=True, positional=PositionalKernel("decay", heads=8))

    width: features of x; heads, key_heads: of queries, and of keys and values (a divisor); positional: log G is added to the logits;
    rotary: rotates queries and keys; forget_gates: learned decay (arXiv 2503.02130; needs causal); contextual_positions: rows of a learned
    table of positions that are counted by content (arXiv 2405.18719; needs causal); dropout: of weights, while training.
    **words: further arguments of hark.torch.attention.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_heads: Optional[int] = None,
        *,
        bias: bool = True,
        positional: Optional[PositionalKernel] = None,
        rotary: Optional[RotaryEmbedding] = None,
        forget_gates: bool = False,
        contextual_positions: int = 0,
        dropout: float = 0.0,
        **words,
    ):
        super().__init__()
        key_heads = key_heads or heads
        if width % heads or heads % key_heads:
            raise ValueError(
                f"Attention: width {width}, heads {heads} and key_heads {key_heads}, expected each to be a multiple of the next"
            )
        self.heads, self.key_heads, self.head_dim, self.dropout, self.words = heads, key_heads, width // heads, dropout, words
        self.projection = nn.Linear(width, (heads + 2 * key_heads) * self.head_dim, bias)
        self.output = nn.Linear(width, width, bias)
        self.positional, self.rotary = positional, rotary
        self.gates = nn.Linear(width, heads) if forget_gates else None
        self.contextual = nn.Parameter(torch.zeros(1, contextual_positions, self.head_dim)) if contextual_positions else None

    def _heads(self, x):
        rows = self.projection(x).view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
        return rows.split((self.heads, self.key_heads, self.key_heads), 1)

    def forward(self, x: torch.Tensor, **arguments) -> torch.Tensor:
        """x [B, L, width] to [B, L, width]; **arguments: of this call, such as key_lengths or mask."""
        q, k, v = self._heads(x)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        if self.positional is not None:
            directed = self.positional.directed and not arguments.get("causal", self.words.get("causal", False))
            arguments["log_kernel"] = self.positional(2 * x.shape[1] * (-1 if directed else 1)).to(q.dtype)
            arguments["directed_kernel"] = directed
        if self.gates is not None:
            arguments["forget"] = self.gates(x).transpose(1, 2)
        if self.contextual is not None:
            arguments["contextual"] = self.contextual.to(q.dtype)
        if self.training and self.dropout:
            arguments.update(dropout=self.dropout, seed=int(torch.randint(2**62, ()).item()))
        return self.output(attention(q, k, v, **self.words, **arguments).transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, key_heads={self.key_heads}, " + ", ".join(f"{k}={v!r}" for k, v in self.words.items())
