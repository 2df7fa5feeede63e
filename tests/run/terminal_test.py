#!/usr/bin/env python3
"""`muster run` on a terminal that closes, or with readers of its output that stand still or have no room.

    tests/run/terminal_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker
"""

import os
import signal
import subprocess
import sys
import unittest

from run_test import DEADLINE, LONG, PACE_MS, RunTest


class Terminal(RunTest):
    def test_a_terminal_that_closes_tells_of_it_twice_and_the_run_ends_with_a_checkpoint(self):
        self.set_pace(PACE_MS)
        process = self.start("run", self.digits, "--output", self.path("out"), *LONG)
        self.await_line(process.stderr, r"^step ")
        process.send_signal(signal.SIGHUP)
        self.await_line(process.stderr, "Stopping with a checkpoint")
        process.send_signal(signal.SIGHUP)
        self.set_pace(0)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        report = self.report("out")
        self.assertNotIn("killed", report.get("message", ""))
        self.assertEqual(report["checkpointStep"], report["steps"])

    def full_pipe(self):
        """The end to write to of a pipe that nobody reads and that takes nothing more."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        for piece in (4096, 1):
            try:
                while os.write(writer, b"x" * piece):
                    pass
            except BlockingIOError:
                pass
        os.set_blocking(writer, True)   # it is muster's, too
        return writer

    def test_a_reader_of_stderr_that_stands_still_stops_no_worker_and_keeps_no_signal_from_being_heard(self):
        for level in ("info", "debug"):   # with debug the operator writes there, too
            with self.subTest(level=level):
                writer = self.full_pipe()
                fifo, up = self.fifo(level)
                job = self.own_job(f"exec 3> {fifo}; echo up >&3; sleep 1000", name=level)
                process = subprocess.Popen([self.muster(), "run", job, "--output", self.path("out-" + level), "--log-level", level],
                                           cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writer)
                self.addCleanup(process.wait)
                self.addCleanup(process.kill)
                os.close(writer)
                self.assertEqual(self.fifo_line(up), "up")
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(DEADLINE), 130)
                self.assertEqual(self.report("out-" + level)["status"], "Interrupted")

    def test_an_end_that_could_not_be_told_on_stdout_is_an_error(self):
        job = self.own_job("true")
        for arguments in (["run", job, "--output", self.path("out")],
                          ["prove", self.digits, "--workers", "1,2", "--kills", "0", "--pace", "0", "--set", "spec.training.epochs=1"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([self.muster(), *arguments], cwd=self.directory, text=True, timeout=DEADLINE,
                                      stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 29, done.stderr)
            self.assertIn("muster: standard output: not all of it could be written; is the disk full?\n", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RunTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
