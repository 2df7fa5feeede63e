#!/usr/bin/env python3
"""The step that the operator predicts beside the step that real workers make, for several models and networks
(tests/bench/step_time_bench.cpp). Needs root: each worker has a network namespace of its own, gone with it.

    tests/bench/step_time.py --binary build/release/bench/step_time_bench [--seconds 6] [--only mlp-2m,cnn] [--out FILE]
                             [--kinds flat,racks,shallow,split] [--megabits 200] [--queue-kib 8192]

Links of 200 Mbit/s, 200 us one way within a rack and 500 us between racks; `racks` are two with an uplink a quarter of
their cards together. Ports have queues of 8 MiB, about netem's own limit of 1,000 packets; `shallow`: of 1 MiB, where TCP
loses packets.
"""

import argparse
import json
import statistics
import subprocess
import sys

MODELS = ("mlp-digits", "cnn", "gpt-tiny", "mlp-2m", "mlp-14m")
RACKS = ["--racks", "2", "--oversubscription", "4", "--uplink-latency-us", "300"]
KINDS = {"flat": ((2, 3, 4, 6, 8), []), "racks": ((4, 8), RACKS), "shallow": ((4, 8), ["--queue-kib", "1024"])}
SLOW = {"mlp-14m": {"flat": (2, 4, 8), "racks": (), "shallow": ()}}  # each step takes seconds
SECONDS_MOST = 500
# Models whose copies are split: what is predicted goes by what the workers themselves took to compute their parts.
SPLITS = (("gpt-tiny", 2, 1, "pipeline 2"), ("gpt-tiny", 4, 1, "pipeline 2"), ("gpt-tiny", 4, 1, "pipeline 4"),
          ("mlp-2m", 2, 1, "pipeline 2"), ("mlp-2m", 4, 1, "pipeline 2"), ("cnn", 2, 1, "pipeline 2"), ("cnn", 4, 1, "pipeline 2"),
          ("gpt-tiny", 2, 1, "tensor 2"), ("gpt-tiny", 2, 2, "tensor 2"), ("mlp-2m", 2, 1, "tensor 2"), ("mlp-2m", 2, 2, "tensor 2"),
          ("gpt-tiny", 2, 2, "tensor 2 pipeline 2"))


def measured(arguments, model, workers, options):
    command = [arguments.binary, "--model", model, "--workers", str(workers), "--seconds", str(arguments.seconds), *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS_MOST, check=False)
    if run.returncode != 0:
        sys.exit(f"step_time.py: {' '.join(command)}: exit code {run.returncode}: {run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def rows_of(arguments):
    """Model, kind of network, workers, and options."""
    models, kinds = arguments.only.split(","), arguments.kinds.split(",")
    for model in models:
        for kind, (counts, options) in KINDS.items():
            for workers in SLOW.get(model, {}).get(kind, counts) if kind in kinds else ():
                yield model, kind, workers, options
    for model, workers, processes, split in SPLITS if "split" in kinds else ():
        if model in models:
            words = split.split()
            options = [option for name, count in zip(words[::2], words[1::2]) for option in (f"--{name}", count)]
            network = f"flat, {split}" + (f", {processes} processes each" if processes > 1 else "")
            yield model, network, workers, ["--processes", str(processes), *options]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--seconds", type=float, default=6, help="of each run, after three steps; at least eight steps")
    parser.add_argument("--only", default=",".join(MODELS), help="models")
    parser.add_argument("--kinds", default=",".join((*KINDS, "split")))
    parser.add_argument("--out")
    parser.add_argument("--megabits", default="200", help="of a card; fewer leave a small machine more time for each packet")
    parser.add_argument("--queue-kib", default="8192", help="of a port, where it is not `shallow`")
    arguments = parser.parse_args()
    raw, errors, plain_errors = [], [], []
    print("| model | network | workers | steps | measured ms | predicted ms | error % | without blocks, sums, overlap % | lost packets |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    for model, kind, workers, options in rows_of(arguments):
        options = ["--megabits", arguments.megabits, *(options if "--queue-kib" in options else
                                                       ["--queue-kib", arguments.queue_kib, *options])]
        one = measured(arguments, model, workers, options)
        steps = one["ranks"][0]["steps"]
        for rank in one["ranks"]:  # one worker's steps tell all
            rank["steps"] = [round(step, 5) for step in steps] if rank is one["ranks"][0] else []
        raw.append({"network": kind, "workers": workers, "options": options, **one})
        mean = statistics.mean(steps)
        error = 100 * (one["predicted"]["step"] / mean - 1)
        plain = ""
        if kind != "shallow":
            errors.append(error)
        if "plainStep" in one["predicted"]:
            plain_error = 100 * (one["predicted"]["plainStep"] / mean - 1)
            plain = f"{plain_error:+.1f}"
            if kind != "shallow":
                plain_errors.append(plain_error)
        print(f"| {model} | {kind} | {workers} | {len(steps)} | {1e3 * mean:.1f} | {1e3 * one['predicted']['step']:.1f} | "
              f"{error:+.1f} | {plain} | {one['network']['dropped']} |", flush=True)
    if errors:
        sizes = sorted(map(abs, errors))
        print(f"without `shallow`: {sum(size <= 10 for size in sizes)} of {len(sizes)} within 10 %; mean {statistics.mean(sizes):.1f} %, "
              f"most {sizes[-1]:.1f} %")
    if plain_errors:
        print(f"without blocks, sums and overlap mean {statistics.mean(map(abs, plain_errors)):.1f} %, most {max(map(abs, plain_errors)):.1f} %")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(raw, file, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main()
