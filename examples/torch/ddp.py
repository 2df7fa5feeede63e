#!/usr/bin/env python3
"""A stock PyTorch program: a small network trained with DistributedDataParallel over gloo.

It knows where it is from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as PyTorch defines them, and from nothing else:

    python3 ddp.py                  each worker is one process
    torchrun ddp.py                 torchrun starts the worker's processes and gives each its RANK
"""

import argparse
import datetime
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=40, help="optimiser updates")
    parser.add_argument("--batch", type=int, default=64, help="samples of each process in a step")
    return parser.parse_args()


def say(line):
    """Writes the line with its end in one piece. torchrun's processes share one output and run without a buffer, where
    print() writes the end by itself, and two lines become one."""
    print(line + "\n", end="", flush=True)


def batches(rank, size):
    """Endless synthetic samples, others on each rank: the sign of every other feature decides the class."""
    generator = torch.Generator().manual_seed(1000 + rank)
    while True:
        features = torch.randn(size, 32, generator=generator)
        yield features, (features[:, ::2].sum(dim=1) > 0).long()


def main():
    arguments = parse()
    torch.manual_seed(7)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=3))
    rank, world = dist.get_rank(), dist.get_world_size()
    say(f"rank {rank} of {world}: local rank {os.environ.get('LOCAL_RANK', '0')}, master {os.environ['MASTER_ADDR']}")

    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = loss = None
    for step, (features, classes) in zip(range(arguments.steps), batches(rank, arguments.batch)):
        loss = torch.nn.functional.cross_entropy(model(features), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = first if first is not None else loss.detach()
        if step % 10 == 0 or step + 1 == arguments.steps:
            say(f"rank {rank} step {step}: loss {loss.item():.4f}")

    mean = torch.stack([first, loss.detach()])
    dist.all_reduce(mean)
    before, after = (mean / world).tolist()
    assert after < before, f"the mean loss went from {before:.4f} to {after:.4f}"
    least = torch.cat([mean, *[parameter.detach().flatten() for parameter in model.parameters()]])
    most = least.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    assert torch.equal(least, most), f"loss or model differ between ranks, by up to {(most - least).max():g}"
    say(f"rank {rank}: all {world} ranks agree, mean loss {before:.4f} -> {after:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
