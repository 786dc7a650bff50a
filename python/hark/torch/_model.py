"""hark's decoder and encoder as torch modules, made from a trained model (hark.load(...).to_torch())."""

from typing import Dict, Optional

import torch
from torch import nn

from .. import _positional
from . import _operators, attention

TOKEN_CLASS = 3  # src/tokenizers/tokenizer.h
_ACTIVATIONS = {
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "silu": nn.functional.silu,
    "gated_silu": nn.functional.silu,
    "gated_gelu": nn.functional.gelu,
    "gated_gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
}
# Keys of a description that the modules use, or that have no effect on them. A model with any other key is refused.
_KEYS = {
    *("type", "architecture", "layers", "heads", "key_heads", "width", "feed_forward_width", "context", "activation", "norm"),
    *("norm_epsilon", "pooling", "head_width", "tie_embeddings", "bias"),
    *("positions", "positional", "positional_scope", "positional_stretch"),
    *("rotary.base", "rotary.pairs", "rotary.learned", "attention.structure", "attention.window", "attention.hierarchy_block"),
    *("attention.partition", "attention.coarse_query", "attention.hierarchical_bias", "attention.interpolation", "attention.kernel"),
    *("attention.sigma", "attention.forget_gate", "attention.unbiased", "attention.biased", "attention.normalisation"),
    "attention.contextual_positions",
    *("vocabulary", "classes", "parts", "sentences", "unreserved"),
}
# Other keys, with the values that change no results.
_REFUSED = {
    "rotary.scaling": ("none",),
    "attention_width": (0,),
    "rotary.fraction": (1, 1.0),
    "norm_place": ("pre",),
    "embedding_norm": (False,),
    "token_types": (0,),
    "pooler": (False,),
    "head": ("classes",),
}


def _value(description, key, usual):
    return description.get(key, usual)


def _linear(weights, name) -> nn.Linear:
    weight = weights[f"{name}.weight"]
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=f"{name}.bias" in weights)
    layer.weight = nn.Parameter(weight)
    if layer.bias is not None:
        layer.bias = nn.Parameter(weights[f"{name}.bias"])
    return layer


class Norm(nn.Module):
    """layer_norm or rms_norm."""

    def __init__(self, weights, name, kind: str, epsilon: float):
        super().__init__()
        self.kind, self.epsilon = kind, epsilon
        self.weight = nn.Parameter(weights[f"{name}.weight"])
        self.bias = nn.Parameter(weights[f"{name}.bias"]) if f"{name}.bias" in weights else None

    def forward(self, x):
        if self.kind == "layer_norm":
            return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


class Rotary(nn.Module):
    """Rotates pairs of features by position * rate. rates [heads or 1, pairs]."""

    def __init__(self, rates: torch.Tensor, pairs: str):
        super().__init__()
        self.rates, self.pairs = nn.Parameter(rates), pairs

    def forward(self, x):
        heads = x.shape[1] // self.rates.shape[0] if self.rates.shape[0] > 1 else 1
        angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.rates.double().repeat_interleave(heads, 0)[:, None]
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        if self.pairs == "half":
            a, b = x.chunk(2, -1)
            return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)


def _of_layer(value, layer: int):
    """A word, or several with commas for the layers in turn."""
    words = value.split(",") if isinstance(value, str) else value
    return words[layer % len(words)]


class SelfAttention(nn.Module):
    def __init__(self, weights, name: str, description, layer: int, causal: bool, shared_rates):
        super().__init__()
        self.query, self.key, self.value, self.output = (_linear(weights, f"{name}.{part}") for part in ("query", "key", "value", "output"))
        self.forget = _linear(weights, f"{name}.forget") if f"{name}.forget.weight" in weights else None
        self.heads, self.key_heads, self.layer = description["heads"], description["key_heads"], layer
        rates = weights.get(f"{name}.rotary.rates", shared_rates)
        self.rotary = None if rates is None else Rotary(rates, _value(description, "rotary.pairs", "interleaved"))
        self.words = _words(description, layer, causal)
        for word in ("hierarchical_bias", "contextual"):
            table = weights.get(f"{name}.{word}")
            setattr(self, word, None if table is None else nn.Parameter(table))
        for word in ("ridge", "sigma"):
            table = weights.get(f"{name}.log_{word}")
            setattr(self, f"log_{word}", None if table is None else nn.Parameter(table))
        parameters = weights.get(f"{name}.positional.parameters")
        self.positional = None if parameters is None else nn.Parameter(parameters)
        self.directed = False  # whether the table has both directions

    def _split(self, layer, x, heads):
        return layer(x).view(*x.shape[:2], heads, -1).transpose(1, 2)

    def forward(self, x, table, kernel):
        q, k, v = (
            self._split(self.query, x, self.heads),
            self._split(self.key, x, self.key_heads),
            self._split(self.value, x, self.key_heads),
        )
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        words = dict(self.words)
        if self.positional is not None:
            table = kernel(self.positional, self.layer)
        if table is not None:
            words["log_kernel"], words["directed_kernel"] = table, self.directed
        for word in ("hierarchical_bias", "contextual"):
            if (given := getattr(self, word)) is not None:
                words[word] = given
        if self.forget is not None:
            words["forget"] = self.forget(x).transpose(1, 2)
        for word in ("ridge", "sigma"):
            if (log := getattr(self, f"log_{word}")) is not None:
                words[word] = log.exp()
        return self.output(attention(q, k, v, **words).transpose(1, 2).flatten(2))


def _words(description, layer, causal) -> Dict[str, object]:
    """The arguments of hark.torch.attention of one layer."""
    structure = _of_layer(_value(description, "attention.structure", "dense"), layer)
    words: Dict[str, object] = {"causal": causal, "structure": structure, "kernel": _value(description, "attention.kernel", "exp")}
    normalisation = _of_layer(_value(description, "attention.normalisation", "softmax"), layer)
    if structure == "window":
        words["window"] = description["attention.window"]
    if structure == "hierarchical":
        for word in ("hierarchy_block", "partition", "coarse_query", "interpolation"):
            key = f"attention.{word}"
            if key in description:
                words[word] = description[key]
    if words["kernel"] == "rbf" and _value(description, "attention.sigma", 0):
        words["sigma"] = description["attention.sigma"]
    if normalisation == "stick_breaking":
        words["normalisation"] = normalisation
    if normalisation == "cme":
        raise ValueError("to_torch: models of normalisation cme are not converted")
    return words


class Block(nn.Module):
    def __init__(self, weights, name, description, layer, causal, shared_rates):
        super().__init__()
        kind, epsilon = description["norm"], description["norm_epsilon"]
        self.attention_norm = Norm(weights, f"{name}.attention_norm", kind, epsilon)
        self.attention = SelfAttention(weights, f"{name}.attention", description, layer, causal, shared_rates)
        self.feed_forward_norm = Norm(weights, f"{name}.feed_forward_norm", kind, epsilon)
        self.up, self.down = _linear(weights, f"{name}.feed_forward.up"), _linear(weights, f"{name}.feed_forward.down")
        self.gate = _linear(weights, f"{name}.feed_forward.gate") if f"{name}.feed_forward.gate.weight" in weights else None
        self.activation = description["activation"]

    def _feed_forward(self, x):
        if self.gate is not None:
            return self.down(_ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))
        return self.down(_ACTIVATIONS[self.activation](self.up(x)))

    def forward(self, x, table, kernel):
        x = x + self.attention(self.attention_norm(x), table, kernel)
        return x + self._feed_forward(self.feed_forward_norm(x))


class Stack(nn.Module):
    """Embeddings, blocks and the last norm: tokens [B, L] to [B, L, width]."""

    def __init__(self, weights, description, metadata, causal):
        super().__init__()
        self.token = nn.Parameter(weights["embedding.token.weight"])
        positions = weights.get("embedding.position.weight")
        self.position = None if positions is None else nn.Parameter(positions)
        self.sinusoidal = description["positions"] == "sinusoidal"
        self.base = float(_value(description, "rotary.base", 10000.0))
        self.expression, self.stretch = metadata.get("positional", ""), float(_value(description, "positional_stretch", 1.0))
        parameters = weights.get("positional.parameters")
        self.positional = None if parameters is None else nn.Parameter(parameters)
        rates = _rates(weights, description)
        self.blocks = nn.ModuleList(Block(weights, f"blocks.{i}", description, i, causal, rates) for i in range(description["layers"]))
        self.norm = Norm(weights, "final_norm", description["norm"], description["norm_epsilon"])
        texts = self.expression.split("|") if self.expression else []
        self.directed = not causal and any(_positional.Kernel(text).directed for text in texts)
        for block in self.blocks:
            block.attention.directed = self.directed

    def _table(self, length):
        texts = self.expression.split("|")

        def of(parameters, text):
            return _operators.op("positional")(parameters, text=text, distances=length, stretch=self.stretch)

        def table(parameters, layer):
            if len(texts) == 1:
                return of(parameters, texts[0])
            first = layer * len(parameters) % len(texts)
            rows = [(parameters[k : k + 1], texts[first + k]) for k in range(len(parameters))]
            return torch.cat([of(row[:, : _positional.Kernel(text).count], text) for row, text in rows])

        return table

    def forward(self, tokens):
        x = nn.functional.embedding(tokens, self.token)
        if self.position is not None:
            x = x + self.position[: tokens.shape[1]]
        if self.sinusoidal:
            x = _operators.op("sinusoidal_positions")(x, base=self.base)
        kernel = self._table(_distances(tokens.shape[1]) * (-1 if self.directed else 1))
        table = kernel(self.positional, 0) if self.positional is not None else None
        for block in self.blocks:
            x = block(x, table, kernel)
        return self.norm(x)


def _distances(length: int) -> int:
    """Enough for every structure: a hierarchy's cells reach up to twice the length, in whole blocks."""
    return 4 * length + 4096


def _rates(weights, description) -> Optional[torch.Tensor]:
    """Rotary rates [1, pairs] that all layers share, or None."""
    if description["positions"] != "rotary":
        return None
    if "rotary.rates" in weights:
        return weights["rotary.rates"]
    width = weights["blocks.0.attention.query.weight"].shape[0] // description["heads"]
    return (_value(description, "rotary.base", 10000.0) ** (torch.arange(0, width, 2, dtype=torch.float64) / -width)).float().unsqueeze(0)


class Decoder(nn.Module):
    """tokens [B, L], whole numbers, to logits of the next tokens [B, L, vocabulary]."""

    def __init__(self, weights, description, metadata):
        super().__init__()
        self.stack = Stack(weights, description, metadata, True)
        self.head = None if _value(description, "tie_embeddings", True) else nn.Parameter(weights["head.weight"])

    def forward(self, tokens):
        return nn.functional.linear(self.stack(tokens), self.stack.token if self.head is None else self.head)


class Encoder(nn.Module):
    """tokens [B, L] of sequences of one length to logits of classes [B, classes]; for models of pairs a list of two such tensors."""

    def __init__(self, weights, description, metadata):
        super().__init__()
        self.stack = Stack(weights, description, metadata, False)
        self.pooling = _value(description, "pooling", "class")
        self.hidden = _linear(weights, "head.hidden")
        self.second = _linear(weights, "head.second") if "head.second.weight" in weights else None
        self.head = _linear(weights, "head")

    def _pooled(self, tokens):
        if self.pooling == "class":
            tokens = torch.cat((torch.full_like(tokens[:, :1], TOKEN_CLASS), tokens), 1)
        rows = self.stack(tokens)
        return rows.mean(1) if self.pooling == "mean" else rows[:, 0]

    def forward(self, tokens):
        parts = tokens if isinstance(tokens, (list, tuple)) else [tokens]
        x = torch.relu(self.hidden(torch.cat([self._pooled(x) for x in parts], -1)))
        return self.head(x if self.second is None else torch.relu(self.second(x)))


def convert(model) -> nn.Module:
    """The module of a hark.Model. Raises ValueError for architectures and options that have no module here."""
    metadata, arrays = model._contents()
    description = model.description
    kind = {"decoder": Decoder, "encoder": Encoder}.get(model.info["architecture"])
    if kind is None:
        raise ValueError(f"to_torch: architecture {model.info['architecture']} is not converted, expected decoder or encoder")
    for key, value in description.items():
        if key not in _KEYS and value not in _REFUSED.get(key, ()):
            raise ValueError(f"to_torch: models with model.{key} {value!r} are not converted")
    weights = {name: torch.tensor(x, dtype=torch.float32) for name, x in arrays.items()}
    return kind(weights, description, metadata).eval()
