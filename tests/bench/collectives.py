#!/usr/bin/env python3
"""Our collectives beside Gloo's, between processes of this machine, in turn (tests/bench/collectives_{bench.cpp,torch.py}).

    tests/bench/collectives.py --binary build/release/bench/collectives_bench [--torch build/bench/venv/bin/python]
                               [--processes 2,4] [--rounds 7] [--out FILE]

Each process has one thread. `tcp` and `memory` are ours, over loopback and over memory that the two share.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cluster"))
from processes import free_ports  # noqa: E402

SIZES = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
OPERATIONS = ("all_reduce", "all_gather", "broadcast")


def run(commands):
    """What the first of the processes has printed: {(operation, bytes): seconds}."""
    processes = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL)
                 for rank, command in enumerate(commands)]
    try:
        out = processes[0].communicate(timeout=600)[0]
        codes = [process.wait(60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        sys.exit(f"collectives.py: exit codes {codes}")
    return {(one["operation"], one["bytes"]): one["seconds"] for one in map(json.loads, out.splitlines())}


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each operation and size")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    sizes = ",".join(map(str, SIZES))

    def ours(transport, processes):
        ports = ",".join(map(str, free_ports(processes)))
        return [[arguments.binary, str(rank), ports, "--bytes", sizes, "--seconds", str(arguments.seconds),
                 "--transport", transport] for rank in range(processes)]

    def gloo(processes):
        port = str(free_ports(1)[0])
        return [[arguments.torch, os.path.join(HERE, "collectives_torch.py"), str(rank), str(processes), port, sizes,
                 str(arguments.seconds)] for rank in range(processes)]

    raw = []
    for processes in map(int, arguments.processes.split(",")):
        peers = {"tcp": lambda p: ours("tcp", p), "memory": lambda p: ours("memory", p)}
        if arguments.torch:
            peers["gloo"] = gloo
        taken = {name: [] for name in peers}
        for _ in range(arguments.rounds):
            for name, commands in peers.items():
                taken[name].append(run(commands(processes)))
        print(f"P = {processes}, one thread each; microseconds of a call, median of {arguments.rounds} runs"
              + ("; in brackets: times Gloo's" if arguments.torch else ""))
        for operation in OPERATIONS:
            for size in SIZES:
                middle = {name: statistics.median(one[operation, size] for one in runs) for name, runs in taken.items()}
                raw.append({"processes": processes, "operation": operation, "bytes": size,
                            **{name: [one[operation, size] for one in runs] for name, runs in taken.items()}})
                print(f"{operation:10} {size_text(size):>8}  " + "  ".join(
                    f"{name} {1e6 * seconds:9.0f}" + (f" ({middle['gloo'] / seconds:5.2f})" if "gloo" in middle and name != "gloo" else "")
                    for name, seconds in middle.items()), flush=True)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=1)


if __name__ == "__main__":
    main()
