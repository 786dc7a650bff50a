"""Measures PyTorch. Reads one request a line (JSON) from standard input, answers with one line, so that the caller can take turns.

    {"do": "about"}
    {"do": "attention", "case": "dense:B1,H8,L4096,D64,causal", "precision": "f32", "repetitions": 3}  -> forward_ms, backward_ms: lists
    {"do": "attention", "case": "hierarchical:B1,H8,L16384,D64,N16,mean", ...}     the same, of the package h-transformer-1d
    {"do": "step", "compiled": false, "precision": "bf16", "repetitions": 3}      -> step_ms: list, memory_bytes; bf16: autocast
    {"do": "encoder", "shape": {"vocabulary": 261, ...}, "batch": 4, "compiled": false, "repetitions": 3}   the same of Long Range Arena's encoder
"""

import argparse
import json
import os
import re
import resource
import sys
import time

import torch
import torch.nn.functional as F

import encoder
from gpt import GPT, Shape


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


HEADS = {"dense": ["causal"], "hierarchical": ["causal", "mean", "first", "exact", "sibling"]}


def read_case(text):
    """The subset of hark's cases that the peers know."""
    head, words = text.split(":")
    if head not in HEADS:
        raise SystemExit(f"case '{text}': no peer has '{head}'")
    extents = {"head": head, "B": 1, "H": 1, "N": 16, "causal": False}
    for word in words.split(","):
        match = re.fullmatch(r"([BHKLMDEN])=?(\d+)", word)
        if match:
            extents[match[1]] = int(match[2])
        elif word in HEADS[head]:
            extents[word] = True
        else:
            raise SystemExit(f"case '{text}': no peer has '{word}'")
    extents.setdefault("K", extents["H"])
    extents.setdefault("M", extents["L"])
    extents.setdefault("E", extents["D"])
    return extents


PRECISIONS = {"f32": torch.float32, "bf16": torch.bfloat16}


def dense(e):
    """scaled_dot_product_attention: what to call, and the tensors that have gradients."""
    shapes = [(e["H"], e["L"], e["D"]), (e["K"], e["M"], e["D"]), (e["K"], e["M"], e["E"])]
    tensors = [torch.randn(e["B"], *s).to(e["type"]).requires_grad_() for s in shapes]
    grouped = {"enable_gqa": True} if e["K"] != e["H"] else {}
    return lambda: F.scaled_dot_product_attention(*tensors, is_causal=e["causal"], **grouped), tensors


def hierarchical(e):
    """The attention of h-transformer-1d (mean queries; the two halves of a parent meet) without its projections."""
    import h_transformer_1d.h_transformer_1d as package  # pylint: disable=import-outside-toplevel

    sizes = {"heads": e["H"], "dim_head": e["D"], "block_size": e["N"]}
    if e["causal"]:
        module = package.CausalHAttention1D(1, max_seq_len=e["L"], **sizes)
    else:
        module = package.HAttention1D(1, **sizes)
    module.to_qkv = module.to_out = torch.nn.Identity()
    packed = torch.randn(e["B"], e["L"], 3 * e["H"] * e["D"], requires_grad=True)
    return lambda: module(packed), [packed]


class Worker:
    def __init__(self, arguments):
        self.arguments = arguments
        self.before = resident_bytes()
        self.cases = {}
        self.model = None

    def about(self, _):
        return {
            "torch": torch.__version__,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "configuration": torch.__config__.show(),
            "threads": torch.get_num_threads(),
        }

    def attention(self, request):
        name = request["case"], request.get("precision", "f32")
        if name not in self.cases:
            e = {**read_case(name[0]), "type": PRECISIONS[name[1]]}
            self.cases = {}  # one case's tensors at a time
            call, tensors = (dense if e["head"] == "dense" else hierarchical)(e)
            self.cases[name] = call, tensors, torch.randn_like(call())
        call, tensors, gradient = self.cases[name]
        forward, backward = [], []
        for _ in range(request["repetitions"]):
            start = time.perf_counter()
            out = call()
            middle = time.perf_counter()
            torch.autograd.grad(out, tensors, gradient)
            backward.append(1e3 * (time.perf_counter() - middle))
            forward.append(1e3 * (middle - start))
        return {"forward_ms": forward, "backward_ms": backward}

    def step(self, request):
        a = self.arguments
        if self.model is None:
            shape = Shape(a.vocabulary, a.layers, a.heads, a.width, a.context)
            self.begin(GPT(shape), request)
            tokens = torch.randint(a.vocabulary, (a.batch, a.context + 1))
            self.batch = tokens[:, :-1], tokens[:, 1:]
        return self.measure(request["repetitions"])

    def encoder(self, request):
        if self.model is None:
            shape = encoder.Shape(**request["shape"])
            self.begin(encoder.Encoder(shape), request)
            self.batch = torch.randint(shape.vocabulary, (request["batch"], shape.context)), torch.randint(shape.classes, (request["batch"],))
        return {**self.measure(request["repetitions"]), "parameters": sum(p.numel() for p in self.model.parameters())}

    def begin(self, model, request):
        self.model = model
        self.optimizer = model.optimizer()
        self.run = torch.compile(model) if request["compiled"] else model
        self.half = request.get("precision", "f32") == "bf16"

    def measure(self, repetitions):
        """Whole training steps on the same batch again and again."""
        times = []
        for _ in range(repetitions):
            start = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
                loss = self.run(*self.batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            times.append(1e3 * (time.perf_counter() - start))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"step_ms": times, "peak_memory_bytes": peak, "beyond_import_bytes": peak - self.before, "loss": loss.item()}


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("threads", 2), ("vocabulary", 96), ("layers", 4), ("heads", 4), ("width", 512), ("context", 256), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    worker = Worker(arguments)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(worker, request["do"])(request)), flush=True)


if __name__ == "__main__":
    main()
