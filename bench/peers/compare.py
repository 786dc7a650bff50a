"""Measures hark and its peers, PyTorch and packages on it, in turn and prints their ratios. Called by run.sh with the python of the virtual environment.

Every round runs hark, then the peer, on the same case; what is printed are medians over the rounds. All lines also go to results.jsonl.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

ATTENTION = [
    "dense:B1,H8,L4096,D64",
    "dense:B1,H8,L4096,D64,causal",
    "dense:B1,H8,L4096,D32,causal",
    "dense:B1,H8,L4096,D80,causal",
    "dense:B1,H8,L4096,D128,causal",
    "dense:B1,H8,L1000,D64,causal",
    "dense:B1,H8,L8192,D64,causal",
    "dense:B1,H8,K2,L4096,D64,causal",
    "dense:B16,H4,L256,D128,causal",
]

HIERARCHICAL = [
    "hierarchical:B1,H8,L16384,D64,N16,mean",
    "hierarchical:B1,H8,L16384,D64,N16,mean,sibling",
    "hierarchical:B1,H8,L16384,D64,N16,first,causal",
    "hierarchical:B1,H8,L16384,D64,N16,exact,causal",
]

# Long Range Arena's Text, its model and a reduced one, about 4,096 tokens a step: layers, heads, width, feed-forward, context, batch.
ENCODERS = {
    "encoder:exact,L1024": (4, 4, 256, 1024, 1024, 4),
    "encoder:exact,L4096": (4, 4, 256, 1024, 4096, 1),
    "encoder:reduced,L1024": (2, 4, 128, 512, 1024, 4),
    "encoder:reduced,L4096": (2, 4, 128, 512, 4096, 1),
}
BYTES = 261  # tokens: bytes and the reserved ones
CLASSES = 10  # that bench step has
STRUCTURES = {"dense": [], "hierarchical": ["--structure", "hierarchical", "--hierarchy-block", "16"]}

# What --case belongs to, by its head: the peer and the built-in cases.
ATTENTIONS = {"attention": ("dense", "PyTorch", ATTENTION), "hierarchical": ("hierarchical", "h-transformer-1d", HIERARCHICAL)}


class Peer:
    """A worker.py that waits for requests."""

    def __init__(self, arguments):
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
        command = [sys.executable, str(HERE / "worker.py"), "--threads", str(arguments.threads)]
        command += ["--batch", str(arguments.batch), "--vocabulary", str(arguments.vocabulary)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else None

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def hark(arguments, *words):
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    command = [arguments.hark, "bench", *words, "--json"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def blas(threads):
    """The instruction set that MKL says it uses; PyTorch's own vectorised loops may use another."""
    environment = dict(os.environ, MKL_VERBOSE="1", OMP_NUM_THREADS=str(threads))
    code = "import torch; a = torch.randn(64, 64); a @ a"
    said = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False).stdout
    match = re.search(r"for Intel\(R\) 64 architecture (.*?) processors", said)
    if not match:
        return "not MKL, instruction set unknown", None
    return f"MKL for {match[1]} processors", "AVX-512" in match[1]


class Report:
    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "w", encoding="utf-8")

    def line(self, text, **values):
        print(text, flush=True)
        print(json.dumps(values), file=self.file, flush=True)


def spread(values):
    return f"{min(values):.1f}-{max(values):.1f}"


def compare_attention(arguments, report, cases, name):
    print(f"\n{'attention, forward + backward':44} {'hark ms':>9} {'of peak':>15} {name + ' ms':>19} {'of peak':>8}  ratio (least-most of the rounds)")
    peer = Peer(arguments)
    for case, precision in ((case, precision) for case in cases for precision in (arguments.precision if name == "PyTorch" else ["f32"])):
        request = {"do": "attention", "case": case, "precision": precision}
        own_case = case if precision == "f32" else f"{case},{precision}"
        peer.ask(**request, repetitions=1)
        ours, theirs, fractions, other_fractions, ratios = [], [], [], [], []
        for _ in range(arguments.rounds):
            mine = hark(arguments, "attention", own_case, "--rounds", "3")
            other = peer.ask(**request, repetitions=3)
            ours.append(mine["forward_ms"] + mine["backward_ms"])
            theirs.append(statistics.median(map(sum, zip(other["forward_ms"], other["backward_ms"]))))
            fractions.append((mine["forward_peak_fraction"], mine["backward_peak_fraction"]))
            ratios.append(theirs[-1] / ours[-1])
            operations = mine["forward_gflops"] * mine["forward_ms"] + mine["backward_gflops"] * mine["backward_ms"]
            other_fractions.append(operations / theirs[-1] / mine["peak_gflops"])
        forward, backward = (statistics.median(f[i] for f in fractions) for i in (0, 1))
        ratio = statistics.median(ratios)
        report.line(
            f"{own_case:44} {statistics.median(ours):9.1f} {100 * forward:5.0f} % {100 * backward:5.0f} % {statistics.median(theirs):19.1f}"
            f" {100 * statistics.median(other_fractions):6.0f} %  {ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            what="attention", case=own_case, hark_ms=statistics.median(ours), forward_peak_fraction=forward, backward_peak_fraction=backward,
            peer=name, peer_ms=statistics.median(theirs), peer_peak_fraction=statistics.median(other_fractions), ratio=ratio, least_ratio=min(ratios), most_ratio=max(ratios),
        )  # fmt: skip
    peer.close()


class Sides:
    """The programs that take turns on one training step: hark's variants, and PyTorch in each precision, eager and compiled. `ours`: flags by
    name; `request`: what a worker is asked for."""

    def __init__(self, arguments, label, ours, request):
        self.arguments, self.label, self.ours = arguments, label, ours
        self.times = {name: [] for name in ours}
        self.last, self.peers = {}, {}
        for precision in arguments.precision:
            for way in ("eager", "compiled") if arguments.compile else ("eager",):
                self.begin(f"PyTorch {precision}, {way}", {**request, "precision": precision, "compiled": way == "compiled"})

    def begin(self, name, request):
        peer = Peer(self.arguments)
        answer = peer.ask(**request, repetitions=2)
        if answer is None:
            print(f"{self.label}: {name}: failed, see above")
            peer.close()
            return
        self.peers[name] = peer, request
        self.times[name] = []
        self.last[name] = answer

    def measure(self):
        for _ in range(self.arguments.rounds):
            for name, flags in self.ours.items():
                self.last[name] = hark(self.arguments, "step", *flags)
                self.times[name].append(self.last[name]["step_ms"])
            for name, (peer, request) in self.peers.items():
                self.last[name] = peer.ask(**request, repetitions=3)
                self.times[name].append(statistics.median(self.last[name]["step_ms"]))
        for peer, _ in self.peers.values():
            peer.close()

    def best(self, precision):
        """The faster of PyTorch eager and compiled in this precision."""
        names = [name for name in self.peers if name.startswith(f"PyTorch {precision},")]
        return min(names, key=lambda name: statistics.median(self.times[name])) if names else None

    def ratios(self, name, other):
        """How many times as fast `name` is as `other`, round by round."""
        return [b / a for a, b in zip(self.times[name], self.times[other])]


def precision_flags(precision):
    return [] if precision == "f32" else ["--precision", precision]


def shown_ratio(ratios):
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def compare_step(arguments, report):
    flags = ["--layers", "4", "--heads", "4", "--width", "512", "--context", "256", "--batch", str(arguments.batch)]
    flags += ["--vocabulary", str(arguments.vocabulary), "--steps", "3"]
    ours = {f"hark {precision}": flags + precision_flags(precision) for precision in arguments.precision}
    label = f"training step, {arguments.batch} x 256 tokens"
    sides = Sides(arguments, label, ours, {"do": "step"})
    sides.measure()
    print(f"\n{label:36} {'ms':>9} {'of peak':>9} {'peak memory':>12}  hark in the same precision is faster by; than hark f32")
    for name, times in sides.times.items():
        precision = name.split()[1].rstrip(",")
        last, mine = sides.last[name], f"hark {precision}"
        share = f"{100 * last['peak_fraction']:7.0f} %" if name in ours else f"{'':9}"
        more = shown_ratio(sides.ratios(mine, name)) if name not in ours else f"{'':18} {shown_ratio(sides.ratios(name, next(iter(ours))))}"
        report.line(
            f"{name:36} {statistics.median(times):9.1f} {share} {last['peak_memory_bytes'] / 2**20:9.0f} MiB  {more}  ({spread(times)} ms)",
            what="step", name=name, ms=statistics.median(times), least_ms=min(times), most_ms=max(times),
            peak_memory_bytes=last["peak_memory_bytes"], peak_fraction=last.get("peak_fraction"),
            beyond_import_bytes=last.get("beyond_import_bytes"), ratio=statistics.median(sides.ratios(mine, name)),
        )  # fmt: skip


def encoder_flags(layers, heads, width, feed_forward, context, batch):
    sizes = {"layers": layers, "heads": heads, "width": width, "model.feed_forward_width": feed_forward, "context": context, "batch": batch}
    flags = ["--format", "text", "--architecture", "encoder", "--positions", "sinusoidal", "--bias", "--model.attention.unbiased"]
    flags += ["--vocabulary", str(BYTES), "--steps", "3"]
    for name, value in sizes.items():
        flags += [f"--{name}", str(value)]
    return flags


def compare_encoder(arguments, report):
    """Steps of the same encoder: hark's, dense and hierarchical, in turn with PyTorch's, which is dense; the better of eager and compiled."""
    print(f"\n{'training step of an encoder':40} {'hark ms':>9} {'of peak':>8} {'tokens/s':>9}  {'PyTorch ms':>20}  hark is faster by")
    for name, sizes in ENCODERS.items():
        if arguments.case and name not in arguments.case:
            continue
        layers, heads, width, feed_forward, context, batch = sizes
        shape = {
            "vocabulary": BYTES, "classes": CLASSES, "layers": layers, "heads": heads, "width": width, "feed_forward": feed_forward, "context": context,
        }  # fmt: skip
        variants = {f"{s} {p}": encoder_flags(*sizes) + words + precision_flags(p) for p in arguments.precision for s, words in STRUCTURES.items()}
        sides = Sides(arguments, name, variants, {"do": "encoder", "shape": shape, "batch": batch})
        sides.measure()
        for variant in variants:
            best = sides.best(variant.split()[1])
            if best is None:
                continue
            mine, other = sides.last[variant], sides.last[best]
            if mine["parameters"] != other["parameters"]:
                raise SystemExit(f"{name}: hark's {variant} encoder has {mine['parameters']} parameters, PyTorch's {other['parameters']}")
            middle, theirs = statistics.median(sides.times[variant]), statistics.median(sides.times[best])
            speed = 1e3 * batch * (context + 1) / middle
            ratios = sides.ratios(variant, best)
            report.line(
                f"{f'{name}, {variant}, batch {batch}':40} {middle:9.1f} {100 * mine['peak_fraction']:6.0f} % {speed:9.0f}  {theirs:9.1f} {best.split()[-1]:10}  {shown_ratio(ratios)}",
                what="encoder", case=name, variant=variant, shape=shape, batch=batch, hark_ms=middle, hark_peak_fraction=mine["peak_fraction"],
                hark_tokens_per_second=speed, peer=best, torch_ms={p: statistics.median(sides.times[p]) for p in sides.peers},
                ratio=statistics.median(ratios), least_ratio=min(ratios), most_ratio=max(ratios),
            )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="hark against its peers, in turn")
    parser.add_argument("what", nargs="*", default=["attention", "step"], help="attention, hierarchical, step, encoder (default: attention, step)")
    parser.add_argument("--hark", required=True, help="path of the command")
    parser.add_argument("--results", type=Path, required=True, help="where results.jsonl is written")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", action="append", choices=("f32", "bf16"), help="of both sides; may be repeated (f32)")
    parser.add_argument("--case", action="append", help="an attention case instead of the built-in list, or one of the encoders; may be repeated")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="steps and encoders: PyTorch as it is, not compiled too")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=96)
    arguments = parser.parse_args()
    arguments.precision = arguments.precision or ["f32"]
    asked = {"encoder:"} if "encoder" in arguments.what else set()
    asked |= {head + ":" for what, (head, _, _) in ATTENTIONS.items() if what in arguments.what}
    for case in arguments.case or []:
        if not case.startswith(tuple(asked)) or (case.startswith("encoder:") and case not in ENCODERS):
            parser.error(f"case '{case}': expected one of {', '.join(sorted(asked)) or 'none'} for {' '.join(arguments.what)}")

    peer = Peer(arguments)
    about = peer.ask(do="about")
    peer.close()
    name, has_avx512 = blas(arguments.threads)
    machine = hark(arguments, "machine")
    report = Report(arguments.results)
    verdict = {True: "it has AVX-512 for this processor", False: "it lacks AVX-512 for this processor", None: "see above"}[has_avx512]
    report.line(
        f"hark: {machine['instruction_set']}, {machine['peak_gflops']:.0f} GFLOP/s, {machine['memory_bytes_per_second'] / 1e9:.0f} GB/s;"
        f" {arguments.threads} threads\nPyTorch {about['torch']}: loops {about['capability']}; BLAS: {name} ({verdict})",
        what="machine", machine=machine, torch=about, blas=name, blas_has_avx512=has_avx512,
    )  # fmt: skip
    for what, (head, name, built_in) in ATTENTIONS.items():
        if what in arguments.what:
            compare_attention(arguments, report, [c for c in arguments.case or built_in if c.startswith(head + ":")], name)
    if "step" in arguments.what:
        compare_step(arguments, report)
    if "encoder" in arguments.what:
        compare_encoder(arguments, report)


if __name__ == "__main__":
    main()
