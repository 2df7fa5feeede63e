#!/usr/bin/env python3
"""The operator's step time (operator/core/step_time: the slowest link of an all-to-all exchange) on the step times that Sia's
authors measured on AWS by placement, beside a plain alpha-beta row: five parts of the placements are held out in turn.

    tests/bench/step_time_sia.py --data DIR [--models bert,yolov3,...]

DIR has MODEL.csv from sia-simulator/traces/MODEL/placements-aws.csv of github.com/siasosp23/artifacts at commit
aaf7a0de7b6cb5eab06ea020467ede5d2fd18e70. The repository names no licence for them, so they are not kept here. A
placement 1123 is GPUs by node. What one GPU alone takes for a batch is taken from its row, as the operator takes computing from
the workers, and never held out; all else is fitted per model by the least mean error. `rank`: of two placements of as many GPUs
with the same batch whose steps differ by more than a tenth, how often the slower one is foretold; who says the same of both is
right about half of them.
"""

import argparse
import collections
import csv
import itertools
import os
import random
import statistics

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
PARTS, ROUNDS = 5, (250, 200)
APART = 1.1


def plain(terms, compute, gpus):
    """Latency a GPU, and the bytes of a ring, within a node or between nodes."""
    alpha_local, alpha, local, wire = map(abs, terms)
    n = sum(gpus)
    if n == 1:
        return compute
    within = len(gpus) == 1
    return compute + (alpha_local if within else alpha) * (n - 1) + 2 * (n - 1) / n * (local if within else wire)


def ours(terms, compute, gpus):
    """step_time: 2 (latency + slowest link), less what is hidden behind computing; GPUs of a node slow each other's computing."""
    alpha_local, alpha, local, wire, shared, hidden = map(abs, terms)
    n, most = sum(gpus), max(gpus)
    compute *= 1 + shared * (most - 1)
    if n == 1:
        return compute
    load = (most - 1) / n * local
    if len(gpus) == 1:
        exchange = alpha_local + 2 * load
    else:
        load = max(load, max(x * (n - x) for x in gpus) / n * wire)
        exchange = alpha + alpha_local * (len(gpus) - 2) + 2 * load
    return compute + max(0.0, exchange - hidden * compute)


def least(cost, start, rounds):
    """Nelder and Mead's simplex."""
    size = len(start)
    points = [list(start)] + [[v + (0.5 * abs(v) + 1e-4 if j == i else 0) for j, v in enumerate(start)] for i in range(size)]
    values = [cost(point) for point in points]
    for _ in range(rounds):
        order = sorted(range(size + 1), key=values.__getitem__)
        points, values = [points[i] for i in order], [values[i] for i in order]
        middle = [sum(point[j] for point in points[:-1]) / size for j in range(size)]

        def at(part):
            return [m + part * (worst - m) for m, worst in zip(middle, points[-1])]

        point = at(-1)
        value = cost(point)
        if value < values[0]:
            further = at(-2)
            beyond = cost(further)
            points[-1], values[-1] = (further, beyond) if beyond < value else (point, value)
        elif value < values[-2]:
            points[-1], values[-1] = point, value
        else:
            point = at(0.5)
            value = cost(point)
            if value < values[-1]:
                points[-1], values[-1] = point, value
            else:
                for i in range(1, size + 1):
                    points[i] = [(a + b) / 2 for a, b in zip(points[i], points[0])]
                    values[i] = cost(points[i])
    best = min(range(size + 1), key=values.__getitem__)
    return points[best], values[best]


def alone(rows):
    """Seconds of one GPU by batch; between two that were measured, on the line through them."""
    known = {batch: step for name, _, batch, step in rows if name == "1"}

    def seconds(batch):
        if batch in known:
            return known[batch]
        below, above = [b for b in known if b < batch], [b for b in known if b > batch]
        low, high = (max(below), min(above)) if below and above else sorted(sorted(known, key=lambda b: abs(b - batch))[:2])
        return known[low] + (known[high] - known[low]) * (batch - low) / (high - low)

    return seconds


def rank_accuracy(foretold):
    """Of (GPUs, batch, step, foretold step)."""
    alike = collections.defaultdict(list)
    for gpus, batch, step, told in foretold:
        alike[sum(gpus), batch].append((step, told))
    right = pairs = 0
    for group in alike.values():
        for (step, told), (other, told_other) in itertools.combinations(group, 2):
            if max(step, other) <= APART * min(step, other):
                continue
            pairs += 1
            right += 0.5 if told == told_other else (step < other) == (told < told_other)
    return right / pairs if pairs else float("nan")


def foretell(rows, formula, starts):
    """(GPUs, batch, step, foretold step) of every row with several GPUs, each by what the other parts teach."""
    compute = alone(rows)
    names = sorted({row[0] for row in rows} - {"1"})
    random.Random(1).shuffle(names)
    foretold = []
    for part in range(PARTS):
        held = set(names[part::PARTS])
        learned = [(compute(batch), gpus, step) for name, gpus, batch, step in rows if name not in held]

        def cost(terms):
            return sum(abs(formula(terms, c, gpus) / step - 1) for c, gpus, step in learned) / len(learned)

        found = []
        for start in starts:
            terms = start
            for rounds in ROUNDS:
                terms, value = least(cost, terms, rounds)
            found.append((value, terms))
        terms = min(found)[1]
        foretold += [(gpus, batch, step, formula(terms, compute(batch), gpus)) for name, gpus, batch, step in rows if name in held]
    return foretold


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    print("| model | rows held out in turn | alpha-beta: mean % | p95 % | rank % | step_time: mean % | p95 % | rank % |")
    print("|---|---|---|---|---|---|---|---|")
    for model in arguments.models.split(","):
        with open(os.path.join(arguments.data, f"{model}.csv"), encoding="utf-8") as file:
            rows = [(row["placement"], [int(count) for count in row["placement"]], int(row["local_bsz"]), float(row["step_time"]))
                    for row in csv.DictReader(file)]
        part = 0.1 * statistics.median(row[3] for row in rows)
        cells = []
        for formula, more in ((plain, []), (ours, [0.05, 0.1])):
            starts = [[size * v for v in [part, part, part, 3 * part] + more] for size in (1, 3)]
            foretold = foretell(rows, formula, starts)
            errors = sorted(abs(told / step - 1) for _, _, step, told in foretold)
            cells += [f"{100 * statistics.mean(errors):.1f}", f"{100 * errors[int(0.95 * len(errors))]:.0f}",
                      f"{100 * rank_accuracy(foretold):.0f}"]
        print(f"| {model} | {len(errors)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
