#!/usr/bin/env python3
"""Training of an MLP or a GPT beside PyTorch, interleaved A/B, medians of 7 runs.

    tests/bench/training.py mlp|gpt --binary build/release/bench/mlp_bench [--torch PYTHON] [--llm-c DIR]

Each program trains one shape on made-up data and prints a line
`images_per_second X peak_rss_mib Y`, a gpt tokens_per_second; shapes and options are the same for all. A GPT is trained in
fp32 and in bfloat16, and beside PyTorch eager also by torch.compile, which compiles before what is measured, and in fp32 by
llm.c's program for processors, built from its sources in DIR. Rows with options of their own are of ours alone.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Of each: shape, batch, logical ranks. A gpt's shape: layers, heads, width, context and, where not 256, tokens.
SHAPES = {"mlp": [("784-256-10", 64, 8), ("784-500-500-10", 512, 8)],
          "gpt": [("4-4-128-64", 12, 4), ("6-6-384-256", 8, 4), ("12-12-768-64", 4, 4),
                  ("12-12-768-64-50257", 4, 4)]}
ALONE = {"mlp": [("784-256-10", 64, 8, ["--hash-every", "1"]), ("784-10", 512, 8, ["--cnn", "32-64"])], "gpt": []}
PRECISIONS = {"mlp": ["Float32"], "gpt": ["Float32", "BFloat16"]}
UNITS = {"mlp": "images", "gpt": "tokens"}
RUNS = 7


def one(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}  # llm.c takes no other word for it
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    match = re.search(r"(?:images|tokens)_per_second ([0-9.]+) peak_rss_mib ([0-9.]+)", out)
    if not match:
        raise SystemExit(f"{' '.join(command)} printed no figures:\n{out}")
    return float(match.group(1)), float(match.group(2))


def build_llm_c(sources, directory):
    """Path of gpt_llm_c, with the flags of llm.c's own Makefile."""
    program = os.path.join(directory, "gpt_llm_c")
    subprocess.run([os.environ.get("CC", "cc"), "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-Wno-unused-result", "-I", sources,
                    os.path.join(HERE, "gpt_llm_c.c"), "-lm", "-o", program], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--shapes", help="of these alone, with commas between")
    parser.add_argument("--torch", help="python of an environment with PyTorch")
    parser.add_argument("--llm-c", metavar="DIR", help="sources of llm.c")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if arguments.llm_c:
            arguments.llm_c = build_llm_c(arguments.llm_c, directory)
        print_table(arguments)


def print_table(arguments):
    unit = UNITS[arguments.model]
    print(f"| shape | batch, L | precision | ours {unit}/s | PyTorch eager {unit}/s | ratio (least..most) | torch.compile {unit}/s "
          f"| llm.c {unit}/s | ours MiB | PyTorch MiB | llm.c MiB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for shape, batch, logical_ranks, own in [*((*row, []) for row in SHAPES[arguments.model]), *ALONE[arguments.model]]:
        if arguments.shapes and shape not in arguments.shapes.split(","):
            continue
        for precision in PRECISIONS[arguments.model]:
            options = ["--shape", shape, "--batch", str(batch), "--threads", str(arguments.threads)]
            if len(PRECISIONS[arguments.model]) > 1:
                options += ["--precision", precision]
            cells = [" ".join([shape, *own]), f"{batch}, {logical_ranks}", precision]
            print(measured(arguments, cells, options, [*own, "--logical-ranks", str(logical_ranks)], not own), flush=True)


def measured(arguments, cells, options, own, has_peers):
    """A line of the table. `own`: options of ours alone."""
    commands = {"ours": [arguments.binary, *options, *own]}
    if arguments.torch and has_peers:
        commands["eager"] = [arguments.torch, os.path.join(HERE, f"{arguments.model}_torch.py"), *options]
        if arguments.model == "gpt":
            commands["compiled"] = [*commands["eager"], "--compile"]
    if arguments.llm_c and arguments.model == "gpt" and cells[-1] == "Float32":
        commands["llm.c"] = [arguments.llm_c, *options]
    figures = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            figures[name].append(one(command, arguments.threads))

    def median(name, which):
        return f"{statistics.median(run[which] for run in figures[name]):.0f}" if name in figures else "not run"

    ratio = ""
    if "eager" in figures:
        ratios = [ours[0] / torch[0] for ours, torch in zip(figures["ours"], figures["eager"])]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
    cells += [median("ours", 0), median("eager", 0), ratio, median("compiled", 0), median("llm.c", 0), median("ours", 1),
              median("eager", 1), median("llm.c", 1)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
