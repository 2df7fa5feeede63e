"""Control groups of a test's own, under either version: so much processor time, so much memory. Needs root."""

import itertools
import os
import signal
import time

ROOT = "/sys/fs/cgroup"
PERIOD_US = 100_000
_numbers = itertools.count(1)


def _hierarchy(controller):
    """Where groups of that controller are made; None where the machine does not let us."""
    if os.path.isdir(f"{ROOT}/{controller}"):
        return f"{ROOT}/{controller}"
    try:
        with open(f"{ROOT}/cgroup.subtree_control", encoding="utf-8") as file:
            return ROOT if controller in file.read().split() else None
    except OSError:
        return None


def available(*controllers):
    return os.geteuid() == 0 and all(
        _hierarchy(one) and os.access(_hierarchy(one), os.W_OK) for one in controllers)


class Group:
    """`processors` as a fraction of one, `memory` in bytes; `enter` is a shell line for who shall be in it."""

    def __init__(self, processors=None, memory=None):
        name = f"muster-test-{os.getpid()}-{next(_numbers)}"
        self.folders = set()
        if processors:
            self._make("cpu", name, [("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", int(processors * PERIOD_US))],
                       [("cpu.max", f"{int(processors * PERIOD_US)} {PERIOD_US}")])
        if memory:
            self._make("memory", name, [("memory.limit_in_bytes", memory)],
                       [("memory.max", memory), ("memory.swap.max", 0)])
        self.enter = "\n".join(f"echo $$ > {folder}/cgroup.procs" for folder in sorted(self.folders))

    def _make(self, controller, name, first, second):
        hierarchy = _hierarchy(controller)
        folder = os.path.join(hierarchy, name)
        os.makedirs(folder, exist_ok=True)
        self.folders.add(folder)
        for file, value in second if hierarchy == ROOT else first:
            with open(os.path.join(folder, file), "w", encoding="utf-8") as target:
                target.write(str(value))

    def pids(self):
        found = set()
        for folder in self.folders:
            with open(f"{folder}/cgroup.procs", encoding="utf-8") as file:
                found.update(int(line) for line in file.read().split())
        return found

    def throttled(self):
        """How many periods somebody in it had to wait in."""
        for folder in self.folders:
            try:
                with open(f"{folder}/cpu.stat", encoding="utf-8") as file:
                    return int(dict(line.split() for line in file)["nr_throttled"])
            except (OSError, KeyError):
                continue
        return 0

    def close(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + 10
        for folder in self.folders:
            while True:
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
