#!/usr/bin/env python3
"""How far a gang's place is from the best there is, on clusters too large to list every place: 40 to 64 hosts.

    tests/bench/optimality.py INSTANCES [--answers FILE] [--seconds N] [--deadline N]

INSTANCES is what optimality_bench --large writes. HiGHS (PyPI's highspy) proves, of each: the lowest domain's fewest
branches and leaf domains, and the least cost among places with these: the step beside others' traffic, longer by the
part that others' steps grow. The cost is counted here once more from what is told of links and gangs, and has to be what
the program told of its own place.

FILE keeps an answer a line as soon as it is there, so that a run that was ended goes on where it was. The least cost does
not depend on the search that is measured: an answer holds for every build that is asked about the same gang. One that was
not proven before the deadline is sought again only with a later one; its gap is between that to the best place known and
that to the bound.

What optimality_bench --listed writes has the least cost by brute force, too. There HiGHS knows of no place when it
begins, and has to find the same rank and cost.

What makes it linear: pods of a host, a leaf domain or a branch are a choice of one number each, so that what its link
takes is a constant by choice. The step of the others depends on ours, which the slowest link decides: ranges of its time
are looked at, each with what is least at either end, and halved until none can hold anything better. A range of one value
is exact. Proven means that nothing costs less by more than a millionth. Of room broken up and of hosts nothing is proven.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import statistics
import sys
import time

import highspy
import numpy

SLACK = 1e-6


class Program:
    """A mixed integer program, row by row."""

    def __init__(self):
        self.cost, self.upper, self.integer, self.rows = [], [], [], []

    def add(self, upper, cost=0.0, is_integer=True):
        self.cost.append(cost)
        self.upper.append(upper)
        self.integer.append(is_integer)
        return len(self.cost) - 1

    def row(self, low, terms, high):
        self.rows.append((low, terms, high))

    def solve(self, seconds):
        """(state, bound, values): "none" where there is nothing, "best", or "late" with what is proven."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.rows)
        lp.col_cost_ = numpy.array(self.cost, dtype=float)
        lp.col_lower_ = numpy.zeros(len(self.cost))
        lp.col_upper_ = numpy.array(self.upper, dtype=float)
        lp.row_lower_ = numpy.array([row[0] for row in self.rows], dtype=float)
        lp.row_upper_ = numpy.array([row[2] for row in self.rows], dtype=float)
        lp.integrality_ = [highspy.HighsVarType.kInteger if one else highspy.HighsVarType.kContinuous for one in self.integer]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = numpy.cumsum([0] + [len(row[1]) for row in self.rows]).astype(numpy.int32)
        lp.a_matrix_.index_ = numpy.array([column for row in self.rows for column, _ in row[1]], dtype=numpy.int32)
        lp.a_matrix_.value_ = numpy.array([value for row in self.rows for _, value in row[1]], dtype=float)
        solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 1),
                              ("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-9), ("mip_feasibility_tolerance", 1e-9)):
            solver.setOptionValue(option, value)
        # HiGHS's own limit is of the clock, which also counts what others compute.
        end = time.process_time() + seconds
        solver.cbMipInterrupt += lambda event: event.interrupt(time.process_time() > end)
        solver.passModel(lp)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return "none", float("inf"), None
        info = solver.getInfo()
        found = info.primal_solution_status == 2
        values = list(solver.getSolution().col_value) if found else None
        if status == highspy.HighsModelStatus.kOptimal:
            return "best", info.objective_function_value, values
        return "late", max(0.0, info.mip_dual_bound), values


class Instance:
    def __init__(self, told):
        self.__dict__.update(told)
        self.cost_told = self.__dict__.pop("cost")
        self.part = self.bytes / self.pods
        self.parent = [domain["parent"] for domain in self.domains]
        self.on_link = collections.defaultdict(list)
        for number, sender in enumerate(self.senders):
            sender["flow_on"] = {link: pairs for link, pairs in sender["flows"]}
            for link in sender["flow_on"]:
                self.on_link[link].append(number)
        for sender in self.senders:
            sender["before"] = max([sender["local"]] + [self.load_of(sender, link, 0, 0) for link in sender["flow_on"]])
        self.free = [0] * len(self.domains)
        for node, room in enumerate(self.room):
            for domain in self.above(node):
                self.free[domain] += room

    def above(self, node, end=-1):
        """Domains that hold a node, from its leaf domain up to what lies under `end`."""
        at = self.leaf_of_node[node]
        while at not in (end, -1):
            yield at
            at = self.parent[at]

    def others_on(self, link, without=None):
        """Bytes a second, and flows by the part of the time."""
        used = flows = 0.0
        for number in self.on_link[link]:
            other = self.senders[number]
            if other is without:
                continue
            used += min(self.capacities[link], 2 * other["bytes"] * other["flow_on"][link] / other["step"])
            flows += other["duty"] * other["flow_on"][link]
        return used, flows

    def seconds(self, link, part, flows, used, others):
        by_flows = part * (flows + others) / self.capacities[link]
        left = self.capacities[link] - used
        return min(by_flows, part * flows / left) if left > 0 else by_flows

    def load_of(self, sender, link, ours_used, ours_flows):
        used, flows = self.others_on(link, without=sender)
        return self.seconds(link, sender["bytes"], sender["flow_on"][link], used + ours_used, flows + ours_flows)

    def own_load(self, link, pods):
        flows = pods * (self.pods - pods)
        return self.seconds(link, self.part, flows, *self.others_on(link)) if flows else 0.0

    def host_load(self, top, node, pods):
        if pods == 0:
            return 0.0
        local = (pods - 1) * self.part / self.local_rate
        if self.domains[top]["fast"]:
            return max(local, pods * (self.pods - pods) * self.part / self.domains[top]["host_rate"])
        return max(local, self.own_load(len(self.domains) + node, pods))

    def step(self, top, load):
        exchange = 2 * (self.domains[top]["latency"] + load)
        return self.compute + exchange, exchange

    def growth(self, sender, link, pods, rate_step, duty):
        """Workers' steps that one of the others loses where so many of ours stand behind a link it uses."""
        flows = pods * (self.pods - pods)
        load = self.load_of(sender, link, min(self.capacities[link], 2 * self.part * flows / rate_step), duty * flows)
        before = sender["latency"] + sender["before"]
        return sender["pods"] * sender["duty"] * max(0.0, (sender["latency"] + load) / before - 1)

    def cost(self, top, pods_on):
        """Of a place, by node."""
        if len(pods_on) == 1:
            return self.compute + 2 * (self.local_latency + (self.pods - 1) * self.part / self.local_rate)
        behind = collections.Counter()
        load = 0.0
        for node, pods in pods_on.items():
            load = max(load, self.host_load(top, node, pods))
            if not self.domains[top]["fast"]:
                behind[len(self.domains) + node] += pods
                for domain in self.above(node, top):
                    behind[domain] += pods
        for link, pods in behind.items():
            load = max(load, self.own_load(link, pods))
        step, exchange = self.step(top, load)
        lost = collections.Counter()
        for link, pods in behind.items():
            for number in self.on_link[link]:
                grown = self.growth(self.senders[number], link, pods, step, exchange / step)
                lost[number] = max(lost[number], grown)
        return step * (1 + sum(lost.values()) / self.pods)


def candidates(one):
    """The lowest domains that hold all."""
    fit = [i for i, domain in enumerate(one.domains) if domain["allowed"] and one.free[i] >= one.pods]
    lowest = min(one.domains[i]["height"] for i in fit)
    return [i for i in fit if one.domains[i]["height"] == lowest]


def branches_and_leaves(one, top, seconds):
    if one.domains[top]["height"] == 0:
        return 1, 1
    leaves = sorted({one.leaf_of_node[n] for n, room in enumerate(one.room) if room and top in one.above(n)})
    branch = {}
    for leaf in leaves:
        at = leaf
        while one.parent[at] != top:
            at = one.parent[at]
        branch[leaf] = at

    def least(counts_branches, branches):
        program = Program()
        of_branch = {b: program.add(1, 1.0 if counts_branches else 0.0) for b in sorted(set(branch.values()))}
        of_leaf = {leaf: program.add(1, 0.0 if counts_branches else 1.0) for leaf in leaves}
        program.row(one.pods, [(of_leaf[leaf], one.free[leaf]) for leaf in leaves], highspy.kHighsInf)
        for leaf in leaves:
            program.row(-highspy.kHighsInf, [(of_leaf[leaf], 1), (of_branch[branch[leaf]], -1)], 0)
        if not counts_branches:
            program.row(branches, [(column, 1) for column in of_branch.values()], branches)
        state, value, _ = program.solve(seconds)
        assert state == "best", state
        return round(value)

    branches = least(True, 0)
    return branches, least(False, branches)


class Choices:
    """Of one domain: what pods may stand behind each link, and what that takes."""

    def __init__(self, one, top, branches, leaves):
        self.one, self.top, self.branches, self.leaves = one, top, branches, leaves
        self.nodes = [n for n, room in enumerate(one.room) if room and top in one.above(n)]
        kinds = collections.defaultdict(list)
        self.is_fast = one.domains[top]["fast"]
        for node in self.nodes:
            shared = not self.is_fast and one.on_link[len(one.domains) + node]
            kinds[(one.leaf_of_node[node], one.room[node], node if shared else -1)].append(node)
        self.kinds = [(leaf, nodes) for (leaf, _, _), nodes in sorted(kinds.items())]
        self.inner = sorted({domain for node in self.nodes for domain in one.above(node, top)})
        # By kind, then by domain: the load by pods.
        self.host_loads = [[one.host_load(top, nodes[0], k) for k in range(min(one.room[nodes[0]], one.pods - 1) + 1)]
                           for _, nodes in self.kinds]
        self.loads = {d: [one.own_load(d, k) for k in range(min(one.free[d], one.pods) + 1)] for d in self.inner}

    def values(self):
        """Every load that the slowest link can have."""
        values = sorted({load for loads in self.host_loads + list(self.loads.values()) for load in loads})
        kept = []
        for value in values:
            if not kept or value > kept[-1] * (1 + 1e-12) + 1e-15:
                kept.append(value)
        return kept

    def solve(self, above, most, seconds):
        """The least that others lose, where the slowest link takes longer than `above` and at most `most`, counted with
        what is least at either end; None: no such place. With a place that has it."""
        one, program = self.one, Program()
        limit = most * (1 + 1e-9) + 1e-15
        slowest = []

        def choose(loads, count):
            columns = [program.add(count if load <= limit else 0) for load in loads]
            program.row(count, [(column, 1) for column in columns], count)
            slowest.extend((column, 1) for column, load in zip(columns, loads) if load > above * (1 + 1e-9) + 1e-15)
            return columns

        hosts = [choose(loads, len(nodes)) for (_, nodes), loads in zip(self.kinds, self.host_loads)]
        inner = {domain: choose(self.loads[domain], 1) for domain in self.inner}
        sums = collections.defaultdict(list)
        for (leaf, _), columns in zip(self.kinds, hosts):
            sums[leaf] += [(column, k) for k, column in enumerate(columns) if k]
        for domain, columns in inner.items():
            sums[one.parent[domain]] += [(column, k) for k, column in enumerate(columns) if k]
        for domain, terms in sums.items():
            if domain == self.top:
                program.row(one.pods, terms, one.pods)
            else:
                program.row(0, terms + [(column, -k) for k, column in enumerate(inner[domain]) if k], 0)
        if above >= 0:
            if not slowest:
                return None
            program.row(1, slowest, highspy.kHighsInf)

        def unused(which):
            return [(inner[domain][0], 1) for domain in which]

        if one.domains[self.top]["height"] > 0:
            under = [domain for domain in self.inner if one.parent[domain] == self.top]
            program.row(len(under) - self.branches, unused(under), len(under) - self.branches)
            ends = [domain for domain in self.inner if one.domains[domain]["height"] == 0]
            program.row(len(ends) - self.leaves, unused(ends), len(ends) - self.leaves)
        self.add_others(program, hosts, inner, above, most)
        state, bound, values = program.solve(seconds)
        if state == "none":
            return None
        return state, max(0.0, bound), self.place(hosts, values) if values else None

    def add_others(self, program, hosts, inner, above, most):
        if self.is_fast:
            return
        one = self.one
        # Rates are least where our step is longest, flows where it is shortest.
        longest, _ = one.step(self.top, most)
        shortest, exchange = one.step(self.top, max(0.0, above))
        lost = [None] * len(one.senders)
        links = [(domain, columns) for domain, columns in inner.items()]
        links += [(len(one.domains) + nodes[0], columns) for (_, nodes), columns in zip(self.kinds, hosts)]
        for link, columns in links:
            for number in one.on_link[link]:
                grown = [one.growth(one.senders[number], link, k, longest, exchange / shortest) for k in range(len(columns))]
                if max(grown) <= 0:
                    continue
                if lost[number] is None:
                    lost[number] = program.add(highspy.kHighsInf, 1.0, is_integer=False)
                terms = [(lost[number], 1.0)] + [(column, -value) for column, value in zip(columns, grown) if value > 0]
                program.row(0, terms, highspy.kHighsInf)

    def place(self, hosts, values):
        pods_on = {}
        for (_, nodes), columns in zip(self.kinds, hosts):
            shares = [k for k, column in enumerate(columns) for _ in range(round(values[column]))]
            pods_on.update({node: share for node, share in zip(nodes, shares) if share})
        return pods_on


class Deadline:
    """Of one gang, in seconds of the processor, and of each program for it."""

    def __init__(self, seconds, of_program):
        self.end, self.of_program = time.process_time() + seconds, of_program

    def left(self):
        return min(self.of_program, self.end - time.process_time())


def improve(choices, best, deadline):
    """The least cost in this domain if it is less than `best`, and what no place here that costs less than that costs
    less than."""
    one, least = choices.one, math.inf
    values = choices.values()
    ranges = [(-1, len(values) - 1, 0.0)]
    while ranges:
        low, high, bound = ranges.pop()
        above = values[low] if low >= 0 else -1.0
        while high > low and one.step(choices.top, values[high])[0] >= best * (1 - SLACK):
            high -= 1
        if high <= low or bound >= best * (1 - SLACK):
            continue
        bound = max(bound, one.step(choices.top, values[low + 1])[0])
        if deadline.left() <= 0:
            least = min(least, bound)
            continue
        solved = choices.solve(above, values[high], deadline.left())
        if solved is None:
            continue
        state, lost, place = solved
        if place and len(place) > 1:
            best = min(best, one.cost(choices.top, place))
        bound = max(bound, one.step(choices.top, values[low + 1])[0] * (1 + lost / one.pods))
        if bound >= best * (1 - SLACK):
            continue
        if high - low == 1:
            if state != "best":
                least = min(least, bound)
            continue
        middle = (low + high) // 2
        ranges += [(middle, high, bound), (low, middle, bound)]
    return best, least


def answer(one, seconds, of_program, start):
    """The least rank, the least cost among places of this rank where it is below `start`, and its bound."""
    began = time.process_time()
    deadline = Deadline(seconds, of_program)
    ranks = {top: branches_and_leaves(one, top, seconds) for top in candidates(one)}
    least = min(ranks.values())
    best, bound = start, math.inf
    for top, shape in ranks.items():
        if shape != least:
            continue
        if any(one.room[node] >= one.pods for node in range(len(one.room)) if top in one.above(node)):
            best = min(best, one.cost(top, {0: one.pods}))
        best, here = improve(Choices(one, top, *shape), best, deadline)
        bound = min(bound, here)
    return {"rank": [one.domains[next(iter(ranks))]["height"], *least], "best": best, "bound": min(best, bound),
            "deadline": seconds, "seconds": time.process_time() - began}


def is_proven(found):
    return found["bound"] >= found["best"] * (1 - SLACK)


class Answers:
    """Of gangs that were asked for before, by what they are made of."""

    def __init__(self, path):
        self.file, self.known = None, {}
        if not path:
            return
        self.file = open(path, "a+", encoding="utf-8")
        self.file.seek(0)
        text = self.file.read()
        whole = text[:text.rfind("\n") + 1]
        self.file.truncate(len(whole.encode()))  # What was cut off while it was written.
        for line in whole.splitlines():
            found = json.loads(line)
            self.known[found.pop("key")] = found

    def of(self, told, seconds, of_program):
        asked = {name: part for name, part in told.items() if name not in ("hosts", "rank", "cost", "least", "seed", "number")}
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
        found = self.known.get(key)
        if found and (is_proven(found) or found["deadline"] >= seconds):
            return found
        start = math.inf if "least" in told else min(told["cost"], found["best"] if found else math.inf)
        found = answer(Instance(told), seconds, of_program, start)
        self.known[key] = found
        if self.file:
            self.file.write(json.dumps({"key": key, **found}) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        return found


def told_again(one):
    """The cost of the place that was chosen, counted here."""
    pods_on = dict(one.hosts)
    top = one.leaf_of_node[one.hosts[0][0]]
    while not all(top in one.above(node) for node in pods_on):
        top = one.parent[top]
    return one.cost(top, pods_on)


def quantile(values, part):
    return sorted(values)[int(part * (len(values) - 1) + 0.5)]


def faults_of(one, told, found):
    """What is told and does not agree with what is found here."""
    again = told_again(one)
    if abs(again - told["cost"]) > 1e-9 * again:
        yield f"the cost of its place is {again} here and {told['cost']} there"
    if found["rank"] != told["rank"]:
        yield f"the least rank is {found['rank']}, and not {told['rank']}"
    if told["cost"] < found["bound"] * (1 - SLACK):
        yield f"it costs {told['cost']}, less than what was proven to be the least, {found['bound']}"
    by_hand = told.get("least")
    if by_hand and found["rank"] != by_hand["rank"]:
        yield f"the least rank is {found['rank']}, and by brute force {by_hand['rank']}"
    if by_hand and is_proven(found) and abs(found["best"] - by_hand["cost"]) > 2 * SLACK * by_hand["cost"]:
        yield f"the least cost is {found['best']}, and by brute force {by_hand['cost']}"


def print_table(cells):
    print("| network | taken | gangs | proven | least cost | gap p50 % | p95 | p99 | max | p95 to the bound | max | "
          "seconds each, p50 | max |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    every = [result for cell in cells.values() for result in cell]
    for (network, taken), results in [*cells.items(), (("all", 0), every)]:
        gaps = [100 * result["gap"] for result in results]
        most = [100 * result["most"] for result in results]
        times = [result["seconds"] for result in results]
        print(f"| {network} | {f'{100 * taken:.0f} %' if taken else ''} | {len(results)} | {sum(r['proven'] for r in results)} | "
              f"{sum(gap <= 100 * SLACK for gap in gaps)} | {quantile(gaps, 0.5):.2f} | {quantile(gaps, 0.95):.2f} | "
              f"{quantile(gaps, 0.99):.2f} | {max(gaps):.2f} | {quantile(most, 0.95):.2f} | {max(most):.2f} | "
              f"{statistics.median(times):.1f} | {max(times):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances")
    parser.add_argument("--answers", metavar="FILE", help="kept here, and taken from here")
    parser.add_argument("--seconds", type=float, default=30, help="for one program")
    parser.add_argument("--deadline", type=float, default=120, help="for one gang, of the processor's time")
    arguments = parser.parse_args()
    answers = Answers(arguments.answers)
    cells = collections.defaultdict(list)
    wrong = 0
    with open(arguments.instances, encoding="utf-8") as file:
        for line in file:
            told = json.loads(line)
            found = answers.of(told, arguments.deadline, arguments.seconds)
            name = f"{told['network']}, {100 * told['occupancy']:.0f} %, seed {told['seed']}, number {told['number']}"
            for fault in faults_of(Instance(json.loads(line)), told, found):
                print(f"{name}: {fault}", file=sys.stderr)
                wrong += 1
            best = min(found["best"], told["cost"])
            result = {"name": name, "proven": is_proven(found), "gap": told["cost"] / best - 1,
                      "most": told["cost"] / min(best, found["bound"]) - 1, "seconds": found["seconds"]}
            if not result["proven"]:
                print(f"{name}: not proven; gap {100 * result['gap']:.2f} to {100 * result['most']:.2f} %", file=sys.stderr)
            cells[(told["network"], told["occupancy"])].append(result)
    print_table(cells)
    every = sorted((result for cell in cells.values() for result in cell), key=lambda result: -result["gap"])
    for result in every[:10]:
        if result["gap"] > SLACK:
            print(f"{100 * result['gap']:.2f} %: {result['name']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
