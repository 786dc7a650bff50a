#!/usr/bin/env python3
"""A training step of a GPT in PyTorch, with PyTorch's attention and with hark's in its place: nothing else differs.

    swap.py [--threads 2] [--rounds 5] [--compile] [CONTEXT:BATCH:ATTENTION ...]

ATTENTION: sdpa (PyTorch's scaled_dot_product_attention), dense (hark's, put in its place by one line), hierarchical (hark's) or none (the values
alone: what the rest of the step takes). The model has 12.6 million parameters: 4 layers, width 512, 4
heads, 256 tokens. The default is sdpa and dense at 1,024 tokens and sdpa, hierarchical and none at 4,096. Every variant is a process; they compute in turn, and the medians of rounds are printed, with the time of the processors over that of
the clock, and the peak memory of the process. The Python package has to be installed, or on PYTHONPATH.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

DEFAULT = ["1024:4:sdpa", "1024:4:dense", "4096:1:sdpa", "4096:1:hierarchical", "4096:1:none"]
STEPS = 3  # of a round


def child(arguments):
    """Answers every line of standard input with a round."""
    import torch
    import torch.nn.functional as F
    from gpt import GPT, Shape

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    context, batch, attention = arguments.variants[0].split(":")
    if attention == "dense":
        import hark.torch

        F.scaled_dot_product_attention = hark.torch.scaled_dot_product_attention
    elif attention == "hierarchical":
        import hark.torch

        F.scaled_dot_product_attention = lambda q, k, v, is_causal: hark.torch.attention(q, k, v, structure="hierarchical", causal=is_causal)
    elif attention == "none":
        F.scaled_dot_product_attention = lambda q, k, v, is_causal: v
    elif attention != "sdpa":
        sys.exit(f"swap.py: attention '{attention}', expected sdpa, dense, hierarchical or none")
    model = GPT(Shape(vocabulary=256, context=int(context)))
    optimizer = model.optimizer()
    run = torch.compile(model) if arguments.compile else model
    tokens = torch.randint(0, 256, (int(batch), int(context) + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    first = step()
    for _ in sys.stdin:
        begin, used = time.perf_counter(), time.process_time()
        times = []
        for _ in range(STEPS):
            at = time.perf_counter()
            step()
            times.append(time.perf_counter() - at)
        processors = (time.process_time() - used) / (time.perf_counter() - begin)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"ms": 1e3 * statistics.median(times), "processors": processors, "peak_mib": peak, "loss": first}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="*", default=DEFAULT, metavar="CONTEXT:BATCH:ATTENTION")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="the model under torch.compile")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    words = [sys.executable, __file__, "--child", "--threads", str(arguments.threads), *(["--compile"] if arguments.compile else [])]
    processes = [subprocess.Popen([*words, v], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for v in arguments.variants]
    rounds = [[] for _ in processes]
    for number in range(arguments.rounds + 1):
        for process, of_variant in zip(processes, rounds):
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                sys.exit(f"swap.py: {process.args[-1]}: failed, see above")
            if number > 0:  # the first warms up
                of_variant.append(json.loads(line))
    for process in processes:
        process.stdin.close()
        process.wait()
    print(f"{'context:batch:attention':32} {'ms a step':>10}  {'least-most':>15} {'processors':>11} {'peak memory':>12}  PyTorch's time over it")
    for variant, found in zip(arguments.variants, rounds):
        context = variant.split(":")[0]
        base = next((r for v, r in zip(arguments.variants, rounds) if v.split(":")[0] == context and v.endswith(":sdpa")), None)
        ms = [x["ms"] for x in found]
        ratios = sorted(b["ms"] / a for a, b in zip(ms, base)) if base else []
        shown = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})" if ratios else ""
        print(
            f"{variant:32} {statistics.median(ms):10.1f}  {min(ms):7.1f}-{max(ms):7.1f} {statistics.median(x['processors'] for x in found):11.2f}"
            f" {found[-1]['peak_mib']:8.0f} MiB  {shown}   first loss {found[0]['loss']:.6f}"
        )


if __name__ == "__main__":
    main()
