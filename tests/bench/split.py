#!/usr/bin/env python3
"""What it costs to split a model between two processes of one machine: samples a second of `muster run`, in turn.

    tests/bench/split.py --muster build/release/bin/muster [--runs 7]

Two processes with a thread each share the batch (data), have stages of one copy, with micro-batches of several sizes, or slices
of its layers; beside them one process with two threads. All must come to the same model, bit for bit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MANIFEST = "examples/gpt-tiny.yaml"
COMMON = ["worker.count=1", "worker.min=1", "worker.max=1", "worker.resources.cpu=2", "training.data.test=null", "training.checkpoint=null"]
# Layers-heads-width-context: fields beside the manifest's, batch size, micro-batches to try.
SHAPES = {"4-4-128-64": (["training.steps=100"], 16, (1, 2, 4, 8, 16)),
          "6-6-384-256": (["training.steps=6", "training.optimizer.schedule=null", "training.batchSize=8",
                           "training.logicalRanks=8", "training.model.gpt.layers=6", "training.model.gpt.heads=6",
                           "training.model.gpt.width=384", "training.model.gpt.contextLength=256"],
                          8, (1, 2, 4, 8))}
TWO = ["worker.processes=2", "worker.threads=1"]


def ways(batch, micro_batches):
    """Fields by the name of a way to train."""
    pipeline = [*TWO, "training.parallelism.pipeline=2"]
    chosen = {f"pipeline 2, {count} micro-batches": [*pipeline, f"training.microBatchSize={batch // count}"] for count in micro_batches}
    return {"one process, 2 threads": ["worker.processes=1", "worker.threads=2"], "data 2": TWO,
            "tensor 2": [*TWO, "training.parallelism.tensor=2"], "pipeline 2": pipeline, **chosen}


def one(muster, fields):
    """Samples a second, and the model's hash."""
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        command = [muster, "run", MANIFEST, "--quiet", "--output", out]
        for field in (*COMMON, *fields):
            command += ["--set", f"spec.{field}"]
        run = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        if run.returncode != 0:
            sys.exit(f"split.py: {' '.join(command)}: exit code {run.returncode}: {run.stdout[-2000:]}")
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        return report["samplesPerSecond"], report["sha256"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--muster", required=True)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    print("| shape | way | samples/s (least..most) | to data 2 |\n|---|---|---|---|", flush=True)
    for shape, (fields, batch, micro_batches) in SHAPES.items():
        measured, models = {}, set()
        for _ in range(arguments.runs):
            for way, of_way in ways(batch, micro_batches).items():
                speed, model = one(arguments.muster, [*fields, *of_way])
                measured.setdefault(way, []).append(speed)
                models.add(model)
        if len(models) != 1:
            sys.exit(f"split.py: {shape}: {len(models)} models; must be one")
        of_data = statistics.median(measured["data 2"])
        for way, speeds in measured.items():
            median = statistics.median(speeds)
            print(f"| {shape} | {way} | {median:.4g} ({min(speeds):.4g}..{max(speeds):.4g}) | {median / of_data:.2f} |")


if __name__ == "__main__":
    main()
