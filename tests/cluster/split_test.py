#!/usr/bin/env python3
"""A model that is split between the processes of a copy, on two real nodes: by stages, past a death, and because the workers
have too little memory for the whole. The model is the one that a laptop trains in one piece.

Needs root and the release programs.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from long_job import LongJobTest, long_job  # noqa: E402
from processes import wait_for  # noqa: E402

STEPS = 15_000
LITTLE_MEMORY = "170Mi"
LARGE = {"mlp": {"hidden": [2048, 2048, 2048]}}  # 8.5 million parameters, of which each copy has three: with gradient and momentum


class SplitTest(LongJobTest):
    def test_two_copies_in_two_stages_with_shards_train_past_a_death_to_the_laptops_bits(self):
        manifest = long_job("stages", STEPS, cpu="125m", most=4)
        manifest["spec"]["worker"].update(count=4, min=2)
        manifest["spec"]["training"].update(parallelism={"pipeline": 2}, optimizerState="Sharded")
        self.apply_with_claim(manifest)
        wait_for("it trains", lambda: self.step("stages") > 1000, 240)
        before = {pod["metadata"]["labels"]["muster.dev/slot"]: pod for pod in self.pods("stages")}
        self.assertEqual(sorted(before), ["0", "1", "2", "3"])
        self.assertTrue(self.kill(before["3"]))
        self.ended("stages", seconds=600)
        self.assertEqual(self.job("stages")["status"]["restarts"], 0)
        self.assert_told("stages", r"WorkerLost .*worker 3 was lost at step \d+")
        # The other copy is whole, and goes on.
        after = {pod["metadata"]["uid"] for pod in self.pods("stages")}
        self.assertLessEqual({before[slot]["metadata"]["uid"] for slot in "01"}, after)
        self.assertEqual(self.fetched_model("stages"), self.laptop_model(STEPS))
        self.assert_every_step_once("stages", STEPS)

    def test_who_has_too_little_memory_is_split_where_nobody_says_how(self):
        def large(name):
            manifest = long_job(name, 20, cpu="500m")
            manifest["spec"]["training"].update(model=LARGE, parallelism={"mode": "Auto"})
            manifest["spec"]["worker"]["min"] = 2
            manifest["spec"]["worker"]["resources"]["memory"] = LITTLE_MEMORY
            return manifest
        self.apply_with_claim(large("large"))
        self.ended("large")
        self.assertEqual(self.job("large")["status"]["parallelism"], {"tensor": 1, "pipeline": 2})
        self.assertEqual(self.job("large")["status"]["restarts"], 0)
        self.assert_told("large", r"ModelSplit .*the gang starts again with each copy of the model split between 2 processes")
        self.assertEqual(self.fetched_model("large"), self.laptop_model_of(large("large")))


if __name__ == "__main__":
    installed.main()
