#!/usr/bin/env python3
"""docs/faults.md names a test that exists for every fault, or says what is missing, and docs/peers-issues.md one for every issue; so
these pages cannot lie about that."""

import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAULTS = 33
# What stands in the last column instead of a test.
WITHOUT_TEST = ("needs a GPU", "not built", "not tested")
# Python: `file.py` `Class.test_name`. C++: `file.cpp` "name of the case".
PYTHON = re.compile(r"`(tests/\S+\.py)` `(\w+)\.(test_\w+)`")
CPP = re.compile(r"`(tests/\S+\.cpp)` \"([^\"]+)\"")
# What users of others complain of where gangs get stuck, change their size, stand in the network, or are decided on slowly.
PEERS = {"volcano": (1059, 1387, 2083, 2460, 2583, 3291, 3373, 4188, 4233, 4343, 4374, 4533, 4745, 4871, 5189, 5205, 5650, 5805),
         "kueue": (477, 1476, 2796, 3494, 4329, 6384, 6969, 8095, 8101, 9891, 10778, 11595, 11858, 12701, 12791, 13042, 13646, 14244,
                   14811, 15855),
         "scheduler-plugins": (397, 682, 713, 722), "koordinator": (872,), "kuberay": (532, 2385, 3895, 5002), "jobset": (310, 482),
         "KAI": (84, 315, 1591, 1634, 1725, 2058), "trainer": (2318, 2361, 2903, 3264, 3316), "volcano-vgpu": (116,)}
# "kueue#477", or several of them.
ISSUES = r"[\w-]+#\d+(?:, [\w-]+#\d+)*"
PROGRAM = re.compile(r"`(membership_seeds|sim_seeds)`")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def rows_of(page, first):
    """Cells of every row whose first one is like that."""
    return [[cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in read(page).splitlines() if re.match(rf"\| {first} \|", line)]


class Named(unittest.TestCase):
    def assert_all_exist(self, shown):
        """How many tests the cell names."""
        python, cpp = PYTHON.findall(shown), CPP.findall(shown)
        for path, group, name in python:
            body = re.search(rf"^class {group}\(.*?(?=^class |\Z)", read(path), re.M | re.S)
            self.assertTrue(body, f"{path} has no class {group}")
            self.assertIn(f"def {name}(", body.group(0), f"{path}: {group} has no {name}")
        for path, name in cpp:
            text = re.sub(r'"\s*\n\s*"', "", read(path))
            self.assertIn(f'TEST_CASE("{name}")', re.sub(r'TEST_CASE\(\s+"', 'TEST_CASE("', text), path)
        self.assertEqual(shown.count("`tests/"), len(python) + len(cpp), f"not understood: {shown}")
        return len(python) + len(cpp)


class Table(Named):
    def rows(self):
        """[number, fault, expected, shown by] of every row."""
        return rows_of("docs/faults.md", r"\d+")

    def test_every_fault_has_one_row(self):
        self.assertEqual([int(row[0]) for row in self.rows()], list(range(1, FAULTS + 1)))
        self.assertTrue(all(len(row) == 4 and all(row) for row in self.rows()))

    def test_every_test_that_is_named_exists(self):
        for number, _, _, shown in self.rows():
            with self.subTest(number):
                named = self.assert_all_exist(shown)
                self.assertTrue(named or PROGRAM.search(shown) or shown.startswith(WITHOUT_TEST), shown)


class PeersIssues(Named):
    def test_every_issue_has_a_test_that_exists(self):
        rows = rows_of("docs/peers-issues.md", ISSUES)
        self.assertGreater(len(rows), 30)
        self.assertEqual(len(rows), len(set(row[0] for row in rows)), "an issue is there twice")
        for issue, wrong, shown in rows:
            with self.subTest(issue):
                self.assertTrue(wrong)
                self.assertGreater(self.assert_all_exist(shown), 0)

    def test_every_issue_that_is_known_has_a_row_or_a_reason(self):
        there = set(re.findall(r"[\w-]+#\d+", read("docs/peers-issues.md")))
        known = {f"{name}#{number}" for name, numbers in PEERS.items() for number in numbers}
        self.assertEqual(sorted(known - there), [])


if __name__ == "__main__":
    unittest.main()
