#!/usr/bin/env python3
"""Training of an MLP or a GPT beside PyTorch eager, interleaved A/B, medians of 7 runs.

    tests/bench/training.py mlp|gpt --binary build/release/bench/mlp_bench [--torch PYTHON]

Each program trains one shape on made-up data and prints a line
`images_per_second X peak_rss_mib Y`, a gpt tokens_per_second; shapes and options are the same for both.
"""

import argparse
import os
import re
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
# Of each: shape, batch, logical ranks. A gpt's shape: layers, heads, width, context; 256 tokens.
SHAPES = {"mlp": [("784-256-10", 64, 8), ("784-500-500-10", 512, 8)],
          "gpt": [("4-4-128-64", 12, 4), ("6-6-384-256", 8, 4), ("12-12-768-64", 4, 4)]}
UNITS = {"mlp": "images", "gpt": "tokens"}
RUNS = 7


def one(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    match = re.search(r"(?:images|tokens)_per_second ([0-9.]+) peak_rss_mib ([0-9.]+)", out)
    if not match:
        raise SystemExit(f"{' '.join(command)} printed no figures:\n{out}")
    return float(match.group(1)), float(match.group(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--shapes", help="of these alone, with commas between")
    parser.add_argument("--torch", help="python of an environment with PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    unit = UNITS[arguments.model]
    print(f"| shape | batch, L | ours {unit}/s | PyTorch {unit}/s | ratio (least..most) | ours MiB | PyTorch MiB |")
    print("|---|---|---|---|---|---|---|")
    for shape, batch, logical_ranks in SHAPES[arguments.model]:
        if arguments.shapes and shape not in arguments.shapes.split(","):
            continue
        options = ["--shape", shape, "--batch", str(batch), "--threads", str(arguments.threads)]
        ours_command = [arguments.binary, *options, "--logical-ranks", str(logical_ranks)]
        torch_command = [arguments.torch, os.path.join(HERE, f"{arguments.model}_torch.py"), *options] if arguments.torch else None
        ours, torch, ratios = [], [], []
        for _ in range(RUNS):
            ours.append(one(ours_command))
            if torch_command:
                torch.append(one(torch_command))
                ratios.append(ours[-1][0] / torch[-1][0])
        median = lambda values: statistics.median(values)
        line = f"| {shape} | {batch}, {logical_ranks} | {median([o[0] for o in ours]):.0f} "
        if torch:
            line += (f"| {median([t[0] for t in torch]):.0f} | {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f}) "
                     f"| {median([o[1] for o in ours]):.0f} | {median([t[1] for t in torch]):.0f} |")
        else:
            line += f"| not run | | {median([o[1] for o in ours]):.0f} | |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
