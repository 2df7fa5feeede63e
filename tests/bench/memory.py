#!/usr/bin/env python3
"""Peak memory of a worker, and its speed, where a step is computed in passes and activations are computed again.

One worker, 2 threads, a GPT on the text of examples/; in stages and slices a process of one thread each, of which the largest
counts. What is foreseen has the sentinel's 11 MiB and a 32nd of all in it, without which it is held to the peak of the trainer: it
must be within 5 % of it. The rows in turn, medians of --runs. All rows must end with the same model.
"""

import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

SHAPE = ["model.gpt.layers=12", "model.gpt.heads=4", "model.gpt.contextLength=512", "batchSize=16",
         "logicalRanks=16", "steps=4", "optimizer.schedule=null"]
ROWS = {"all at once": [],
        "microBatchSize: 4": ["microBatchSize=4"],
        "microBatchSize: 1": ["microBatchSize=1"],
        "Recomputed": ["activations=Recomputed"],
        "Recomputed, microBatchSize: 4": ["activations=Recomputed", "microBatchSize=4"],
        "Recomputed, microBatchSize: 1": ["activations=Recomputed", "microBatchSize=1"]}
STAGES = ["worker.processes={0}", "worker.threads=1", "training.parallelism.pipeline={0}", "training.microBatchSize=4"]
ROWS |= {f"{stages} stages, microBatchSize: 4": [field.format(stages) for field in STAGES] for stages in (2, 4)}
SLICES = ["worker.processes={0}", "worker.threads=1", "training.parallelism.tensor={0}", "training.activations={1}",
          "training.microBatchSize={2}"]
ROWS |= {f"{slices} slices, {activations}, microBatchSize: {rows}": [field.format(slices, activations, rows) for field in SLICES]
         for slices in (2, 4) for activations in ("Kept", "Recomputed") for rows in (16, 4)}
COPIES = ["worker.processes={0}", "worker.threads=1", "training.parallelism.pipeline={1}", "training.microBatchSize=1"]
ROWS |= {f"4 copies{stages}, {state}": [*(field.format(processes, parts) for field in COPIES), f"training.optimizerState={state}"]
         for processes, parts, stages in ((4, 1, ""), (8, 2, " of 2 stages")) for state in ("Replicated", "Sharded")}
MOST_WRONG = 0.05
SENTINEL_MIB = 11
# Peak of the largest of a command's processes, those included that it has waited for: the trainer's.
PEAK = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")


def one(muster, fields):
    """(peak MiB, MiB foreseen, samples a second, SHA-256 of the model) of one training."""
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        manifest = os.path.join(directory, "gpt.yaml")
        with open("examples/gpt-tiny.yaml", encoding="utf-8") as example, open(manifest, "w", encoding="utf-8") as file:
            # Without the test, which would take longer than the training.
            file.writelines(line.replace("data/", os.path.abspath("examples/data") + "/") for line in example
                            if not line.strip().startswith("test:"))
        command = [muster, "run", manifest, "--output", out, "--quiet"]
        for field in ["worker.count=1", "worker.max=1", "worker.threads=2", *SHAPE, *fields]:
            command += ["--set", "spec." + (field if field.startswith(("worker.", "training.")) else "training." + field)]
        peak = subprocess.run([sys.executable, "-c", PEAK, *command], check=True, capture_output=True, text=True).stdout
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        foreseen = 0
        for log in glob.glob(os.path.join(out, "logs", "*")):
            with open(log, encoding="utf-8") as file:
                foreseen = max([foreseen, *(int(needs) for needs in re.findall(r'"needsBytes":([0-9]+)', file.read()))])
        return int(peak) / 1024, foreseen / (1 << 20), report["samplesPerSecond"], report["sha256"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--muster", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--width", type=int, default=128, help="of the model")
    parser.add_argument("--only", default="", help="rows whose names have this; 'all at once' is among them always")
    arguments = parser.parse_args()
    taken = {name: [] for name in ROWS if arguments.only in name or name == "all at once"}
    for _ in range(arguments.runs):
        for name, runs in taken.items():
            runs.append(one(arguments.muster, [f"model.gpt.width={arguments.width}", *ROWS[name]]))
    models = {model for runs in taken.values() for *_, model in runs}
    plain = statistics.median(speed for _, _, speed, _ in taken["all at once"])
    wrong = []
    for name, runs in taken.items():
        peak, foreseen, speed = (statistics.median(values) for values in list(zip(*runs))[:3])
        ratio = (foreseen * 32 / 33 - SENTINEL_MIB) / peak
        if abs(ratio - 1) > MOST_WRONG:
            wrong.append(name)
        print(f"{name}: {peak:.0f} MiB, {foreseen:.0f} foreseen ({ratio:.3f}), {speed:.2f} samples/s, "
              f"{speed / plain:.2f} times", flush=True)
    print("the same model" if len(models) == 1 else f"{len(models)} models")
    if wrong:
        print(f"foreseen more than {MOST_WRONG:.0%} wrong: " + "; ".join(wrong))
    return 0 if len(models) == 1 and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
