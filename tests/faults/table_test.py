#!/usr/bin/env python3
"""docs/faults.md names a test that exists for every fault, or says what is missing; so the page cannot lie about that."""

import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAULTS = 30
# What stands in the last column instead of a test.
WITHOUT_TEST = ("needs a GPU", "not built", "not tested")
# Python: `file.py` `Class.test_name`. C++: `file.cpp` "name of the case".
PYTHON = re.compile(r"`(tests/\S+\.py)` `(\w+)\.(test_\w+)`")
CPP = re.compile(r"`(tests/\S+\.cpp)` \"([^\"]+)\"")
PROGRAM = re.compile(r"`(membership_seeds|sim_seeds)`")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


class Table(unittest.TestCase):
    def rows(self):
        """[number, fault, expected, shown by] of every row."""
        return [[cell.strip() for cell in line.strip().strip("|").split("|")]
                for line in read("docs/faults.md").splitlines() if re.match(r"\| \d+ \|", line)]

    def test_every_fault_has_one_row(self):
        self.assertEqual([int(row[0]) for row in self.rows()], list(range(1, FAULTS + 1)))
        self.assertTrue(all(len(row) == 4 and all(row) for row in self.rows()))

    def test_every_test_that_is_named_exists(self):
        for number, _, _, shown in self.rows():
            python, cpp = PYTHON.findall(shown), CPP.findall(shown)
            with self.subTest(number):
                for path, group, name in python:
                    body = re.search(rf"^class {group}\(.*?(?=^class |\Z)", read(path), re.M | re.S)
                    self.assertTrue(body, f"{path} has no class {group}")
                    self.assertIn(f"def {name}(", body.group(0), f"{path}: {group} has no {name}")
                for path, name in cpp:
                    text = re.sub(r'"\s*\n\s*"', "", read(path))
                    self.assertIn(f'TEST_CASE("{name}")', re.sub(r'TEST_CASE\(\s+"', 'TEST_CASE("', text), path)
                self.assertEqual(shown.count("`tests/"), len(python) + len(cpp), f"not understood: {shown}")
                self.assertTrue(python or cpp or PROGRAM.search(shown) or shown.startswith(WITHOUT_TEST), shown)


if __name__ == "__main__":
    unittest.main()
