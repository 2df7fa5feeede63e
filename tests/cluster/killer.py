"""Operators that die at random moments, while something else is tested.

MUSTER_SEED repeats a run's choices; what they meet depends on the machine too.
"""

import os
import random
import threading
import time

from processes import ClusterError

SEED = int(os.environ.get("MUSTER_SEED") or time.time_ns() % 1_000_000)
PAUSE_SECONDS_MOST = 5.0


class Killer(threading.Thread):
    """SIGKILLs one of the pods that `pods()` lists, then another, after random pauses, until it is told to end.

    `kill(pod)` says whether there was a process to kill. Kills are (seconds since the start, name of the pod).
    """

    def __init__(self, pods, kill, pause=PAUSE_SECONDS_MOST):
        super().__init__(daemon=True)
        self.pods, self.kill, self.pause, self.chance = pods, kill, pause, random.Random(SEED)
        self.is_over = threading.Event()
        self.began = time.monotonic()
        self.kills = []
        print(f"MUSTER_SEED={SEED}", flush=True)

    def run(self):
        while not self.is_over.wait(self.chance.uniform(0, self.pause)):
            try:
                pods = self.pods()
            except (ClusterError, OSError):  # The API server may be what is tested.
                continue
            if not pods:
                continue
            pod = self.chance.choice(pods)
            if self.kill(pod):
                self.kills.append((round(time.monotonic() - self.began, 1), pod["metadata"]["name"]))

    def end(self):
        self.is_over.set()
        self.join(60)
