#!/usr/bin/env python3
"""The peer of mlp_bench: the same MLP, data and optimiser in PyTorch eager, one process.

Prints `images_per_second X peak_rss_mib Y`. Per step, as mlp_bench does: take the batch's images as bytes in a
shuffled order, divide by 255, forward, backward, SGD with momentum.
"""

import argparse
import resource
import time

import torch

IMAGES, WARM_UP = 4096, 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="784-256-10")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    widths = [int(w) for w in arguments.shape.split("-")]
    images = torch.randint(0, 256, (IMAGES, widths[0]), dtype=torch.uint8)
    labels = torch.randint(0, widths[-1], (IMAGES,))
    layers = []
    for i in range(len(widths) - 1):
        layers += [torch.nn.Linear(widths[i], widths[i + 1]), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps_per_epoch = IMAGES // arguments.batch
    step, start = 0, 0.0
    while True:
        if step % steps_per_epoch == 0:
            order = torch.randperm(IMAGES)
        at = step % steps_per_epoch * arguments.batch
        chosen = order[at:at + arguments.batch]
        loss = torch.nn.functional.cross_entropy(model(images[chosen].float() / 255), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # mlp_bench reports the loss of every step, too
        step += 1
        now = time.perf_counter()
        if step == WARM_UP:
            start = now
        if step > WARM_UP and now - start >= arguments.seconds:
            break
    rate = (step - WARM_UP) * arguments.batch / (now - start)
    print(f"images_per_second {rate:.0f} peak_rss_mib {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}")


if __name__ == "__main__":
    main()
