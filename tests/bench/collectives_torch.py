#!/usr/bin/env python3
"""The peer of collectives_bench: the same collectives by Gloo, under PyTorch. One process of several.

    collectives_torch.py RANK PROCESSES PORT BYTES,BYTES,... SECONDS

Rank 0 prints what collectives_bench does.
"""

import datetime
import json
import sys
import time

import torch
import torch.distributed as dist

WARM_UP_CALLS, CALLS_LEAST = 3, 5


def measure(operation, size, seconds, call):
    for turn in range(WARM_UP_CALLS):
        call(turn)
    first = time.monotonic()
    call(0)
    calls = torch.tensor([max(CALLS_LEAST, int(seconds / (time.monotonic() - first)))])
    dist.broadcast(calls, 0)
    dist.barrier()
    start = time.monotonic()
    for turn in range(int(calls)):
        call(turn)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"operation": operation, "bytes": size, "seconds": (time.monotonic() - start) / int(calls)}), flush=True)


def main():
    rank, processes, port, sizes, seconds = sys.argv[1:]
    processes, seconds = int(processes), float(seconds)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=processes,
                            timeout=datetime.timedelta(seconds=120))
    for size in map(int, sizes.split(",")):
        values = torch.zeros(size // 4)
        pieces = list(torch.zeros(size // 4 // processes * processes).chunk(processes))
        own = pieces[int(rank)].clone()
        measure("all_reduce", size, seconds, lambda _: dist.all_reduce(values))
        measure("all_gather", size, seconds, lambda _: dist.all_gather(pieces, own))
        measure("broadcast", size, seconds, lambda turn: dist.broadcast(values, turn % processes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
