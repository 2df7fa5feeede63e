#!/usr/bin/env python3
"""`muster prove` as a user runs it.

    tests/run/prove_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker
"""

import gzip
import json
import os
import shutil
import sys
import unittest

from run_test import GOLDEN_CNN, RunTest, read


class Prove(RunTest):
    def test_convolution_batch_normalisation_and_dropout_are_proved_under_kills_and_resizes(self):
        # By the seed the last five disturbances find three workers, and those before them only one, for which checkpoints are soon there.
        code, out, err = self.run_muster("prove", self.path("examples/digits-cnn.yaml"), "--workers", "1,3", "--kills", "4",
                                         "--seed", "9", "--pace", "60", "--set", "spec.training.checkpoint.everySteps=20")
        self.assertEqual(code, 0, out + err)
        self.assertIn("EQUAL: 220 of 220 steps have the same parameters, the models are byte-equal (" + GOLDEN_CNN
                      + "), and so are the optimiser's states\n", out)
        self.assertRegex(out, r"10 of 10 disturbances, 4 of 4 kills, \d+ changes of membership, stall p50 \d+ ms, p99 \d+ ms\n")
        self.assertEqual(err.count("SIGKILL"), 4, err)
        for blow in (r"resize to 1", r"resize to 3", r"SIGKILL the trainer of worker \d", r"SIGKILL all of worker \d",
                     r"SIGSTOP the trainer of worker \d for \d+ ms", r"SIGSTOP all of worker \d for \d+ ms",
                     r"SIGSTOP the sentinel of worker \d for \d+ ms", r"SIGTERM worker \d"):
            self.assertRegex(err, rf"(?m)^.*{blow}$")
        self.assertRegex(err, r"undisturbed: step \d+/220  workers 1/1  \|  disturbed: step \d+/220  workers \d/[13]"
                              r"  membership \d+  changes \d+, longest stall \d+ ms\n")

    def test_nothing_is_proved_of_kills_that_training_was_over_before(self):
        code, out, err = self.run_muster("prove", self.digits, "--workers", "1,2", "--kills", "4", "--pace", "0",
                                         "--set", "spec.training.epochs=1")
        # Each kill holds training up, so that on a slow machine all of them may come in time.
        is_over_before = " 4 of 4 kills, " not in out
        self.assertEqual(code, 3 if is_over_before else 0, out + err)
        self.assertRegex(out, r" [0-4] of 4 kills, ")
        self.assertEqual("\nNothing is proved of the other kills: training was over before" in out, is_over_before, out)

    def test_a_disturbed_run_that_trains_something_else_is_told_apart_by_its_first_step(self):
        other = self.path("other/data")
        shutil.copytree(self.path("examples/data"), other)
        with gzip.open(self.path("examples/data/digits-train-labels.idx.gz")) as file:
            labels = bytearray(file.read())
        labels[8:] = bytes((label + 1) % 10 for label in labels[8:])
        with gzip.open(os.path.join(other, "digits-train-labels.idx.gz"), "wb") as file:
            file.write(labels)
        # The workers of one side read other labels.
        self.start_workers_through(
            f'case "$MUSTER_CHECKPOINT_PATH" in */disturbed/*) export MUSTER_DATA_ROOT="{self.path("other")}";; esac',
            'exec "$@"')
        code, out, err = self.run_muster("prove", self.digits, "--workers", "1,2", "--kills", "0", "--pace", "0",
                                         "--set", "spec.training.epochs=1")
        self.assertEqual(code, 3, out + err)
        self.assertRegex(out, r"\nDIFFERENT: step 1: parameters [0-9a-f]{16}\.\.\. against [0-9a-f]{16}\.\.\. undisturbed\n$")

    def test_when_one_run_has_failed_the_other_is_not_trained_to_its_end(self):
        for failed, stopped in [("undisturbed", "disturbed"), ("disturbed", "undisturbed")]:
            self.start_workers_through(f'case "$MUSTER_CHECKPOINT_PATH" in */{failed}/*) exit 21;; esac', 'exec "$@"')
            code, out, err = self.run_muster("prove", self.digits, "--workers", "1,2", "--kills", "0", "--pace", "0",
                                             "--set", "spec.training.epochs=4000")
            self.assertEqual(code, 3, out + err)
            self.assertIn(f"the {failed} run did not complete: ", out)
            self.assertIn(f"the {stopped} run did not complete: stopped, because the other had failed; logs ", out)

    def test_a_proof_in_the_directory_of_one_that_runs_is_refused_and_disturbs_nothing(self):
        small = ["--workers", "1,2", "--kills", "0", "--set", "spec.training.epochs=4", "--output", self.path("proof")]
        self.set_pace(500)   # it is not over before the other one is refused
        first = self.start("prove", self.digits, *small)
        self.await_line(first.stderr, r"undisturbed: step [1-9]")
        code, out, err = self.run_muster("prove", self.digits, *small, "--seed", "8")
        self.assertEqual(code, 2, out + err)
        self.assertIn("proof/undisturbed: another `muster run` is writing here", err)
        self.set_pace(0)
        code, out, err = self.end_of(first)
        self.assertEqual(code, 0, out + err)
        self.assertIn("EQUAL: 88 of 88 steps", out)
        again, out, err = self.run_muster("prove", self.digits, *small, "--set", "spec.training.seed=8", "--pace", "0")
        self.assertEqual(again, 0, out + err)

    def test_a_split_that_is_left_open_is_proved_with_whole_copies(self):
        out, err = self.proved_in_two_processes("{mode: Auto}", "--workers", "1,2", "--kills", "0", "--pace", "0",
                                                "--set", "spec.training.epochs=1")
        self.assertIn("\nEQUAL: 22 of 22 steps ", out)
        self.assertIn("mode is Auto: both runs have whole copies", err)

    def test_two_and_three_copies_of_two_stages_are_proved_under_kills(self):
        # Where a kill finds only one copy whole, training goes on from the newest checkpoint.
        out, err = self.proved_in_two_processes("{pipeline: 2}", "--workers", "2,3", "--kills", "2", "--seed", "7", "--pace", "120",
                                                "--set", "spec.training.epochs=3", "--set", "spec.training.checkpoint.everySteps=10")
        self.assertIn("\nEQUAL: 66 of 66 steps ", out)
        self.assertIn(" 2 of 2 kills, ", out)
        self.assertNotIn("mode is Auto", err)
        for blow in (r"SIGKILL the trainer of worker \d", r"SIGKILL all of worker \d"):
            self.assertRegex(err, rf"(?m)^.*{blow}$")

    def proved_in_two_processes(self, split, *arguments):
        """What a proof of a job whose workers have two processes has told."""
        code, out, err = self.run_muster("prove", self.digits, *arguments, "--set", "spec.worker.processes=2",
                                         "--set", f"spec.training.parallelism={split}")
        self.assertEqual(code, 0, out + err)
        for side, processes in [("undisturbed", 1), ("disturbed", 2)]:
            job = json.loads(read(self.path(f"muster-out/prove-digits/{side}/job.json")))
            self.assertEqual(job["spec"]["worker"]["processes"], processes, side)
        return out, err


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RunTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
