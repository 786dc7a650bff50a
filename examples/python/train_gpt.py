"""A small GPT in PyTorch. One line decides which attention it has: --attention sdpa (PyTorch's), dense or hierarchical (hark's).

python train_gpt.py --data book.txt --attention hierarchical --context 4096 --layers 6 --width 384
"""

import argparse
import resource
import time

import torch
from torch import nn
from torch.nn import functional

import hark.torch

ATTENTION = {
    "sdpa": functional.scaled_dot_product_attention,
    "dense": hark.torch.scaled_dot_product_attention,
    "hierarchical": lambda *x, **words: hark.torch.scaled_dot_product_attention(*x, structure="hierarchical", **words),
}


class Block(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm, self.projection, self.output = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.projection(self.norm(x)).view(*x.shape[:2], 3 * self.heads, -1).transpose(1, 2).chunk(3, 1)
        x = x + self.output(self.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)


class GPT(nn.Module):
    def __init__(self, tokens, context, layers, heads, width, attention):
        super().__init__()
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, attention) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, tokens))

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.position.weight[: tokens.shape[1]]))


def batch_of(data, batch, context):
    starts = torch.randint(len(data) - context - 1, (batch,))
    rows = torch.stack([data[i : i + context + 1] for i in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--attention", choices=ATTENTION, default="hierarchical")
    for name, value in (("context", 256), ("layers", 4), ("heads", 4), ("width", 128), ("batch", 8), ("steps", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    with open(options.data, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    model = GPT(256, options.context, options.layers, options.heads, options.width, ATTENTION[options.attention])
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    losses, begin = [], time.perf_counter()
    for step in range(1, options.steps + 1):
        tokens, targets = batch_of(data, options.batch, options.context)
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step % 10 == 0 or step == options.steps:
            print(f"step {step}: loss {losses[-1]:.3f}, {(time.perf_counter() - begin) / step:.3f} s per step", flush=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.1f} M parameters, peak memory {used.ru_maxrss / 1e6:.2f} GB")
    return losses


if __name__ == "__main__":
    main()
