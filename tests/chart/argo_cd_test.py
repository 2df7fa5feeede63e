#!/usr/bin/env python3
"""What docs/gitops.md gives Argo CD, run by the Lua that Argo CD's own understands (5.1)."""

import json
import os
import subprocess
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = "resource.customizations.health.muster.dev_TrainingJob"


def script():
    with open(os.path.join(ROOT, "docs/gitops.md"), encoding="utf-8") as file:
        block = file.read().split("```yaml\n")[1].split("```")[0]
    return yaml.safe_load(block)["data"][KEY]


def in_lua(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {in_lua(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(in_lua(one) for one in value) + "}"
    return json.dumps(value)


def health_of(**job):
    obj = {"metadata": {"generation": 2}, **job}
    program = (f"local function health(obj)\n{script()}\nend\n"
               f"local found = health({in_lua(obj)})\nprint(found.status)\nprint(found.message)\n")
    done = subprocess.run(["lua5.1", "-"], input=program, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.splitlines())


def condition(kind, status="True", reason="Because", message="said so"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


class ArgoCd(unittest.TestCase):
    def judged(self, expected, *conditions, observed=2):
        status = {"observedGeneration": observed, "conditions": list(conditions)}
        self.assertEqual(health_of(status=status), expected)

    def test_a_job_nobody_has_looked_at_is_progressing(self):
        said = ("Progressing", "no operator has looked at it yet")
        self.assertEqual(health_of(), said)
        self.assertEqual(health_of(status={"phase": "Pending"}), said)

    def test_a_job_that_waits_or_runs_is_progressing_and_says_how(self):
        self.judged(("Progressing", "needs 2, 1 fits"), condition("Admitted", "False", message="needs 2, 1 fits"))
        self.judged(("Progressing", "2 of 2 run"), condition("Admitted"), condition("Running", message="2 of 2 run"),
                    condition("Suspended", "False"))
        self.judged(("Progressing", "its newest spec is not seen yet"), condition("Running"), observed=1)

    def test_an_end_is_healthy_or_degraded_and_stays_so(self):
        self.judged(("Healthy", "all done"), condition("Running", "False"), condition("Complete", message="all done"))
        failed = condition("Failed", reason="Numerics", message="loss is NaN")
        self.judged(("Degraded", "Numerics: loss is NaN"), condition("Admitted", "False"), failed)
        self.judged(("Degraded", "Numerics: loss is NaN"), failed, observed=1)

    def test_a_suspended_job_is_suspended_and_one_whose_spec_was_repaired_goes_on(self):
        self.judged(("Suspended", "spec.suspend is true"), condition("Admitted", "False"),
                    condition("Suspended", message="spec.suspend is true"))
        self.judged(("Progressing", "said so"), condition("Failed", "False"), condition("Running", "False"))


if __name__ == "__main__":
    unittest.main()
