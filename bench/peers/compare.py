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
    for case in cases:
        peer.ask(do="attention", case=case, repetitions=1)
        ours, theirs, fractions, other_fractions, ratios = [], [], [], [], []
        for _ in range(arguments.rounds):
            mine = hark(arguments, "attention", case, "--rounds", "3")
            other = peer.ask(do="attention", case=case, repetitions=3)
            ours.append(mine["forward_ms"] + mine["backward_ms"])
            theirs.append(statistics.median(map(sum, zip(other["forward_ms"], other["backward_ms"]))))
            fractions.append((mine["forward_peak_fraction"], mine["backward_peak_fraction"]))
            ratios.append(theirs[-1] / ours[-1])
            operations = mine["forward_gflops"] * mine["forward_ms"] + mine["backward_gflops"] * mine["backward_ms"]
            other_fractions.append(operations / theirs[-1] / mine["peak_gflops"])
        forward, backward = (statistics.median(f[i] for f in fractions) for i in (0, 1))
        ratio = statistics.median(ratios)
        report.line(
            f"{case:44} {statistics.median(ours):9.1f} {100 * forward:5.0f} % {100 * backward:5.0f} % {statistics.median(theirs):19.1f}"
            f" {100 * statistics.median(other_fractions):6.0f} %  {ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            what="attention", case=case, hark_ms=statistics.median(ours), forward_peak_fraction=forward, backward_peak_fraction=backward,
            peer=name, peer_ms=statistics.median(theirs), peer_peak_fraction=statistics.median(other_fractions), ratio=ratio, least_ratio=min(ratios), most_ratio=max(ratios),
        )  # fmt: skip
    peer.close()


def compare_step(arguments, report):
    flags = ["--layers", "4", "--heads", "4", "--width", "512", "--context", "256", "--batch", str(arguments.batch)]
    flags += ["--vocabulary", str(arguments.vocabulary), "--steps", "3"]
    print(f"\n{'training step, ' + str(arguments.batch) + ' x 256 tokens':36} {'ms':>9} {'of peak':>9} {'peak memory':>12}  hark is faster by")
    for compiled in (False, True):
        peer = Peer(arguments)
        if peer.ask(do="step", compiled=compiled, repetitions=3) is None:
            print(f"PyTorch, {'compiled' if compiled else 'eager'}: failed, see above")
            peer.close()
            continue
        ours, theirs, fractions = [], [], []
        for _ in range(arguments.rounds):
            mine = hark(arguments, "step", *flags)
            other = peer.ask(do="step", compiled=compiled, repetitions=3)
            ours.append(mine["step_ms"])
            fractions.append(mine["peak_fraction"])
            theirs.append(statistics.median(other["step_ms"]))
        peer.close()
        name = f"PyTorch, {'compiled' if compiled else 'eager'}"
        ratios = [b / a for a, b in zip(ours, theirs)]
        ratio = statistics.median(ratios)
        memory, other_memory = mine["peak_memory_bytes"], other["peak_memory_bytes"]
        print(f"{'hark':36} {statistics.median(ours):9.1f} {100 * statistics.median(fractions):7.0f} % {memory / 2**20:9.0f} MiB  ({spread(ours)} ms)")
        report.line(
            f"{name:36} {statistics.median(theirs):9.1f} {'':9} {other_memory / 2**20:9.0f} MiB  {ratio:.2f}"
            f" ({min(ratios):.2f}-{max(ratios):.2f}); {other['beyond_import_bytes'] / 2**20:.0f} MiB of the memory beyond what importing takes",
            what="step", compiled=compiled, hark_ms=statistics.median(ours), torch_ms=statistics.median(theirs), ratio=ratio,
            hark_peak_fraction=statistics.median(fractions), hark_peak_memory_bytes=memory, torch_peak_memory_bytes=other_memory,
            torch_beyond_import_bytes=other["beyond_import_bytes"],
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
    print(f"\n{'training step of an encoder':34} {'dense ms':>9} {'of peak':>8} {'tokens/s':>9} {'hierarchical ms':>16} {'of peak':>8} {'tokens/s':>9} {'PyTorch ms':>17}  dense, hierarchical are faster by")
    for name, sizes in ENCODERS.items():
        if arguments.case and name not in arguments.case:
            continue
        layers, heads, width, feed_forward, context, batch = sizes
        shape = {
            "vocabulary": BYTES, "classes": CLASSES, "layers": layers, "heads": heads, "width": width, "feed_forward": feed_forward, "context": context,
        }  # fmt: skip
        flags = encoder_flags(*sizes)
        peers = {}
        for compiled in (False, True) if arguments.compile else (False,):
            peer = Peer(arguments)
            answer = peer.ask(do="encoder", shape=shape, batch=batch, compiled=compiled, repetitions=2)
            if answer is None:
                print(f"{name}: PyTorch, {'compiled' if compiled else 'eager'}: failed, see above")
                peer.close()
                continue
            peers["compiled" if compiled else "eager"] = peer
            parameters = answer["parameters"]
        if not peers:
            continue
        ours, fractions = {s: [] for s in STRUCTURES}, {s: [] for s in STRUCTURES}
        theirs = {p: [] for p in peers}
        for _ in range(arguments.rounds):
            for structure, words in STRUCTURES.items():
                mine = hark(arguments, "step", *flags, *words)
                if mine["parameters"] != parameters:
                    raise SystemExit(f"{name}: hark's {structure} encoder has {mine['parameters']} parameters, PyTorch's {parameters}")
                ours[structure].append(mine["step_ms"])
                fractions[structure].append(mine["peak_fraction"])
            for which, peer in peers.items():
                other = peer.ask(do="encoder", shape=shape, batch=batch, compiled=which == "compiled", repetitions=3)
                theirs[which].append(statistics.median(other["step_ms"]))
        for peer in peers.values():
            peer.close()
        best = min(theirs, key=lambda which: statistics.median(theirs[which]))
        middle, share = ({s: statistics.median(v[s]) for s in STRUCTURES} for v in (ours, fractions))
        speed = {s: 1e3 * batch * (context + 1) / middle[s] for s in STRUCTURES}
        ratios = {s: [b / a for a, b in zip(ours[s], theirs[best])] for s in STRUCTURES}
        shown = ", ".join(f"{statistics.median(r):.2f} ({min(r):.2f}-{max(r):.2f})" for r in ratios.values())
        own = " ".join(f"{middle[s]:{w}.1f} {100 * share[s]:6.0f} % {speed[s]:9.0f}" for s, w in (("dense", 9), ("hierarchical", 16)))
        label = f"{name}, batch {batch}"
        report.line(
            f"{label:34} {own} {statistics.median(theirs[best]):8.1f} {best:8}  {shown}",
            what="encoder", shape=shape, batch=batch, hark_ms=middle, hark_peak_fraction=share, hark_tokens_per_second=speed,
            torch_ms={p: statistics.median(v) for p, v in theirs.items()}, ratio={s: statistics.median(r) for s, r in ratios.items()},
        )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="hark against its peers, in turn")
    parser.add_argument("what", nargs="*", default=["attention", "step"], help="attention, hierarchical, step, encoder (default: attention, step)")
    parser.add_argument("--hark", required=True, help="path of the command")
    parser.add_argument("--results", type=Path, required=True, help="where results.jsonl is written")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", help="an attention case instead of the built-in list, or one of the encoders; may be repeated")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="encoders: PyTorch as it is, not compiled too")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=96)
    arguments = parser.parse_args()
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
