#!/usr/bin/env python3
"""The API server goes away for two minutes while two jobs train, and operators are killed at random moments: nothing happens to the jobs.

Needs root and the release programs.
"""

import os
import re
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from killer import Killer  # noqa: E402
from long_job import LONG_STEPS, LongJobTest, long_job, steps_of  # noqa: E402
from processes import wait_for  # noqa: E402

API_AWAY_SECONDS = 120
# How often it is seen meanwhile that steps are made.
LOOK_SECONDS, LOOKS_LEAST = 15, 5
KILLS_LEAST = 3
ENDLESS_STEPS = 1_000_000_000


class ApiAway(LongJobTest):
    def test_training_does_not_need_the_api_server(self):
        """One job comes to its end meanwhile; the other trains all the time, and long after it."""
        self.apply_with_claim(long_job("lasting", ENDLESS_STEPS, cpu="90m"))
        self.start_long("alone")
        self.find_volume("lasting")
        wait_for("lasting trains", lambda: self.recorded() > 2000, 120)
        before = {name: self.containers(name) for name in ("alone", "lasting")}
        self.assertEqual([len(pods) for pods in before.values()], [2, 2])
        # Their kubelets start them again, also where nobody answers them then.
        operators = installed.operators()
        killer = Killer(lambda: operators, installed.kill, installed.KILLER_PAUSE_SECONDS)
        self.addCleanup(killer.end)
        killer.start()
        self.cluster.api_stop()
        try:
            laptop = self.look_while_it_is_away()
            meanwhile = self.recorded()
        finally:
            self.cluster.api_start()
        wait_for("its status catches up", lambda: self.step("lasting") > meanwhile, 240)
        killer.end()
        print(f"{len(killer.kills)} kills: {killer.kills}")
        self.assertGreaterEqual(len(killer.kills), KILLS_LEAST)
        self.ended("alone")
        for name, pods in before.items():
            self.assertEqual(self.containers(name), pods)
            self.assertEqual({count for _, _, count in pods}, {0})
            self.assertEqual(self.job(name)["status"]["restarts"], 0)
            self.assert_no_warnings(name)
        self.assertRegex(self.muster("describe", "alone"),
                         r"(?s)^alone in namespace team: Complete, ended .*It\s+ended\s+without\s+a\s+restart")
        self.assert_described("lasting", rf"Running for .*Progress +step [\d,]+ of {ENDLESS_STEPS:,} .*Workers +2/2 run; 2 wished")
        self.assertEqual(self.fetched_model("alone"), laptop)
        self.assert_every_step_once("alone")
        self.assert_same_steps()
        wait_for("progress is written twice", lambda: self.assert_progress_is_seldom_written("lasting") >= 2, 60)

    def look_while_it_is_away(self):
        """The laptop's model, which is trained in a time that has to pass anyway."""
        away = threading.Timer(API_AWAY_SECONDS, lambda: None)
        away.daemon = True
        away.start()
        looks, laptop = 0, None
        while away.is_alive() or looks < LOOKS_LEAST:
            self.assert_trains_on(last=ENDLESS_STEPS)
            looks += 1
            laptop = laptop or self.laptop_model()
            away.join(LOOK_SECONDS)
        return laptop

    def assert_described(self, name, words):
        """Soon: operators and kubelets have just found the API server again."""
        pattern = re.compile(rf"{name} in namespace team: {words}", re.DOTALL)
        wait_for(f"describe says of {name}: {words}", lambda: pattern.match(self.muster("describe", name)), 60)

    def assert_same_steps(self):
        """The lasting job's steps are those of the other one, which has the laptop's bits, and none was made twice."""
        wait_for("as many steps are made", lambda: self.recorded() >= LONG_STEPS, 120)
        lasting = steps_of(max(self.records(), key=os.path.getmtime))
        self.assertTrue([line["step"] for line in lasting] == list(range(1, len(lasting) + 1)), "a step lacks or stands twice")
        alone = steps_of(os.path.join(self.directory, "fetched-alone", "record.jsonl"))
        self.assertEqual(len(alone), LONG_STEPS)
        differs = next((line["step"] for line, its in zip(alone, lasting) if line["sha256"] != its["sha256"]), None)
        self.assertIsNone(differs, "the first step whose parameters differ")


if __name__ == "__main__":
    installed.main()
