#!/usr/bin/env python3
"""What is refused, by whom and with which words: bad manifests, attacks by tenants and workers, on a real API server.

Cases are numbered as in issue 4 (1 to 30), attacks too (S1 to S24); docs/security.md says which test proves which.
"""

import json
import os
import sys
import unittest

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from refusals_attacks import Attacks  # noqa: E402,F401
from refusals_manifests import CASES, ELSEWHERE, TAKEN, WITHOUT_FIELD  # noqa: E402
from refusals_operator import BrokenWorld, Hostile, OnlyTheOperatorKnows  # noqa: E402,F401
from refusals_world import MERGE, job, shared, training  # noqa: E402

WORLD = None
DRY = "?dryRun=All&fieldValidation="


def setUpModule():
    global WORLD
    WORLD = shared()


def forms(case):
    """(content type, bytes) of a manifest as JSON and as YAML."""
    body = case.body
    if isinstance(body, bytes):
        return [("application/json", body)]
    if isinstance(body, str):
        found = [("application/json", body.encode())]
        return found + ([("application/yaml", case.yaml.encode())] if case.yaml else [])
    text = yaml.safe_dump(body, allow_unicode=True)
    return [("application/json", json.dumps(body).encode()), ("application/yaml", text.encode())]


class Manifests(unittest.TestCase):
    def answers(self, case):
        """(content type, is strict, code, answer) of each way to send it."""
        for content_type, text in forms(case):
            for validation in ("Strict", "Ignore"):
                code, answer = WORLD.call("POST", WORLD.jobs("team-a") + DRY + validation, text, "alice", content_type)
                yield content_type, validation == "Strict", code, answer

    def test_bad_manifests_are_refused_with_the_field_named(self):
        sent = 0
        for case in CASES:
            for content_type, is_strict, code, answer in self.answers(case):
                sent += 1
                with self.subTest(number=case.number, what=case.what, type=content_type, strict=is_strict):
                    expected = case.code if is_strict or case.ignored is None else case.ignored
                    self.assertEqual(code, expected, answer)
                    if expected == 201:
                        continue
                    for word in case.words:
                        self.assertIn(word, answer)
        print(f"{len(CASES)} bad manifests, {sent} times sent")

    def test_what_is_dropped_without_strict_validation_is_not_stored(self):
        for case in CASES:
            if case.ignored != 201 or not isinstance(case.body, dict):
                continue
            code, answer = WORLD.call("POST", WORLD.jobs("team-a") + DRY + "Warn", case.body, "alice")
            with self.subTest(what=case.what):
                self.assertEqual(code, 201, answer)
                self.assertIn("unknown field", " ".join(answer["warnings"]))
                field = answer["warnings"][0].split('"')[-2].split(".")
                at = answer
                for step in field[:-1]:
                    at = at[step]
                self.assertNotIn(field[-1], at)

    def test_what_looks_wrong_and_is_right_is_taken(self):
        for case in TAKEN:
            for content_type, is_strict, code, answer in self.answers(case):
                with self.subTest(number=case.number, what=case.what, type=content_type, strict=is_strict):
                    self.assertEqual(code, 201, answer)
                    field, value = case.words
                    self.assertEqual(answer["spec"]["worker"][field], value)

    def test_every_case_is_somewhere(self):
        covered = {case.number for case in CASES} | set(ELSEWHERE)
        self.assertEqual(sorted(covered), list(range(1, 31)))
        for number, why in sorted(WITHOUT_FIELD.items()):
            print(f"case {number}, without a field: {why}")


class Changes(unittest.TestCase):
    """Cases 26 to 28: what may be changed of a job that is there. No operator runs; its status is written by hand."""

    def setUp(self):
        self.addCleanup(WORLD.remove_jobs, "team-a")

    def refused(self, name, patch, *words):
        code, answer = WORLD.call("PATCH", WORLD.jobs("team-a", name), {"spec": patch}, "alice", MERGE)
        self.assertEqual(code, 422, answer)
        for word in words:
            self.assertIn(word, answer)

    def taken(self, name, patch, path=""):
        code, answer = WORLD.call("PATCH", WORLD.jobs("team-a", name) + path, {"spec": patch}, "alice", MERGE)
        self.assertEqual(code, 200, answer)
        return answer

    def started(self, body):
        WORLD.made("POST", WORLD.jobs("team-a"), body, "alice")
        name = body["metadata"]["name"]
        WORLD.made("PATCH", WORLD.jobs("team-a", name) + "/status", {"status": {"membershipEpoch": 1}}, content_type=MERGE)
        return name

    def test_26_what_cannot_change_once_a_job_has_trained(self):
        name = self.started(training("fixed", worker={"count": 2, "min": 1, "max": 4, "image": "a"}))
        never = "cannot change; delete the job"
        self.refused(name, {"training": {"seed": 8}}, "spec.training.seed", never)
        self.refused(name, {"training": {"logicalRanks": 32}}, "spec.training.logicalRanks", never)
        self.refused(name, {"training": {"model": {"mlp": {"hidden": [9]}}}}, "spec.training.model", never)
        self.refused(name, {"training": {"precision": "BFloat16"}}, "spec.training: ", "precision " + never)
        self.refused(name, {"managedBy": "example.com/other"}, "spec.managedBy", never)
        later = "set suspend to true first"
        self.refused(name, {"worker": {"image": "b"}}, "spec.worker", later)
        self.refused(name, {"worker": {"image": None}}, "spec.worker", later)
        self.refused(name, {"worker": {"resources": {"cpu": "2"}}}, "spec.worker", later)
        self.refused(name, {"worker": {"env": [{"name": "A"}]}}, "spec.worker", later)
        self.refused(name, {"worker": {"nodeSelector": {"a": "b"}}}, "spec.worker", later)
        self.refused(name, {"worker": {"serviceAccountName": "default"}}, "spec.worker", later)
        self.refused(name, {"topology": {"preferred": "rack"}}, "spec: ", later)
        self.refused(name, {"training": {"checkpoint": {"path": "/b"}}}, "spec: ", later)
        self.refused(name, {"restart": {"maxRestarts": 9}}, "spec: ", later)
        program = self.started(job("program"))
        self.refused(program, {"worker": {"command": None}, "training": training()["spec"]["training"]},
                     "spec: ", "training cannot be added or taken away")
        # Suspended, the same is taken, but for what can never change.
        self.taken(name, {"suspend": True})
        self.taken(name, {"worker": {"image": "b", "nodeSelector": {"a": "b"}}, "restart": {"maxRestarts": 9}})
        self.refused(name, {"training": {"seed": 8}}, "spec.training.seed", never)

    def test_27_a_running_job_stays_within_its_range(self):
        name = self.started(job("elastic", count=2, min=2, max=4))
        self.refused(name, {"worker": {"count": 1}}, "spec.worker: ", "count is fewer than min")
        self.refused(name, {"worker": {"count": 5}}, "spec.worker: ", "count is more than max")
        for replicas, words in ((1, "count is fewer than min"), (5, "count is more than max"),
                                (0, "greater than or equal to 1")):
            code, answer = WORLD.call("PATCH", WORLD.jobs("team-a", name) + "/scale", {"spec": {"replicas": replicas}},
                                      "alice", MERGE)
            self.assertEqual(code, 422, answer)
            self.assertIn("spec.worker", answer)
            self.assertIn(words, answer)
        self.taken(name, {"replicas": 4}, "/scale")
        self.assertEqual(WORLD.made("GET", WORLD.jobs("team-a", name))["spec"]["worker"]["count"], 4)
        # A change that repairs nothing else is not refused for what was wrong before it.
        self.taken(name, {"worker": {"min": 1, "count": 1}})

    def test_28_a_job_that_has_ended_or_is_going_may_be_edited_in_vain(self):
        name = self.started(job("ended"))
        ended = [{"type": "Complete", "status": "True", "reason": "Completed", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        WORLD.made("PATCH", WORLD.jobs("team-a", name) + "/status", {"status": {"conditions": ended}}, content_type=MERGE)
        self.refused(name, {"worker": {"image": "b"}}, "spec.worker", "set suspend to true first")
        self.taken(name, {"suspend": True})   # the operator's part is tested with the operator
        WORLD.made("PATCH", WORLD.jobs("team-a", name), {"metadata": {"finalizers": ["example.com/keep"]}},
                   content_type=MERGE)
        WORLD.made("DELETE", WORLD.jobs("team-a", name), user="alice")
        self.taken(name, {"suspend": False})
        WORLD.made("PATCH", WORLD.jobs("team-a", name), {"metadata": {"finalizers": None}}, content_type=MERGE)


if __name__ == "__main__":
    unittest.main()
