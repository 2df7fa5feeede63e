#!/usr/bin/env python3
"""What tests/all.py says of a failing check, where only the end of it or of the whole run is kept."""

import contextlib
import io
import os
import re
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import all as tests

LOG = '{"time":"2026-11-22T13:53:12.663691Z","level":"warning","message":"a fault that was asked for"}'


def output_of(function, *arguments):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function(*arguments)
    return text.getvalue().splitlines()


def failing(lines):
    def function():
        raise tests.StepFailed("a program: exit code -6\n" + "\n".join(lines))
    return function


class AllTest(unittest.TestCase):
    def setUp(self):
        for name, value in {"passed": 0, "failed": 0, "failures": [], "skipped": [], "measured": []}.items():
            patch = mock.patch.object(tests.Totals, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_failing_check_prints_its_beginning_and_its_end(self):
        lines = output_of(tests.check, "a test", failing([f"line {n}" for n in range(5000)]))
        self.assertLess(len(lines), 410)
        self.assertIn("FAIL a test", lines[0])
        self.assertIn("line 0", lines)
        self.assertIn("line 4999", lines)
        self.assertIn("... 4601 lines left out ...", lines)
        self.assertEqual(tests.Totals.failed, 1)

    def test_what_fits_is_printed_whole(self):
        wanted = [f"line {n}" for n in range(399)]
        self.assertEqual(output_of(tests.check, "a test", failing(wanted))[2:], wanted)

    def test_a_line_has_an_end(self):
        for line in output_of(tests.check, "a test", failing(["x" * 100_000])):
            self.assertLess(len(line), 2000)
        for line in output_of(tests.print_failures):
            self.assertLess(len(line), 2000)

    def test_what_later_steps_build_is_built_in_their_order_and_gives_way(self):
        began, told, gives_way = threading.Event(), [], str(min(19, os.nice(0) + 19))

        def first():
            self.assertTrue(began.wait(60))
            told.append(tests.run([sys.executable, "-c", "import os; print(os.nice(0))"]).strip())
            raise tests.StepFailed("it does not compile")

        ahead = tests.Ahead(["style", "unit", "clang"], {"unit": first, "clang": lambda: told.append("clang"), "asan": None})
        ahead.wait_for("style")
        self.assertEqual(told, [])
        began.set()
        ahead.wait_for("unit")
        self.assertEqual(told[0], gives_way)
        ahead.wait_for("clang")
        self.assertEqual(told, [gives_way, "clang"])
        self.assertNotEqual(tests.run([sys.executable, "-c", "import os; print(os.nice(0))"]).strip(), gives_way)

    def test_what_is_taken_beside_another_gives_way_whoever_runs_it(self):
        def told_by_two():
            tests.at_once(2, lambda _: told.append(tests.run([sys.executable, "-c", "import os; print(os.nice(0))"]).strip()), ["a", "b"])

        told = []
        with mock.patch.object(tests.Options, "started", time.monotonic()), mock.patch.dict(tests.STEPS, fuzz=told_by_two), \
                contextlib.redirect_stdout(io.StringIO()), tests.Beside(["fuzz"]):
            self.assertEqual(int(tests.run([sys.executable, "-c", "import os; print(os.nice(0))"])), os.nice(0))
        self.assertEqual(told, [str(min(19, os.nice(0) + 19))] * 2)

    def test_what_would_be_ended_from_outside_is_not_begun_and_told(self):
        for left, is_time in ((1201, True), (1199, False), (-5, False)):
            with mock.patch.object(tests.Options, "ends", time.monotonic() + left):
                self.assertEqual(tests.is_time_for("nodes", 1200), is_time)
        self.assertEqual(len(tests.Totals.skipped), 2)
        self.assertIn("0 s are left of MUSTER_TEST_SECONDS, and it may take 1200", tests.Totals.skipped[1])
        self.assertTrue(tests.is_time_for("nodes", 1200))

    def test_a_program_that_asan_does_not_run_whole_is_also_run_as_it_is_installed(self):
        with mock.patch.object(tests.Options, "chosen", ["unit", "asan"]):
            left_to_asan = tests.for_asan_alone()
        self.assertTrue(left_to_asan)
        self.assertFalse(left_to_asan & set(tests.ASAN_ARGUMENTS))
        self.assertLessEqual(left_to_asan, set(tests.ASAN_TESTS))
        for chosen in (["unit"], ["asan"], ["cluster", "asan"]):
            with mock.patch.object(tests.Options, "chosen", chosen):
                self.assertEqual(tests.for_asan_alone(), set())

    def test_tests_of_clusters_build_no_unit_tests(self):
        for chosen, of_unit in ((["cluster"], False), (["unit"], True), (["unit", "asan", "cluster"], False)):
            with mock.patch.object(tests.Options, "chosen", chosen):
                self.assertEqual([tests.is_run_from_release(program) for program in (
                    "bin/muster", "tests/test_contract_real", "tests/test_contract_embedded", "tests/test_core")],
                                 [True, True, True, of_unit])

    def test_each_failure_is_told_again_without_the_products_log(self):
        said = [f"said {n}" for n in range(20)]
        mixed = [line for one in said for line in (one, LOG, "25: " + LOG)] + [LOG] * 500
        output_of(tests.check, "test_a", failing(mixed))
        output_of(tests.check, "test_b", lambda: "well")
        output_of(tests.check, "test_c", failing(["a check failed"]))
        again = output_of(tests.print_failures)
        self.assertIn("FAIL test_a", again[0])
        self.assertEqual([line.strip() for line in again[1:17]], ["a program: exit code -6", *said[-15:]])
        self.assertIn("FAIL test_c", again[17])
        self.assertEqual(again[-1].strip(), "a check failed")
        self.assertFalse([line for line in again if "test_b" in line or "level" in line])

    def test_what_could_not_be_tried_is_told(self):
        said = ["skipped: no network", "12: /a/b_test.cpp:157: MESSAGE: skipped: no AVX-512", "an object is skipped: no", "ok"]
        output_of(tests.check, "test_a", lambda: "\n".join(said))
        self.assertEqual(tests.Totals.skipped, ["test_a: no network", "test_a: no AVX-512"])

    def test_what_a_passing_check_has_measured_is_told_at_the_end_and_kept_for_the_next_run(self):
        said = ["a test ... ok", "measured: stall told on real nodes: a killed worker 31 ms", "7: measured: another 2 ms", "not measured: 3"]
        told = ["measured: nodes: stall told on real nodes: a killed worker 31 ms", "measured: nodes: another 2 ms"]
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(tests.Options, "again", False):
            passed = os.path.join(directory, "passed")
            output_of(tests.check_unless_passed, "nodes", passed, lambda: "\n".join(said))
            with mock.patch.dict(tests.STEPS, {"style": lambda: None}), mock.patch.object(sys, "argv", ["all.py", "--only", "style"]):
                self.assertEqual([line for line in output_of(tests.main) if line.startswith("measured: ")], told)
            output_of(tests.check_unless_passed, "nodes", passed, self.fail)
        self.assertEqual(tests.Totals.measured[2:], [line.replace("measured: nodes:", "nodes, unchanged since it passed:") for line in told])

    def test_tests_that_unittest_skips_are_told_with_their_reasons_and_counted(self):
        said = ["25: test_a (__main__.Cut.test_a) ... skipped 'needs root'", "25: test_b (__main__.Cut.test_b) ... ok",
                '25: test_c (__main__.Cut.test_c) ... skipped "the machine\'s own"', "25: Ran 3 tests in 0.1s", "25: OK (skipped=2)"]
        output_of(tests.check, "faults", lambda: "\n".join(said))
        output_of(tests.check, "quiet", lambda: "..ss\nRan 4 tests in 0.1s\n\nOK (skipped=2)\n")
        self.assertEqual(tests.Totals.skipped, ["faults: test_a: needs root", "faults: test_c: the machine's own",
                                                *["quiet: a test that is not named"] * 2])
        self.assertEqual(tests.Totals.passed, 3)
        with mock.patch.dict(tests.STEPS, {"style": lambda: None}), mock.patch.object(sys, "argv", ["all.py", "--only", "style"]):
            self.assertIn("4 skipped", output_of(tests.main))

    def test_so_many_failures_are_told_again(self):
        for n in range(100):
            output_of(tests.check, f"test_{n}", failing(["a check failed"]))
        again = output_of(tests.print_failures)
        self.assertLess(len(again), 200)
        self.assertEqual(again[-1], "and 60 more")

    def test_the_failures_stand_before_the_last_line_of_a_run(self):
        def step():
            tests.check("test_a", failing(["why it failed"]))
            raise tests.StepFailed("cmake: not there")

        with mock.patch.dict(tests.STEPS, {"style": step}), mock.patch.object(sys, "argv", ["all.py", "--only", "style"]):
            lines = output_of(tests.main)
        at = next(n for n, line in enumerate(lines) if line.startswith("all steps took"))
        self.assertEqual(lines[-1], "0 passed, 2 failed")
        self.assertEqual([line.strip() for line in lines[at + 2:-1]],
                         ["a program: exit code -6", "why it failed", "FAIL style", "cmake: not there"])

    def test_what_has_passed_is_run_again_only_when_it_has_changed_or_is_to_be(self):
        ran = []

        def run(command, *_):
            ran.append(command)
            return "noise\n[doctest] test cases:  7 |  7 passed | 0 failed |\nskipped: no neon\n"

        def check(options, data="data"):
            with mock.patch.object(tests, "inputs_digest", lambda: data), mock.patch.object(tests, "run", run), \
                    mock.patch.object(tests, "instructions", lambda program: self.program):
                return output_of(tests.check_program, "test_a", ["setarch", "build/p/tests/test_a"], options)[0]

        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
            self.program = b"one"
            self.assertEqual(check({}), "ok   test_a (0 s)")
            self.assertEqual(check({}), "ok   test_a, unchanged since it passed (0 s)")
            self.assertEqual((len(ran), tests.Totals.passed, len(tests.Totals.skipped)), (1, 14, 2))
            check({"OPTION": "1"})
            check({}, data="other")
            self.program = b"two"
            check({})
            self.assertEqual(len(ran), 4)
            with mock.patch.object(tests.Options, "again", True):
                check({})
            self.assertEqual(len(ran), 5)

    def test_what_looks_for_races_is_run_every_time(self):
        ran = []

        def run(command, *_):
            ran.append(command)
            return "[doctest] test cases: 7 | 7 passed | 0 failed |"

        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache), \
                mock.patch.object(tests, "run", run), mock.patch.object(tests, "instructions", lambda program: program.encode()), \
                mock.patch.object(tests, "inputs_digest", lambda: "data"), mock.patch.object(tests, "build", lambda *_: None), \
                mock.patch.object(tests, "available", lambda *_: None):
            output_of(tests.step_tsan)
            self.assertEqual(len(ran), len(tests.TSAN_TESTS))
            ran.clear()
            output_of(tests.step_tsan)
        self.assertEqual({os.path.basename(command[-1]) for command in ran}, {"test_comm", "test_comm_tcp"})

    def test_unit_programs_that_do_the_same_every_time_are_run_once(self):
        ran = []

        def ctest(command, *_):
            if "-R" in command:
                ran.append(command[command.index("-R") + 1])
            return "1: [doctest] test cases:  2 |  2 passed | 0 failed | 0 skipped\n"

        names = ["sim_seeds", "test_core", "test_comm", "run_Kill"]
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache), \
                mock.patch.object(tests, "run", ctest), mock.patch.object(tests, "instructions", lambda program: b"one"), \
                mock.patch.object(tests, "inputs_digest", lambda: "data"), mock.patch.object(tests, "build", lambda *_: None), \
                mock.patch.object(tests, "ctest_entries", lambda _: names):
            output_of(tests.step_unit)
            self.assertEqual(sorted(ran), sorted(f"^{name}$" for name in names))
            passed = tests.Totals.passed
            ran.clear()
            lines = output_of(tests.step_unit)
        self.assertEqual(sorted(ran), ["^run_Kill$", "^test_comm$"])
        self.assertEqual(tests.Totals.passed, 2 * passed)
        self.assertIn("ok   test_core, unchanged since it passed (0 s)", lines)

    def test_a_program_that_runs_no_case_has_not_passed(self):
        none = "[doctest] test cases:  0 |  0 passed | 0 failed | 51 skipped\n"
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache), \
                mock.patch.object(tests, "instructions", lambda program: b"one"), \
                mock.patch.object(tests, "inputs_digest", lambda: "data"):
            for said in (none, "", none):
                with mock.patch.object(tests, "run", lambda *_: said):
                    lines = output_of(tests.check_program, "test_a", ["build/p/tests/test_a"], {})
                self.assertEqual(lines[:2], ["FAIL test_a (0 s)", "build/p/tests/test_a: ran no test case"])
        self.assertEqual((tests.Totals.passed, tests.Totals.failed), (0, 3))
        with mock.patch.object(tests, "run", lambda *_: none), mock.patch.object(tests, "build", lambda *_: None), \
                mock.patch.object(tests, "ctest_entries", lambda _: ["test_a"]):
            self.assertIn("FAIL test_a (0 s)", output_of(tests.step_unit))

    def test_no_unit_program_is_forgotten_under_the_address_sanitizer(self):
        programs = set()
        for folder, _, files in os.walk(os.path.join(tests.ROOT, "tests/unit")):
            if "CMakeLists.txt" in files:
                with open(os.path.join(folder, "CMakeLists.txt"), encoding="utf-8") as file:
                    programs.update(re.findall(r"muster_test\((\w+)", file.read()))
        self.assertGreater(len(programs), 20)
        # In the preset cuda alone.
        self.assertEqual(programs - set(tests.ASAN_TESTS), {"test_cuda"})

    def test_a_fuzzer_that_was_not_built_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(tests.StepFailed, "has no fuzz_api_objects, .*, fuzz_yaml$"):
                tests.fuzzers(directory)
            for file in os.listdir(os.path.join(tests.ROOT, "tests/fuzz/corpus")):
                os.close(os.open(os.path.join(directory, file), os.O_CREAT, 0o755))
            self.assertEqual(tests.fuzzers(directory), sorted(os.listdir(directory)))
            os.unlink(os.path.join(directory, "fuzz_idx"))
            with self.assertRaisesRegex(tests.StepFailed, "has no fuzz_idx$"):
                tests.fuzzers(directory)

    def test_what_fails_is_run_again(self):
        def run(*_):
            raise tests.StepFailed("a program: exit code 1")

        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache), \
                mock.patch.object(tests, "run", run), mock.patch.object(tests, "instructions", lambda program: b"one"), \
                mock.patch.object(tests, "inputs_digest", lambda: "data"):
            for _ in range(2):
                self.assertIn("FAIL", output_of(tests.check_program, "test_a", ["build/p/tests/test_a"], {})[0])

    def test_what_a_program_that_aborts_has_said_is_there(self):
        program = f"import os; print({LOG!r}); print('check failed: why', flush=True); os.abort()"
        output_of(tests.check, "test_a", tests.run, [sys.executable, "-c", program])
        again = output_of(tests.print_failures)
        self.assertIn("exit code -6", again[1])
        self.assertEqual(again[2].strip(), "check failed: why")


if __name__ == "__main__":
    unittest.main()
