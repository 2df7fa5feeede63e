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
from refusals_changes import CHANGES  # noqa: E402
from refusals_manifests import CASES, CLUSTER_WIDE, ELSEWHERE, TAKEN, WITHOUT_FIELD  # noqa: E402
from refusals_operator import BrokenWorld, Hostile, OnlyTheOperatorKnows  # noqa: E402,F401
from refusals_world import API, CLUSTER_WIDE_KINDS, MERGE, job, shared  # noqa: E402

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
        path, user = WORLD.jobs("team-a"), "alice"
        if case in CLUSTER_WIDE:
            path, user = f"{API}/{CLUSTER_WIDE_KINDS[case.body['kind']]}", "admin"
        for content_type, text in forms(case):
            for validation in ("Strict", "Ignore"):
                code, answer = WORLD.call("POST", path + DRY + validation, text, user, content_type)
                yield content_type, validation == "Strict", code, answer

    def test_bad_manifests_are_refused_with_the_field_named(self):
        sent = 0
        for case in [*CASES, *CLUSTER_WIDE]:
            for content_type, is_strict, code, answer in self.answers(case):
                sent += 1
                with self.subTest(number=case.number, what=case.what, type=content_type, strict=is_strict):
                    expected = case.code if is_strict or case.ignored is None else case.ignored
                    self.assertEqual(code, expected, answer)
                    if expected == 201:
                        continue
                    for word in case.words:
                        self.assertIn(word, answer)
        print(f"{len(CASES) + len(CLUSTER_WIDE)} bad manifests, {sent} times sent")

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
                    path, value = case.words
                    found = answer["spec"]
                    for step in path.split("."):
                        found = found[step]
                    self.assertEqual(found, value)

    def test_every_case_is_somewhere(self):
        covered = {case.number for case in CASES} | set(ELSEWHERE)
        self.assertEqual(sorted(covered), list(range(1, 31)))
        for number, names in ELSEWHERE.items():
            for name in names:
                with self.subTest(number=number):
                    kind, _, test = name.partition(".")
                    self.assertTrue(test.startswith(f"test_{number}_"), name)
                    # Loaded under that name, it is also run.
                    self.assertTrue(callable(getattr(globals()[kind], test, None)), f"there is no test {name}")
        for number, why in sorted(WITHOUT_FIELD.items()):
            print(f"case {number}, without a field: {why}")


class Changes(unittest.TestCase):
    """Cases 26 to 28: what may be changed of a job that is there. No operator runs; its status is written by hand."""

    def setUp(self):
        self.addCleanup(WORLD.remove_jobs, "team-a")

    def judged(self, number):
        """Makes each job of the table's case, brings it where the row says, and compares the verdict."""
        rows = [row for row in CHANGES if row.number == number]
        for index, row in enumerate(rows):
            name = f"change-{index}"
            WORLD.made("POST", WORLD.jobs("team-a"), {**row.body, "metadata": {"name": name}}, "alice")
            WORLD.made("PATCH", WORLD.jobs("team-a", name) + "/status", {"status": row.status}, content_type=MERGE)
            for change in row.first:
                WORLD.made("PATCH", WORLD.jobs("team-a", name), {"spec": change}, "alice", MERGE)
            code, answer = WORLD.call("PATCH", WORLD.jobs("team-a", name) + row.path, {"spec": row.patch}, "alice", MERGE)
            with self.subTest(what=row.what):
                self.assertEqual(code, 422 if row.words else 200, answer)
                for word in row.words:
                    self.assertIn(word, answer)
        self.assertGreater(len(rows), 1)

    def test_26_what_cannot_change_once_a_job_has_trained(self):
        self.judged(26)

    def test_27_a_running_job_stays_within_its_range(self):
        self.judged(27)

    def test_28_a_job_that_has_ended_or_is_going_may_be_edited_in_vain(self):
        self.judged(28)
        name = "going"
        WORLD.made("POST", WORLD.jobs("team-a"), job(name), "alice")
        WORLD.made("PATCH", WORLD.jobs("team-a", name), {"metadata": {"finalizers": ["example.com/keep"]}},
                   content_type=MERGE)
        WORLD.made("DELETE", WORLD.jobs("team-a", name), user="alice")
        for wish in (True, False):
            WORLD.made("PATCH", WORLD.jobs("team-a", name), {"spec": {"suspend": wish}}, "alice", MERGE)
        WORLD.made("PATCH", WORLD.jobs("team-a", name), {"metadata": {"finalizers": None}}, content_type=MERGE)


if __name__ == "__main__":
    unittest.main()
