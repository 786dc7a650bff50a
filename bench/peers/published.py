"""Numbers of published programs, as tables for hark's tests: rates of scaled rotary positions, ALiBi's slopes, T5's buckets, activations,
normalisation, steps of Adam and Adafactor, schedules, deviations of initial weights.

    python bench/peers/published.py             writes tests/*/published_*.h anew
    python bench/peers/published.py --check     says which of them differ from what is there, and returns 1 when any does

Needs torch and transformers (bench/peers/requirements.txt), a processor is enough. What is computed here is computed by their functions; only
the settings are ours. transformers works in f32, so that a rate is known to about 1e-6 of itself.
"""

import argparse
import math
import re
import sys
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, get_scheduler
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.optimization import Adafactor

ROOT = Path(__file__).resolve().parents[2]
transformers.logging.set_verbosity_error()  # it warns of factors that are not the ratio of two lengths


def numbers(values, digits=9):
    """Lines of a C initialiser, at most 138 columns wide; the last one has room for closing brackets."""
    lines, line = [], "   "
    for place, value in enumerate(values, 1):
        word = f" {value:.{digits}g},"
        if len(line) + len(word) > (138 if place < len(values) else 137):
            lines.append(line)
            line = "   "
        line += word
    return "\n".join([*lines, line])


def header(name, about, body):
    guard = f"HARK_TESTS_{name.upper().replace('/', '_').replace('.', '_')}"
    versions = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"
    return (
        f"/* {name.split('/')[-1]} - {about}\n * Made by bench/peers/published.py with {versions}; not to be changed by hand. */\n"
        f"#ifndef {guard}\n#define {guard}\n\n/* clang-format off */\n{body}/* clang-format on */\n\n#endif\n"
    )


# --- rotary positions ------------------------------------------------------------------------------------------------------------------


def factors(pairs, most):
    """A list as longrope's are: from 1 up to `most`, uneven."""
    return [round(1 + (most - 1) * (j / max(1, pairs - 1)) ** 1.7, 4) for j in range(pairs)]


def rotary_cases():
    """(name, head_dim, base, original length, length of the text, parameters of the scaling)"""
    for d, base, s in ((64, 10000.0, 4.0), (128, 500000.0, 2.5), (2, 100.0, 3.0)):
        yield "linear", d, base, 256, 256, {"factor": s}
    # A static NTK by s is the dynamic one of factor 1 at s times the original length.
    for d, base, s in ((64, 10000.0, 4), (128, 500000.0, 8), (16, 10000.0, 2)):
        yield "ntk", d, base, 256, 256 * s, {"factor": 1.0}
    for d, base, n, extra in (
        (64, 10000.0, 256, {"factor": 4.0}),
        (32, 10000.0, 128, {"factor": 4.0}),
        (128, 10000.0, 4096, {"factor": 16.0}),
        (128, 1000000.0, 32768, {"factor": 4.0}),
        (64, 10000.0, 4096, {"factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}),
        (64, 10000.0, 4096, {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707}),
        (64, 150000.0, 4096, {"factor": 32.0, "truncate": False}),
        (64, 10000.0, 1000, {"factor": 3.5, "beta_fast": 16.0, "beta_slow": 2.0}),
        (64, 10000.0, 1000, {"factor": 3.5, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}),
        (64, 10000.0, 1000, {"factor": 3.5, "beta_fast": 300.0, "beta_slow": 0.05}),
        (64, 10000.0, 256, {"factor": 4.0, "attention_factor": 1.3}),
        (64, 10000.0, 256, {"factor": 1.0}),
        (16, 10000.0, 8, {"factor": 4.0}),
        (16, 10000.0, 4, {"factor": 4.0}),
        (16, 10000.0, 8, {"factor": 4.0, "truncate": False}),
        (6, 500.0, 77, {"factor": 6.0}),
        (2, 10000.0, 256, {"factor": 4.0}),
    ):
        yield "yarn", d, base, n, n, extra
    for d, base, n, extra in (
        (128, 500000.0, 8192, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        (64, 500000.0, 8192, {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        (32, 10000.0, 128, {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        (64, 10000.0, 512, {"factor": 3.0, "low_freq_factor": 2.0, "high_freq_factor": 9.5}),
        (2, 10000.0, 4, {"factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    ):
        yield "llama3", d, base, n, n, extra
    for d, base, n, s in ((64, 10000.0, 256, 2.0), (128, 500000.0, 4096, 4.0), (32, 10000.0, 128, 1.0)):
        for length in (n // 3, n, n + 1, 2 * n, 9 * n):
            yield "dynamic", d, base, n, length, {"factor": s}
    for d, base, n, s, extra in (
        (96, 10000.0, 4096, 32.0, {}),
        (64, 10000.0, 128, 4.0, {}),
        (8, 10000.0, 128, 4.0, {"attention_factor": 1.19}),
        (8, 10000.0, 128, 1.0, {}),
    ):
        lists = {"short_factor": factors(d // 2, 1.6), "long_factor": factors(d // 2, 2 * s)}
        for length in (n // 2, n, n + 1, 4 * n):
            yield "longrope", d, base, n, length, {"factor": s, **lists, **extra}


def rotary_rates(name, d, base, original, length, parameters):
    """Angles of a token and the factor of cosines and sines, by transformers."""
    kind = {"ntk": "dynamic"}.get(name, name)
    rope = {"rope_type": kind, "rope_theta": base, **parameters}
    if kind in ("yarn", "llama3", "longrope"):
        rope["original_max_position_embeddings"] = original
    config = LlamaConfig(
        hidden_size=4 * d,
        num_attention_heads=4,
        head_dim=d,
        max_position_embeddings=original if kind == "dynamic" else 2 * original,
        rope_parameters=rope,
    )
    if d == 2 and kind == "dynamic":
        raise SystemExit("dynamic has no exponent for one pair")
    rates, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    return rates.tolist(), float(factor)


def rotary_header():
    body = [
        "typedef struct published_rotary {",
        "  const char *scaling; /* a word of model.rotary.scaling */",
        "  int64_t head_dim, original, length;",
        "  double base, factor, beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim, low, high; /* 0: not given */",
        "  bool untruncated;",
        "  const double *short_factor, *long_factor; /* [head_dim / 2], or NULL */",
        "  double magnitude; /* of turned queries and keys */",
        "  const double *rates; /* [head_dim / 2] */",
        "} published_rotary;",
        "",
        "#define NUMBERS(...) (const double[]) { __VA_ARGS__ }",
        "static const published_rotary published_rotary_cases[] = {",
    ]
    for name, d, base, original, length, given in rotary_cases():
        rates, magnitude = rotary_rates(name, d, base, original, length, given)
        factor = length / original if name == "ntk" else given["factor"]
        fields = [
            f'.scaling = "{name}", .head_dim = {d}, .original = {original}, .length = {length}, .base = {base:.9g}, .factor = {factor:.9g}',
        ]
        for key, field in (
            ("beta_fast", "beta_fast"),
            ("beta_slow", "beta_slow"),
            ("attention_factor", "attention_factor"),
            ("mscale", "mscale"),
            ("mscale_all_dim", "mscale_all_dim"),
            ("low_freq_factor", "low"),
            ("high_freq_factor", "high"),
        ):
            if key in given:
                fields.append(f".{field} = {given[key]:.9g}")
        if given.get("truncate") is False:
            fields.append(".untruncated = true")
        for key in ("short_factor", "long_factor"):
            if key in given:
                fields.append(f".{key} = NUMBERS(\n{numbers(given[key]).rstrip(',')})")
        fields.append(f".magnitude = {magnitude:.17g}")
        fields.append(f".rates = NUMBERS(\n{numbers(rates).rstrip(',')})")
        body.append("  {" + ",\n   ".join(fields) + "},")
    body += ["};", "#undef NUMBERS", ""]
    return header("models/published_rotary.h", "rates of scaled rotary positions as transformers' ROPE_INIT_FUNCTIONS give them.", "\n".join(body))


# --- positional biases -----------------------------------------------------------------------------------------------------------------


def positional_header():
    body = ["typedef struct published_slopes {", "  int heads;", "  const double *slopes;", "} published_slopes;", ""]
    body += ["static const published_slopes published_alibi[] = {"]
    for heads in (*range(1, 17), 20, 24, 25, 31, 32, 33, 40, 64, 71, 96, 112, 128):
        # logits are slope times the number of the key
        slopes = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1].tolist()
        body.append(f"  {{{heads}, (const double[]) {{\n{numbers(slopes)}}}}},")
    body += ["};", "", "/* The bucket of the distance d, 0 .. 299, in a causal T5 (32 buckets, distances up to 128). */"]
    distance = -torch.arange(300)
    causal = T5Attention._relative_position_bucket(distance, bidirectional=False, num_buckets=32, max_distance=128)
    body += [f"static const int published_t5[] = {{\n{numbers(causal.tolist())}}};", ""]
    body += ["/* The bucket of the relative positions (key less query) -299 .. 299 in a T5 encoder (32 buckets, distances up to 128). */"]
    both = T5Attention._relative_position_bucket(torch.arange(-299, 300), bidirectional=True, num_buckets=32, max_distance=128)
    body += [f"static const int published_t5_encoder[] = {{\n{numbers(both.tolist())}}};", ""]
    return header(
        "positional/published_positional.h",
        "ALiBi's slopes as transformers' BLOOM has them, and T5's buckets.",
        "\n".join(body),
    )


# --- layers and steps ------------------------------------------------------------------------------------------------------------------

POINTS = [-9.0, -6.5, -3.0, -1.7, -0.75, -0.1, -1e-3, 0.0, 1e-3, 0.2, 0.6, 1.0, 1.9, 3.3, 6.0, 9.5]


def gradients(function):
    x = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)
    y = function(x)
    y.sum().backward()
    return y.detach().tolist(), x.grad.tolist()


def steps(optimiser, **settings):
    """Four numbers after each of five steps whose gradients are sin(t + i), and the settings."""
    parameter = torch.nn.Parameter(torch.tensor([0.5, -1.25, 2.0, 0.0], dtype=torch.float64))
    made = optimiser([parameter], **settings)
    out = []
    for t in range(1, 6):
        parameter.grad = torch.sin(t + torch.arange(4, dtype=torch.float64))
        made.step()
        out += parameter.detach().tolist()
    return out


def factored_steps(optimiser, shape, **settings):
    """Twelve numbers in a shape after each of five steps, whose gradients have rows and columns of different sizes."""
    count = torch.arange(12, dtype=torch.float64)
    parameter = torch.nn.Parameter(torch.cos(1.9 * count).reshape(shape))
    made = optimiser([parameter], **settings)
    out = []
    for t in range(1, 6):
        parameter.grad = (torch.sin(3.7 * count + 1.3 * t) * (1 + count // 4) / (1 + count % 4)).reshape(shape)
        made.step()
        out += parameter.detach().flatten().tolist()
    return out


# PyTorch multiplies the rate by the root mean square of the weight, as the paper, and limits it to 1 / sqrt(t); it bounds V from below by
# eps[0]^2, where the paper adds epsilon_1 to squares. The Adafactor of transformers adds it, and has the average of updates.
FACTORED = {"lr": 0.01, "eps": (1e-30, 1e-3), "weight_decay": 0.3}
AVERAGED = {"lr": 0.01, "eps": (1e-30, 1e-3), "weight_decay": 0.3, "beta1": 0.75, "scale_parameter": False, "relative_step": False}


def schedule(name, total, warmup, **settings):
    """Factors of the peak in the steps 1 .. total, as transformers counts: the step that is about to be taken has number t - 1."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    made = get_scheduler(name, optimiser, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=settings)
    out = []
    for _ in range(total + 1):
        out.append(made.get_last_lr()[0])
        optimiser.step()
        made.step()
    return out


def sinusoids(width, length):
    """The published formula in PyTorch's own tutorial form, in f64: sines on even features, cosines on odd ones."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table.flatten().tolist()


def layers_header():
    rows = [("points", POINTS)]
    for name, function in (
        ("gelu", torch.nn.functional.gelu),
        ("gelu_tanh", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        ("gelu_new", ACT2FN["gelu_new"]),
        ("silu", torch.nn.functional.silu),
        ("relu", torch.nn.functional.relu),
        ("log_sigmoid", torch.nn.functional.logsigmoid),
    ):
        y, dx = gradients(function)
        rows += [(name, y), (f"{name}_gradient", dx)]
    x = torch.tensor(POINTS, dtype=torch.float64).reshape(2, 8)
    weight = torch.linspace(0.5, 1.9, 8, dtype=torch.float64)
    bias = torch.linspace(-1, 1, 8, dtype=torch.float64)
    rows += [
        ("layer_norm", torch.nn.functional.layer_norm(x, (8,), weight, bias, eps=0.5).flatten().tolist()),
        ("rms_norm", torch.nn.functional.rms_norm(x, (8,), weight, eps=0.5).flatten().tolist()),
        ("cross_entropy", [torch.nn.functional.cross_entropy(x, torch.tensor([3, 6])).item()]),
        ("cross_entropy_smooth", [torch.nn.functional.cross_entropy(x, torch.tensor([3, 6]), label_smoothing=0.2).item()]),
        ("adamw", steps(torch.optim.AdamW, lr=0.1, betas=(0.9, 0.99), eps=0.05, weight_decay=0.3)),
        ("adam", steps(torch.optim.Adam, lr=0.1, betas=(0.9, 0.999), eps=1e-8)),
        ("adafactor", factored_steps(torch.optim.Adafactor, (3, 4), **FACTORED)),
        ("adafactor_vector", factored_steps(torch.optim.Adafactor, (12,), **FACTORED)),
        ("adafactor_averaged", factored_steps(Adafactor, (3, 4), **AVERAGED)),
        ("clipped", clipped()),
        ("cosine", schedule("cosine", 40, 10)),
        ("cosine_minimum", schedule("cosine_with_min_lr", 40, 10, min_lr_rate=0.1)),
        ("linear", schedule("linear", 40, 10)),
        ("inverse_sqrt", schedule("inverse_sqrt", 40, 10)),
        ("sinusoidal", sinusoids(6, 5)),
        ("xavier", xavier()),
    ]
    body = [f"static const double published_{name}[] = {{\n{numbers(values, 17)}}};\n" for name, values in rows]
    return header("reference/published_layers.h", "activations, norms, losses, steps and schedules as PyTorch and transformers compute them.", "\n".join(body))


def clipped():
    """Gradients (3, -4, 12) after clipping to a norm of 2 by PyTorch."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    parameter.grad = torch.tensor([3.0, -4.0, 12.0], dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([parameter], 2.0)
    return parameter.grad.tolist()


def xavier():
    """Deviations that PyTorch's xavier_normal_ draws with, for [out, in] of (64, 256), (256, 64), (7, 7): measured to about 1e-3."""
    torch.manual_seed(1)
    out = []
    for shape in ((64, 256), (256, 64), (7, 7)):
        drawn = torch.stack([torch.nn.init.xavier_normal_(torch.empty(shape)) for _ in range(2000 if shape[0] == 7 else 60)])
        out.append(drawn.double().square().mean().sqrt().item())
    return out


def agree(text, other):
    """The same text, with numbers that differ by rounding at most: processors add in different orders."""
    number = r"-?\d+\.\d+(?:e-?\d+)?"
    pairs = zip(re.findall(number, text), re.findall(number, other))
    return re.sub(number, "", text) == re.sub(number, "", other) and all(math.isclose(float(a), float(b), rel_tol=1e-13) for a, b in pairs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = {
        "tests/models/published_rotary.h": rotary_header(),
        "tests/positional/published_positional.h": positional_header(),
        "tests/reference/published_layers.h": layers_header(),
    }
    differ = 0
    for name, text in files.items():
        path = ROOT / name
        if check and not (path.exists() and agree(path.read_text(), text)):
            differ += 1
            print(f"{name}: differs")
        elif not check:
            path.write_text(text)
            print(name)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
