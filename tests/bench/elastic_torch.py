#!/usr/bin/env python3
"""The peer of `tests/bench/run elastic`: the same MLP and data in PyTorch DDP over gloo, elastic under torchrun.

Each rank writes a line `seconds step world pid` after each step. Every so many steps rank 0 saves a checkpoint, from which
all go on after a restart, with the samples of the step they go on at: whoever counts finds none lost.
"""

import argparse
import datetime
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH, WIDTHS, SEED = 64, (784, 256, 10), 7


def read_idx(path, header):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="directory with images.idx and labels.idx")
    parser.add_argument("--out", required=True)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=10, help="seconds that a collective may take")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Time for the others to start on the processor time they have; then a lost one is to be noticed soon.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=arguments.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    images = read_idx(os.path.join(arguments.data, "images.idx"), 16).view(-1, WIDTHS[0])
    labels = read_idx(os.path.join(arguments.data, "labels.idx"), 8).long()
    torch.manual_seed(SEED)
    network = torch.nn.Sequential(torch.nn.Linear(WIDTHS[0], WIDTHS[1]), torch.nn.ReLU(), torch.nn.Linear(*WIDTHS[1:]))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    checkpoint, step = os.path.join(arguments.out, "checkpoint.pt"), 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    per_epoch, order = len(labels) // BATCH, None
    with open(os.path.join(arguments.out, f"steps-{os.getpid()}"), "a", encoding="ascii") as log:
        while True:
            at = step % per_epoch
            if at == 0 or order is None:
                order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED + step // per_epoch))
            mine = order[at * BATCH:(at + 1) * BATCH][rank::world]
            outputs = model(images[mine].float() / 255)
            # DDP takes the mean over ranks; the loss is that over the whole batch.
            loss = torch.nn.functional.cross_entropy(outputs, labels[mine], reduction="sum") * world / BATCH
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            step += 1
            log.write(f"{time.monotonic():.6f} {step} {world} {os.getpid()}\n")
            log.flush()
            if rank == 0 and step % arguments.checkpoint_every == 0:
                torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                           checkpoint + ".new")
                os.rename(checkpoint + ".new", checkpoint)


if __name__ == "__main__":
    main()
