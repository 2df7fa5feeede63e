#!/usr/bin/env python3
"""MLP training beside PyTorch eager, interleaved A/B, medians of 7 runs.

    tests/bench/mlp.py --binary build/release/bench/mlp_bench [--torch PYTHON]

Each program trains one shape on made-up data and prints a line
`images_per_second X peak_rss_mib Y`; shapes and options are the same for both.
"""

import argparse
import os
import re
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = [("784-256-10", 64), ("784-500-500-10", 512)]
RUNS = 7


def one(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    match = re.search(r"images_per_second ([0-9.]+) peak_rss_mib ([0-9.]+)", out)
    if not match:
        raise SystemExit(f"{' '.join(command)} printed no figures:\n{out}")
    return float(match.group(1)), float(match.group(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--torch", help="python of an environment with PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print("| shape | batch | ours img/s | PyTorch img/s | ratio (least..most) | ours MiB | PyTorch MiB |")
    print("|---|---|---|---|---|---|---|")
    for shape, batch in SHAPES:
        options = ["--shape", shape, "--batch", str(batch), "--threads", str(arguments.threads)]
        ours_command = [arguments.binary, *options, "--logical-ranks", "8"]
        torch_command = [arguments.torch, os.path.join(HERE, "mlp_torch.py"), *options] if arguments.torch else None
        ours, torch, ratios = [], [], []
        for _ in range(RUNS):
            ours.append(one(ours_command))
            if torch_command:
                torch.append(one(torch_command))
                ratios.append(ours[-1][0] / torch[-1][0])
        median = lambda values: statistics.median(values)
        line = f"| {shape} | {batch} | {median([o[0] for o in ours]):.0f} "
        if torch:
            line += (f"| {median([t[0] for t in torch]):.0f} | {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f}) "
                     f"| {median([o[1] for o in ours]):.0f} | {median([t[1] for t in torch]):.0f} |")
        else:
            line += f"| not run | | {median([o[1] for o in ours]):.0f} | |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
