#!/usr/bin/env python3
"""How much faster more workers train: each worker has a quota of its own of a quarter of a processor, 1 to 8 of them.

    tests/bench/scaling.py [--bin build/release/bin] [--seconds 8] [--runs 3]

Strong: all workers together have the batch that one has alone. Weak: each further worker brings as many samples. What one worker
makes, times their number, is 1. Samples a second are those of `muster run`'s record as it grows, after some steps, seen from outside.
Workers of one machine move their gradients through memory, which is work of the same quota. Needs root, for the quotas.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "faults"))
import cgroup  # noqa: E402
from elastic import ENDLESS, Training, calm_step_seconds  # noqa: E402

WORKERS, SHARE = (1, 2, 4, 8), 0.25
COMMON = {"logicalRanks": 16, "checkpoint": {"path": "/unused", "everySteps": ENDLESS}}
DIGITS = {"train": {"idx": {"images": "data/digits-train-images.idx.gz", "labels": "data/digits-train-labels.idx.gz"}}}
TEXT = {"train": {"text": {"file": "data/shakespeare-train.txt"}}}
# Name: the training's fields, and samples of a step that one worker makes alone.
MODELS = {"MLP 64-4x1000-10": ({"model": {"mlp": {"hidden": [1000] * 4}}, "data": DIGITS}, 128),
          "GPT 4-4-128-64": ({"model": {"gpt": {"layers": 4, "heads": 4, "width": 128, "contextLength": 64}}, "data": TEXT,
                              "optimizer": {"adamw": {"learningRate": "0.003"}}}, 16)}


def measured(arguments, training, workers, batch):
    """Samples a second."""
    directory = tempfile.mkdtemp(prefix="muster-scaling-")
    run = Training(directory, arguments.bin, workers, SHARE, {**training, **COMMON, "batchSize": batch}, threads=1)
    try:
        run.start(120)
        return batch / calm_step_seconds(run, arguments.seconds)
    finally:
        run.close()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin", type=os.path.abspath)
    parser.add_argument("--seconds", type=float, default=8, help="of each run, after its first steps")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if not cgroup.available("cpu"):
        sys.exit("scaling.py: this machine's cgroups are not ours to make; workers need quotas of their own")
    print("| model | scaling | workers | samples/s (least..most) | of linear |\n|---|---|---|---|---|", flush=True)
    for name, (training, alone) in MODELS.items():
        for scaling in ("strong", "weak"):
            speeds = {workers: [] for workers in WORKERS}
            for _ in range(arguments.runs):
                for workers, found in speeds.items():
                    found.append(measured(arguments, training, workers, alone * (workers if scaling == "weak" else 1)))
            one = statistics.median(speeds[1])
            for workers, found in speeds.items():
                median = statistics.median(found)
                print(f"| {name} | {scaling} | {workers} | {median:.4g} ({min(found):.4g}..{max(found):.4g}) | "
                      f"{median / one / workers:.2f} |", flush=True)


if __name__ == "__main__":
    main()
