#!/usr/bin/env python3
"""From apply to fetch while the operators are killed at random moments: the same bits, and nothing done twice.

Needs root and the release programs.
"""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from killer import Killer  # noqa: E402
from long_job import LONG_STEPS, LongJobTest, long_job  # noqa: E402
from processes import wait_for  # noqa: E402

OPERATOR = "system:serviceaccount:muster:muster-operator"
# One long job for all that happens in between; short ones, one after another, for beginnings and ends.
SHORT_STEPS = 2_000
SHORT_JOBS = 3
WORKERS = 2


def own_program(name):
    """A gang of a shell: it has a Service beside its pods."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"count": WORKERS, "image": installed.SHELL, "command": ["sleep", "5"],
                   "resources": {"cpu": "50m", "memory": "32Mi"}}, "restart": {"policy": "Never"}}}


class RandomKills(LongJobTest):
    def test_jobs_end_with_the_laptops_bits_and_nothing_is_made_twice(self):
        before = len(installed.writes())
        operators = installed.operators()
        self.assertEqual(len(operators), 2)
        killer = Killer(lambda: operators, installed.kill)
        self.addCleanup(killer.end)
        killer.start()
        self.apply_with_claim(long_job("kills"))
        shorts = [f"kills-{number}" for number in range(SHORT_JOBS)]
        for name in shorts:
            self.apply_with_claim(long_job(name, SHORT_STEPS))
            self.ended(name)
        self.addCleanup(self.kubectl, "delete", "tjob", "kills-own", "--ignore-not-found", check=False)
        self.apply(own_program("kills-own"))
        self.ended("kills-own")
        self.ended("kills")
        killer.end()
        print(f"{len(killer.kills)} kills: {killer.kills}")
        self.assertGreaterEqual(len(killer.kills), 5)
        self.assertEqual({name for _, name in killer.kills}, {pod["metadata"]["name"] for pod in operators})
        for name, steps in [("kills", LONG_STEPS), *((name, SHORT_STEPS) for name in shorts)]:
            self.assertEqual(self.fetched_model(name), self.laptop_model(steps), name)
            self.assertEqual(self.job(name)["status"].get("restarts", 0), 0, name)
            self.assert_made_once(name, installed.writes()[before:], [])
        self.assert_made_once("kills-own", installed.writes()[before:], [("services", "")])
        wait_for("both operators are ready again", lambda: self.cluster.kubectl(
            "-n", "muster", "get", "deployment", "muster-operator", "-o", "jsonpath={.status.readyReplicas}") == "2", 90)

    def assert_made_once(self, name, writes, others):
        """By the API server's own account: each worker and the others, once; what was tried again was refused."""
        made = [(kind, made_name) for verb, kind, namespace, made_name, code, user in writes
                if verb == "create" and code == 201 and user == OPERATOR and namespace == "team"
                and re.fullmatch(rf"{name}-[0-9a-z]{{5}}(-\d+-\d+)?", made_name or "")]
        self.assertEqual(len(made), len(set(made)), made)
        self.assertEqual(sorted((kind, made_name.removeprefix(name)[6:]) for kind, made_name in made),
                         [("pods", f"-{slot}-0") for slot in range(WORKERS)] + others)


if __name__ == "__main__":
    installed.main()
