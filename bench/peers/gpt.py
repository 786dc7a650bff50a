"""A GPT in PyTorch, the peer of hark's decoder: the same computation, written the way nanoGPT is.

Pre-norm blocks, rotary positions in halves, exact GELU, tied embeddings, no biases; query, key and value are one product, as PyTorch is faster
that way. load_hark() takes weights under hark's names, where the three lie apart.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


def adamw(model, rate, betas, epsilon, decay):
    """AdamW, decaying matrices only."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)


class Adafactor:
    """torch.optim.Adafactor, decaying matrices only. Query, key and value are three weights, as in hark: their means are separate."""

    FUSED = "attention_in.weight"

    def __init__(self, model, rate, decay):
        self.parts = []
        groups = [{"params": [], "weight_decay": decay}, {"params": [], "weight_decay": 0.0}]
        for name, parameter in model.named_parameters():
            for number, view in enumerate(parameter.data.chunk(3 if name.endswith(self.FUSED) else 1)):
                part = nn.Parameter(view)
                self.parts.append((part, parameter, number, 3 if name.endswith(self.FUSED) else 1))
                groups[0 if part.dim() == 2 else 1]["params"].append(part)
        self.inner = torch.optim.Adafactor(groups, lr=rate, eps=(1e-16, 1e-3))  # a square in f32 must not be 0
        self.param_groups = self.inner.param_groups

    def zero_grad(self, set_to_none=True):
        for _, parameter, _, _ in self.parts:
            parameter.grad = None

    def step(self):
        for part, parameter, number, count in self.parts:
            part.grad = parameter.grad.chunk(count)[number]
        self.inner.step()


@contextmanager
def take_all(tensors):
    """Gives a function that takes tensors by name; at the end none may be left."""
    left = dict(tensors)

    def take(name):
        if name not in left:
            raise SystemExit(f"the checkpoint has no {name}; it has {', '.join(sorted(tensors))}")
        return left.pop(name)

    yield take
    if left:
        raise SystemExit(f"the checkpoint has weights that this model has not: {', '.join(sorted(left))}")


@dataclass
class Shape:
    vocabulary: int
    layers: int = 4
    heads: int = 4
    width: int = 512
    context: int = 256
    norm_epsilon: float = 1e-5
    rotary_base: float = 10000.0

    @property
    def head_dim(self):
        return self.width // self.heads


class Norm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.norm_epsilon

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)


def rotate(x, cosine, sine):
    """Turns the pairs (j, j + d/2) of x [B, H, L, d]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.attention_norm = Norm(shape)
        self.attention_in = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_forward_norm = Norm(shape)
        self.feed_forward_in = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.feed_forward_out = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, width = x.shape
        parts = self.attention_in(self.attention_norm(x)).split(width, dim=2)
        query, key, value = (p.view(batch, length, self.shape.heads, self.shape.head_dim).transpose(1, 2) for p in parts)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward_out(F.gelu(self.feed_forward_in(self.feed_forward_norm(x))))


class GPT(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        rates = shape.rotary_base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), rates)
        self.register_buffer("cosine", angles.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sine", angles.sin().to(torch.get_default_dtype()), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        """Mean cross-entropy over tokens, targets [B, L]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine[: tokens.shape[1]], self.sine[: tokens.shape[1]])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    def optimizer(self, rate=1e-3, betas=(0.9, 0.99), epsilon=1e-8, decay=0.1):
        return adamw(self, rate, betas, epsilon, decay)

    @torch.no_grad()
    def load_hark(self, tensors):
        """Copies the weights of hark's model.safetensors (a dictionary of tensors); every tensor must be used and every weight be there."""
        with take_all(tensors) as take:
            self.embedding.weight.copy_(take("embedding.token.weight"))
            self.norm.weight.copy_(take("final_norm.weight"))
            for number, block in enumerate(self.blocks):
                name = f"blocks.{number}"
                block.attention_norm.weight.copy_(take(f"{name}.attention_norm.weight"))
                parts = [take(f"{name}.attention.{part}.weight") for part in ("query", "key", "value")]
                block.attention_in.weight.copy_(torch.cat(parts))
                block.attention_out.weight.copy_(take(f"{name}.attention.output.weight"))
                block.feed_forward_norm.weight.copy_(take(f"{name}.feed_forward_norm.weight"))
                block.feed_forward_in.weight.copy_(take(f"{name}.feed_forward.up.weight"))
                block.feed_forward_out.weight.copy_(take(f"{name}.feed_forward.down.weight"))
