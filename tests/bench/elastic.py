#!/usr/bin/env python3
"""What a change of membership costs, beside torchrun elastic on the same model, data and machine.

    tests/bench/elastic.py --bin build/release/bin [--torch PYTHON] [--workers 4] [--repeat 10] [--goodput 600] [--seed 1]
    tests/bench/elastic.py --only-goodput [--goodput 600] [--seed 1]     no changes one by one

MLP 784-256-10, batch 64, SGD with momentum; every worker under its own quota of 2/P processors. torchrun's rendezvous
store is a process of its own that nothing happens to, one agent stands for one worker, and a killed one is started again
at once. Everything is seen from outside: Muster's record as it grows, the lines that the peer's ranks write.

stall: from the fault until a step made without the victim is done (kills, silence); the longest time between two steps
until the change is done (scale-up, scale-down, leave; `nothing`: in a second without any, which is what quotas and a busy
machine alone do). At the change: the time between two steps in which the members changed, one of these steps included.
Told: the longest that a survivor says it stood still, from its last work until it trains in the new membership; that alone
is the stall of `kill of slot 0`, who writes what is watched. Goodput: committed steps x fault-free step time / wall, with a
kill of a trainer or a whole worker, whichever, every 5 s on average; times and victims are those of the seed, and the
fault-free time is taken before and after.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "faults"))
import cgroup  # noqa: E402
from job import Job, children_of, read, signal_all, stat_of  # noqa: E402

PROCESSORS, IMAGES, PAUSE = 2.0, 4096, 0.001
ENDLESS = 100_000_000
FILES_KILL = "kill of slot 0"
# In the order in which they are taken: the victims of each hang on those before it.
KINDS = ["nothing", "trainer kill", "worker kill", "silent loss", "scale-up", "scale-down", "planned leave", FILES_KILL]
PEER_KINDS = ["trainer kill", "worker kill", "silent loss", "scale-up", "planned leave", "scale-down"]
SETTLE_STEPS = 30
KILL_EVERY_SECONDS = 5  # on average
PEER_SECONDS = 240


def make_data(directory, rng):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "images.idx"), "wb") as file:
        file.write(bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (IMAGES, 28, 28)) + rng.randbytes(IMAGES * 784))
    with open(os.path.join(directory, "labels.idx"), "wb") as file:
        file.write(bytes([0, 0, 8, 1]) + IMAGES.to_bytes(4, "big") + bytes(rng.randrange(10) for _ in range(IMAGES)))


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


class Lines:
    """Steps as they are seen: (when, step, workers)."""

    def __init__(self):
        self.seen = []

    def last(self):
        return self.seen[-1] if self.seen else (0.0, 0, 0)

    def watch(self, what, condition, seconds, check):
        """Looks until `condition`, which looks at what has been seen."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            if condition():
                return
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not in {seconds} s")
            time.sleep(PAUSE)


class RecordLines(Lines):
    """Muster's record; a step is seen once it is written, at most a millisecond late."""

    def __init__(self, path):
        super().__init__()
        self.path, self.offset, self.rest = path, 0, b""

    def look(self):
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.offset)
                data = file.read(1 << 24)
        except OSError:
            return
        now = time.monotonic()
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b'{"step"'):
                one = json.loads(line)
                self.seen.append((now, one["step"], one["workers"]))


class PeerLines(Lines):
    """What the peer's ranks write, in the order in which it is read."""

    def __init__(self, directory):
        super().__init__()
        self.directory, self.files = directory, {}

    def look(self):
        for name in os.listdir(self.directory):
            if name.startswith("steps-"):
                path = os.path.join(self.directory, name)
                offset, rest = self.files.get(path, (0, ""))
                with open(path, encoding="ascii") as file:
                    file.seek(offset)
                    data = file.read()
                *lines, rest = (rest + data).split("\n")
                self.files[path] = offset + len(data), rest
                for line in lines:
                    when, step, world, _ = line.split()
                    self.seen.append((float(when), int(step), int(world)))
        self.seen.sort()


class Training:
    """An endless training of `muster run`, seen from outside; each worker has so many processors, or any for None."""

    def __init__(self, directory, bin_dir, workers, processors, training, **spec):
        self.workers = workers
        self.groups = [cgroup.Group(processors=processors) for _ in range(workers)] if processors else []
        self.job = Job(directory, bin_dir, workers, ENDLESS, pace_ms=0, training=training, spec=spec)
        for slot, group in enumerate(self.groups):
            self.job.set_slot(slot, group.enter)
        self.lines = RecordLines(os.path.join(self.job.output, "checkpoints", "record.jsonl"))

    def start(self, seconds=60):
        self.job.start("--quiet", "--hash-every", "0")
        self.until(self.workers, seconds)

    def until(self, workers, seconds=60, more=SETTLE_STEPS):
        first = self.lines.last()[1] + more
        self.lines.watch(f"{workers} workers train", lambda: self.lines.last()[2] == workers
                         and self.lines.last()[1] >= first, seconds, self.job.alive)

    def committed(self):
        self.lines.look()
        return self.lines.last()[1]

    def close(self):
        self.job.close()
        for group in self.groups:
            group.close()


class Muster(Training):
    name = "Muster"
    kinds = KINDS

    def __init__(self, arguments, directory, data):
        has_quota = cgroup.available("cpu") and arguments.quota
        super().__init__(directory, arguments.bin, arguments.workers, PROCESSORS / arguments.workers if has_quota else None, {
            "model": {"mlp": {"hidden": arguments.hidden}}, "optimizer": {"sgd": {"learningRate": "0.01", "momentum": "0.9"}},
            "data": {"train": {"idx": {"images": f"{data}/images.idx", "labels": f"{data}/labels.idx"}}}})
        self.details = {}

    def from_fault(self, since):
        """Until the first step that was made without one."""
        found = lambda: next((when for when, _, workers in reversed(self.lines.seen[-4000:])
                              if when > since and workers == self.workers - 1), None)
        self.lines.watch("a step without the victim", found, 60, self.job.alive)
        return next(when for when, _, workers in self.lines.seen if when > since and workers == self.workers - 1) - since

    def longest_gap(self, since):
        times = [when for when, _, _ in self.lines.seen if when >= since - 1]
        return max(b - a for a, b in zip(times, times[1:]) if b >= since)

    def at_change(self, since):
        """The longer of the two times between steps before and after the first step of the new members: the line of the
        last old one is written when the new membership has begun."""
        seen = [one for one in self.lines.seen if one[0] >= since - 1]
        for i in range(2, len(seen)):
            if seen[i][0] >= since and seen[i][2] != seen[i - 1][2]:
                return max(seen[i][0] - seen[i - 1][0], seen[i - 1][0] - seen[i - 2][0])
        return None

    def entries(self):
        """What workers have said of memberships that they entered: {epoch: {slot: line}}."""
        found = {}
        for line in self.job.logs().splitlines():
            if '"trains in a membership"' in line:
                one = json.loads(line)
                found.setdefault(one["epoch"], {})[one["slot"]] = one
        return found

    def told(self, epoch, survivors):
        """The longest stall, of those who were in before, of the first membership after `epoch`."""
        entries = self.entries()
        later = [one for one in sorted(entries) if one > epoch]
        stalls = [entries[later[0]][slot]["stall_ms"] for slot in survivors if slot in entries[later[0]]] if later else []
        return max(stalls, default=None)

    def once(self, kind, rng):
        """(stall, survivors restarted) of one change; all train again afterwards."""
        if kind == "nothing":
            self.until(self.workers)
            since = time.monotonic()
            self.lines.watch("a second", lambda: time.monotonic() > since + 1, 60, self.job.alive)
            return self.longest_gap(since), 0
        if kind == FILES_KILL:
            return self.kill_of_files()
        job, slot = self.job, rng.randrange(1, self.workers)
        is_resize = kind in ("scale-up", "scale-down")
        if kind == "scale-up":
            job.resize(self.workers - 1)
            self.until(self.workers - 1)
        survivors = [one for one in range(self.workers) if one != (self.workers - 1 if is_resize else slot)]
        before = job.identities(survivors)
        worker = job.workers().get(slot)
        epoch = max(self.entries(), default=0)
        self.lines.look()
        since = time.monotonic()
        frozen = []
        if kind == "trainer kill":
            signal_all(worker.trainers, signal.SIGKILL)
        elif kind == "worker kill":
            signal_all(worker.pids(), signal.SIGKILL)
        elif kind == "silent loss":
            frozen = worker.pids()
            signal_all(frozen, signal.SIGSTOP)
        elif kind == "planned leave":
            signal_all([worker.sentinel], signal.SIGTERM)
        else:
            job.resize(self.workers - (kind == "scale-down"))
        if is_resize:
            self.until(self.workers - (kind == "scale-down"))
            stall = self.longest_gap(since)
        elif kind == "planned leave":
            self.from_fault(since)
            stall = self.longest_gap(since)
        else:
            stall = self.from_fault(since)
        self.details.setdefault(kind, []).append({name: None if one is None else round(one, 1) for name, one in (
            ("at_change_ms", self.at_change(since) and self.at_change(since) * 1000), ("told_ms", self.told(epoch, survivors)))})
        signal_all(frozen, signal.SIGKILL)  # as a node without power; who only was silent would be let in ever later
        after = job.identities(survivors)
        if kind == "scale-down":
            job.resize(self.workers)
        self.until(self.workers)
        return stall, sum(before[one] != after.get(one) for one in before)

    def kill_of_files(self):
        """What once() gives of slot 0, which has the files. Its survivors tell the stall: no step is seen until another is in its place."""
        job, survivors = self.job, range(1, self.workers)
        before, epoch = job.identities(survivors), max(self.entries(), default=0)
        signal_all(job.workers()[0].pids(), signal.SIGKILL)
        self.until(self.workers)
        # What is logged may come after its effects.
        self.lines.watch("the survivors tell", lambda: self.told(epoch, survivors) is not None, 60, job.alive)
        told, after = self.told(epoch, survivors), job.identities(survivors)
        self.details.setdefault(FILES_KILL, []).append({"at_change_ms": None, "told_ms": round(told, 1)})
        return told / 1000, sum(before[one] != after.get(one) for one in before)

    def strike(self, rng):
        """One random kill; who it was."""
        workers = sorted((one for one in self.job.workers().values() if one.trainers), key=lambda one: one.slot)
        if not workers:
            return "nobody was there"
        victim = rng.choice(workers)
        kind, pids = rng.choice([("trainer", victim.trainers), ("worker", victim.pids())])
        signal_all(pids, signal.SIGKILL)
        return f"{kind} {victim.slot}"

    def lost(self):
        """(steps made twice or not at all, samples likewise), of the whole record."""
        steps = [step for _, step, _ in self.lines.seen]
        wrong = sum(b != a + 1 for a, b in zip(steps, steps[1:]))
        return wrong, 64 * wrong


class Torchrun:
    name = "torchrun"
    kinds = PEER_KINDS

    def __init__(self, arguments, directory, data):
        self.workers, self.python, self.directory, self.data = arguments.workers, arguments.torch, directory, data
        self.groups = [cgroup.Group(processors=PROCESSORS / self.workers) for _ in range(self.workers)] \
            if cgroup.available("cpu") else []
        self.agents, self.store, self.lines = {}, None, PeerLines(directory)

    def start(self):
        program = ("import torch.distributed as d, sys, time\n"
                   "s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)\n"
                   "print(s.port, flush=True)\nsys.stdin.read()\n")
        self.store = subprocess.Popen([self.python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.store.stdout.readline())
        for slot in range(self.workers):
            self.start_agent(slot)
        self.until(self.workers)

    def start_agent(self, slot):
        enter = self.groups[slot].enter if self.groups else ":"
        command = [self.python, "-m", "torch.distributed.run", f"--nnodes=1:{self.workers}", "--nproc-per-node=1",
                   "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=bench",
                   "--rdzv-conf=is_host=0,last_call_timeout=1", "--max-restarts=100000", "--monitor-interval=0.1",
                   "--local-addr=127.0.0.1", os.path.join(HERE, "elastic_torch.py"), "--data", self.data, "--out",
                   self.directory]
        with open(os.path.join(self.directory, f"agent-{slot}.log"), "ab") as log:
            self.agents[slot] = subprocess.Popen(["/bin/sh", "-c", enter + '\nexec "$@"', "sh", *command],
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                                 env={**os.environ, "OMP_NUM_THREADS": "1",
                                                      # A store of its own for each round: in a shared one the ranks of
                                                      # the round before are found, and nobody ever meets.
                                                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})

    def until(self, workers, seconds=PEER_SECONDS, more=SETTLE_STEPS):
        since = time.monotonic()
        self.lines.watch(f"{workers} workers train", lambda: len(
            [1 for when, _, world in self.lines.seen[-2000:] if world == workers and when > since]) > more * workers,
            seconds, lambda: None)

    def pids(self, slot):
        pid = self.agents[slot].pid
        return [pid, *children_of(pid)]

    def once(self, kind, rng):
        slot = rng.randrange(1, self.workers)
        if kind == "scale-up":
            self.end_agent(slot, signal.SIGTERM)
            self.until(self.workers - 1)
        trainers = {one: children_of(self.agents[one].pid) for one in self.agents if one != slot}
        before = {pid: stat_of(pid) for pids in trainers.values() for pid in pids}
        self.lines.look()
        since, newest = time.monotonic(), max(step for _, step, _ in self.lines.seen)
        frozen = []
        if kind == "trainer kill":
            signal_all(children_of(self.agents[slot].pid), signal.SIGKILL)
        elif kind == "worker kill":
            self.end_agent(slot, signal.SIGKILL)
            self.start_agent(slot)
        elif kind == "silent loss":
            frozen = self.pids(slot)
            signal_all(frozen, signal.SIGSTOP)
        elif kind == "planned leave":
            self.end_agent(slot, signal.SIGTERM)
            self.start_agent(slot)
        elif kind == "scale-down":
            self.end_agent(slot, signal.SIGTERM)
        else:
            self.start_agent(slot)
        # Who trains on after a fault is a new process: its first line comes after a pause.
        self.lines.watch("training goes on", lambda: self.gap(since) is not None, PEER_SECONDS, lambda: None)
        stall = self.gap(since)
        restored = min(step for when, step, _ in self.lines.seen if when > since + stall - 1e-6)
        if kind == "silent loss":
            signal_all(frozen, signal.SIGKILL)
            self.agents[slot].wait()
            self.start_agent(slot)
        elif kind == "scale-down":
            self.until(self.workers - 1)
            self.start_agent(slot)
        self.until(self.workers)
        restarted = sum((stat_of(pid) or (0, 0, 0))[2] != was[2] for pid, was in before.items() if was)
        self.repeated = getattr(self, "repeated", 0) + max(0, newest - restored + 1)
        return stall, restarted

    def gap(self, since):
        """The first pause of more than half a second after the fault, from its beginning to the first step after it."""
        times = sorted(when for when, _, _ in self.lines.seen if when > since - 1)
        for a, b in zip(times, times[1:]):
            if b > since and b - a > 0.5:
                return b - max(a, since)
        return None

    def end_agent(self, slot, number):
        pids = self.pids(slot)
        signal_all(pids if number == signal.SIGKILL else pids[:1], number)
        self.agents[slot].wait(60)

    def strike(self, rng):
        slot = rng.randrange(self.workers)
        if rng.random() < 0.5 and children_of(self.agents[slot].pid):
            signal_all(children_of(self.agents[slot].pid), signal.SIGKILL)
            return f"trainer {slot}"
        self.end_agent(slot, signal.SIGKILL)
        self.start_agent(slot)
        return f"worker {slot}"

    def lost(self):
        repeated = getattr(self, "repeated", 0)
        return repeated, 64 * repeated

    def committed(self):
        self.lines.look()
        return max([step for _, step, _ in self.lines.seen], default=0)

    def close(self):
        for slot in self.agents:
            signal_all(self.pids(slot), signal.SIGKILL)
            self.agents[slot].wait()
        if self.store:
            self.store.kill()
            self.store.wait()
        for group in self.groups:
            group.close()


def calm_step_seconds(side, seconds):
    """The time of a step while nothing happens."""
    steps, since = side.committed(), time.monotonic()
    side.lines.watch("a calm while", lambda: time.monotonic() > since + seconds, seconds + 60, lambda: None)
    return (time.monotonic() - since) / max(1, side.committed() - steps)


def kill_times(seed, seconds):
    """When workers are killed, in seconds from the beginning."""
    rng, due, times = random.Random(f"kills {seed}"), 0.0, []
    while (due := due + rng.uniform(0, 2 * KILL_EVERY_SECONDS)) < seconds:
        times.append(due)
    return times


def measure_goodput(side, arguments, rng, calm_before):
    """{goodput and what it was made of}"""
    before, since, kills = side.committed(), time.monotonic(), []
    # They hang on the seed alone, and not on whom the kills before have met.
    for due in kill_times(arguments.seed, arguments.goodput):
        side.lines.watch("the next kill", lambda: time.monotonic() >= since + due, 60, lambda: None)
        kills.append([round(time.monotonic() - since, 1), side.strike(rng)])
    side.lines.watch("the last of it", lambda: time.monotonic() >= since + arguments.goodput, 60, lambda: None)
    wall, steps = time.monotonic() - since, side.committed() - before
    try:
        side.until(side.workers)
        calm_after = calm_step_seconds(side, arguments.calm)
    except TimeoutError:  # the peer may not have come back
        calm_after = calm_before
    goodput = steps * (calm_before + calm_after) / 2 / wall
    print(f"{side.name}: goodput {goodput:.3f}: {steps} steps in {wall:.0f} s with {len(kills)} kills; a step took "
          f"{calm_before * 1000:.2f} ms before and {calm_after * 1000:.2f} ms after them without any", flush=True)
    return {"goodput": goodput, "kills": len(kills), "kills_at_s": kills, "goodput_steps": steps, "goodput_wall_s": wall,
            "calm_step_ms": [calm_before * 1000, calm_after * 1000]}


def measure(side, arguments):
    """The rows of one side: {kind: [stall]}, survivors restarted, goodput."""
    rng = random.Random(arguments.seed)
    side.start()
    step_seconds = calm_step_seconds(side, arguments.calm)
    stalls, restarted = {}, 0
    for kind in [one for one in side.kinds if not arguments.only_goodput
                 and (not arguments.kinds or one in arguments.kinds.split(","))]:
        repeat = arguments.repeat if side.name == "Muster" else max(1, min(arguments.repeat, arguments.peer_repeat))
        stalls[kind] = []
        for _ in range(repeat):
            stall, others = side.once(kind, rng)
            stalls[kind].append(stall)
            restarted += others
        values = ", ".join(f"{stall * 1000:.0f}" for stall in sorted(stalls[kind]))
        print(f"{side.name}: {kind}: {values} ms", flush=True)
        for name in ("at_change_ms", "told_ms"):
            told = sorted(one[name] for one in getattr(side, "details", {}).get(kind, []) if one[name] is not None)
            if told:
                print(f"    {name}: {', '.join(f'{one:.1f}' for one in told)}", flush=True)
    result = {"step_ms": step_seconds * 1000, "stalls_ms": {kind: [round(one * 1000, 1) for one in values]
                                                           for kind, values in stalls.items()},
              "details": getattr(side, "details", {}), "survivors_restarted": restarted,
              "changes": sum(map(len, stalls.values())), "lost": side.lost()}
    if arguments.goodput > 0:
        result.update(measure_goodput(side, arguments, rng, step_seconds))
        result["lost"] = side.lost()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--torch", help="python of an environment with PyTorch")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=20, help="of each change")
    parser.add_argument("--peer-repeat", type=int, default=5, help="likewise for torchrun, which takes long")
    parser.add_argument("--calm", type=float, default=5, help="seconds of undisturbed training for the step's time")
    parser.add_argument("--goodput", type=float, default=600, help="seconds with a random kill every 5 on average; 0 leaves it out")
    parser.add_argument("--peer-goodput", type=float, default=120, help="likewise for torchrun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=lambda text: [int(one) for one in text.split(",")], default=[256],
                        help="Muster's hidden layers, with commas between them")
    parser.add_argument("--no-quota", dest="quota", action="store_false", help="Muster's workers share the machine freely")
    parser.add_argument("--kinds", help="only these changes, with commas between them")
    parser.add_argument("--only-goodput", action="store_true", help="no changes one by one")
    parser.add_argument("--only-peer", action="store_true", help="leave Muster out")
    parser.add_argument("--out", help="file for all figures as JSON")
    arguments = parser.parse_args()
    arguments.bin = os.path.abspath(arguments.bin)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all is taken down
    print(f"seed {arguments.seed}, {arguments.workers} workers, load {os.getloadavg()[0]:.1f}, "
          + (f"{PROCESSORS / arguments.workers:.2f} processors each" if cgroup.available("cpu")
             else "NO quota: this machine's cgroups are not ours to make"))
    results = {}
    for make in [one for one in (Muster, Torchrun) if one is Muster and not arguments.only_peer
                 or one is Torchrun and arguments.torch]:
        directory = tempfile.mkdtemp(prefix="muster-elastic-")
        data = os.path.join(directory, "made")
        make_data(data, random.Random(arguments.seed))
        side = make(arguments, directory, data)
        if make is Torchrun:
            arguments.goodput = min(arguments.goodput, arguments.peer_goodput)
        try:
            results[side.name] = measure(side, arguments)
        except TimeoutError:
            for name in sorted(os.listdir(directory)):
                if name.endswith(".log"):
                    print(f"{name}:\n{read(os.path.join(directory, name))[-3000:]}", file=sys.stderr)
            raise
        finally:
            side.close()
            shutil.rmtree(directory, ignore_errors=True)
    show(results)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"seed": arguments.seed, "workers": arguments.workers, "load": os.getloadavg(), "revision": revision(),
                       "machine": machine(), **results}, file, indent=1)


def revision():
    """Of the source tree here; with a mark where something in it is not committed."""
    said = [subprocess.run(["git", *command], cwd=ROOT, text=True, capture_output=True, check=False).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])]
    return said[0] + (" and changes" if said[1] else "")


def machine():
    models = [line.partition(":")[2].strip() for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return {"processors": os.cpu_count(), "model": models[0] if models else platform.machine(), "system": platform.release(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "measured": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())}


def show(results):
    names = list(results)
    print("\n| | " + " | ".join(names) + " |\n|---" * 1 + "|---" * len(names) + "|")
    for kind in KINDS:
        cells = []
        for name in names:
            values = results[name]["stalls_ms"].get(kind)
            cells.append(f"{percentile(values, 50):.0f} / {percentile(values, 99):.0f} ({len(values)})" if values else "not measured")
        print(f"| {kind}: stall p50 / p99 ms (times) | " + " | ".join(cells) + " |")
    row = lambda text, value: print(f"| {text} | " + " | ".join(value(results[name]) for name in names) + " |")
    row("undisturbed step, ms", lambda one: f"{one['step_ms']:.2f}")
    row("steps lost or repeated", lambda one: str(one["lost"][0]))
    row("samples lost or repeated", lambda one: str(one["lost"][1]))
    row("survivors restarted", lambda one: f"{one['survivors_restarted']} in {one['changes']} changes")
    row("goodput, a kill every 5 s on average",
        lambda one: f"{one['goodput']:.3f} ({one['kills']} kills)" if "goodput" in one else "not run")


if __name__ == "__main__":
    main()
