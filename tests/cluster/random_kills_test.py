#!/usr/bin/env python3
"""From apply to fetch or to delete while the operators are killed at random moments: the same bits, nothing done twice, and
nothing left of what is deleted.

Needs root and the release programs.
"""

import json
import os
import random
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import OPERATOR  # noqa: E402
from killer import SEED, Killer  # noqa: E402
from long_job import LONG_STEPS, LongJobTest, long_job  # noqa: E402
from processes import wait_for  # noqa: E402

# One long job for all that happens in between; short ones, one after another, for beginnings and ends.
SHORT_STEPS = 2_000
SHORT_JOBS = 3
WORKERS = 2
KILLS_LEAST = 5
# Jobs of one name that are deleted, each at a moment of its life that nobody chose: a gang is there within 3 s.
DELETED_JOBS, DELETED_JOBS_MOST = 8, 40
DELETED_KILLS_LEAST = 3
LIFE_SECONDS_MAX = 6.0


def own_program(name, lasts_seconds=5):
    """A gang of a shell: it has a Service beside its pods."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"count": WORKERS, "image": installed.SHELL, "command": ["sleep", str(lasts_seconds)],
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
        self.addCleanup(self.kubectl, "delete", "tjob", "kills-own", "kills-last", "--ignore-not-found", check=False)
        self.apply(own_program("kills-own"))
        self.ended("kills-own")
        # However soon the others are over: it lasts until there were kills enough.
        self.apply(own_program("kills-last", lasts_seconds=3600))
        self.ended("kills")
        names = {pod["metadata"]["name"] for pod in operators}
        wait_for(f"{KILLS_LEAST} kills, of both operators", lambda: len(killer.kills) >= KILLS_LEAST
                 and {name for _, name in killer.kills} == names, 180)
        killer.end()
        print(f"{len(killer.kills)} kills: {killer.kills}")
        wait_for("the last one runs", lambda: self.workers("kills-last") == f"{WORKERS}/{WORKERS}", 90)
        self.assert_trains("kills-last")
        for name, steps in [("kills", LONG_STEPS), *((name, SHORT_STEPS) for name in shorts)]:
            self.assertEqual(self.fetched_model(name), self.laptop_model(steps), name)
            self.assertEqual(self.job(name)["status"].get("restarts", 0), 0, name)
            self.assert_made_once(name, installed.writes()[before:], [])
        for name in ("kills-own", "kills-last"):
            self.assertEqual(self.job(name)["status"].get("restarts", 0), 0, name)
            self.assert_made_once(name, installed.writes()[before:], [("services", "")])
        self.kubectl("delete", "tjob", "kills-last")
        wait_for("both operators are ready again", lambda: self.cluster.kubectl(
            "-n", "muster", "get", "deployment", "muster-operator", "-o", "jsonpath={.status.readyReplicas}") == "2", 90)

    def test_jobs_deleted_at_random_moments_leave_nothing_and_their_name_is_free_at_once(self):
        before = len(installed.writes())
        chance, operators, name = random.Random(SEED), installed.operators(), "fleeting"
        elastic = long_job(name)
        elastic["spec"]["worker"]["min"] = 1  # so that it has a budget for disruptions, too
        killer = Killer(lambda: operators, installed.kill)
        self.addCleanup(killer.end)
        self.apply_with_claim(elastic)
        killer.start()
        deleted = []
        for number in range(DELETED_JOBS_MOST):
            if number >= DELETED_JOBS and len(killer.kills) >= DELETED_KILLS_LEAST:
                break
            deleted.append(self.job(name)["metadata"]["uid"])
            threading.Event().wait(chance.uniform(0, LIFE_SECONDS_MAX))
            self.kubectl("delete", "tjob", name)
            # As whoever saw a mistake in a manifest does: the workers of the one before may still be leaving.
            self.apply(own_program(name) if number % 2 == 0 else elastic)
        self.kubectl("delete", "tjob", name)
        # The claim outlives them all, and with it what those who trained have saved.
        self.apply(elastic)
        last = self.job(name)["metadata"]["uid"]
        # Placed where the claim's volume has just not come to be, its pods are placed anew after 30 s, which no leader may live.
        self.ended(name)
        killer.end()
        print(f"{len(killer.kills)} kills: {killer.kills}")
        self.assertGreaterEqual(len(killer.kills), DELETED_KILLS_LEAST)
        made = {(kind, made_name) for verb, kind, namespace, made_name, code, user in installed.writes()[before:]
                if verb == "create" and code == 201 and user == OPERATOR and namespace == "team"
                and (made_name or "").startswith(f"{name}-")}
        kinds = ",".join(sorted({kind for kind, _ in made}))

        def left():
            found = json.loads(self.kubectl("get", kinds, "-o", "json"))["items"]
            return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(f"{name}-")
                    and not any(owner["uid"] == last for owner in one["metadata"].get("ownerReferences", []))]
        print(f"{len(made)} objects of {len(deleted)} deleted jobs and one that was not: {kinds}")
        self.assertLessEqual({"pods", "poddisruptionbudgets", "services"}, {kind for kind, _ in made})
        wait_for(f"all that belonged to {name} is gone", lambda: not left(), 90)
        self.assertEqual(self.fetched_model(name), self.laptop_model())
        self.assert_every_step_once(name)
        self.assertEqual(self.job(name)["status"].get("restarts", 0), 0)

    def assert_made_once(self, name, writes, others):
        """Each worker and the others, once."""
        self.assertEqual(self.made_once(name, writes), [("pods", f"-{slot}-0") for slot in range(WORKERS)] + others)


if __name__ == "__main__":
    installed.main()
