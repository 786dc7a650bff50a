"""Long Range Arena's encoder in PyTorch, the peer of hark's: the same computation, with PyTorch's own attention.

CLASS in front of every sequence, sinusoidal positions, pre-norm blocks with biases but in attention, exact GELU, the row of CLASS into a head of
two layers. All sequences of a batch have one length, so that no row is padding. load_hark() takes weights under hark's names.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from gpt import adamw, take_all

CLASS = 3  # hark's token


@dataclass
class Shape:
    vocabulary: int
    classes: int = 2
    layers: int = 4
    heads: int = 4
    width: int = 256
    feed_forward: int = 1024
    context: int = 1024  # without CLASS
    norm_epsilon: float = 1e-5
    base: float = 10000.0


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width, shape.norm_epsilon)
        self.attention_in = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_forward_norm = nn.LayerNorm(shape.width, shape.norm_epsilon)
        self.feed_forward_in = nn.Linear(shape.width, shape.feed_forward)
        self.feed_forward_out = nn.Linear(shape.feed_forward, shape.width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention_in(self.attention_norm(x)).split(width, dim=2)
        query, key, value = (p.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward_out(F.gelu(self.feed_forward_in(self.feed_forward_norm(x))))


class Encoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, shape.norm_epsilon)
        self.hidden = nn.Linear(shape.width, shape.feed_forward)
        self.head = nn.Linear(shape.feed_forward, shape.classes)
        rates = shape.base ** (-torch.arange(0, shape.width, 2, dtype=torch.float64) / shape.width)
        angles = torch.outer(torch.arange(shape.context + 1, dtype=torch.float64), rates)
        positions = torch.stack((angles.sin(), angles.cos()), dim=2).view(shape.context + 1, -1)
        self.register_buffer("positions", positions.to(torch.get_default_dtype()), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, classes):
        """Mean cross-entropy; tokens [B, L] without CLASS, classes [B]."""
        front = tokens.new_full((tokens.shape[0], 1), CLASS)
        x = self.embedding(torch.cat((front, tokens), dim=1)) + self.positions[: tokens.shape[1] + 1]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(F.relu(self.hidden(self.norm(x[:, 0])))), classes)

    def optimizer(self, rate=1e-3, betas=(0.9, 0.98), epsilon=1e-9, decay=0.1):
        return adamw(self, rate, betas, epsilon, decay)

    @torch.no_grad()
    def load_hark(self, tensors):
        """Copies the weights of hark's model.safetensors (a dictionary of tensors); every tensor must be used and every weight be there."""
        with take_all(tensors) as take:
            self.embedding.weight.copy_(take("embedding.token.weight"))
            pairs = [(self.norm, "final_norm"), (self.hidden, "head.hidden"), (self.head, "head")]
            for number, block in enumerate(self.blocks):
                name = f"blocks.{number}"
                parts = [take(f"{name}.attention.{part}.weight") for part in ("query", "key", "value")]
                block.attention_in.weight.copy_(torch.cat(parts))
                block.attention_out.weight.copy_(take(f"{name}.attention.output.weight"))
                pairs += [(block.attention_norm, f"{name}.attention_norm"), (block.feed_forward_norm, f"{name}.feed_forward_norm")]
                pairs += [(block.feed_forward_in, f"{name}.feed_forward.up"), (block.feed_forward_out, f"{name}.feed_forward.down")]
            for module, name in pairs:
                module.weight.copy_(take(f"{name}.weight"))
                module.bias.copy_(take(f"{name}.bias"))
