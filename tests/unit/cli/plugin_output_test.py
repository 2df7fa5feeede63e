#!/usr/bin/env python3
"""Where what the commands print goes: into a full disk, to a reader that has seen enough, onto a terminal.

    tests/unit/cli/plugin_output_test.py BIN_DIR [unittest arguments]
"""

import errno
import os
import signal
import subprocess
import sys
import unittest

from plugin_test import DEADLINE, PluginTest, ROOT, RUNNING, items, job


class OutputTest(PluginTest):
    def into(self, target, *arguments):
        with open(target, "w", encoding="utf-8") as file:
            return subprocess.run([os.path.join(os.path.abspath(self.bin_dir), "muster"), *arguments], text=True, stdout=file,
                                  env=self.environment(), cwd=self.directory, timeout=DEADLINE, stderr=subprocess.PIPE, check=False)

    def test_output_that_could_not_be_written_is_no_success(self):
        self.answer("get trainingjobs", items(job(RUNNING)))
        with open(self.path("cluster.json"), "w", encoding="utf-8") as file:
            file.write(items({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
                              "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}}))
        with open(self.path("jobs.csv"), "w", encoding="utf-8") as file:
            file.write("submit,duration\n0,10\n")
        example = os.path.join(ROOT, "examples/digits.yaml")
        for line in (["get"], ["get", "-o", "json"], ["plan", example, "--cluster", "cluster.json", "-o", "json"],
                     ["completion", "bash"], ["--help"], ["simulate", "jobs.csv", "--cluster", "cluster.json", "-o", "json"],
                     ["logs", "--help"], ["--version"]):
            done = self.into("/dev/full", *line)
            self.assertEqual((done.returncode, done.stderr),
                             (29, "muster: standard output: not all of it could be written; is the disk full?\n"), line)

    def test_what_kubectl_writes_in_its_own_form_reaches_a_terminal_as_text(self):
        self.answer("get trainingjobs", '{"note": "a\u009b2Jb\u202ec"}\nno end of a line \x1b[2J')
        reader, writer = os.openpty()
        self.addCleanup(os.close, reader)
        done = self.into(writer, "get", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        shown = b""
        try:
            while piece := os.read(reader, 4096):
                shown += piece
        except OSError as error:
            self.assertEqual(error.errno, errno.EIO)  # nobody has the terminal open
        self.assertEqual(shown.decode(), '{"note": "a  2Jb   c"}\r\nno end of a line  [2J')
        self.assertEqual(self.muster("get", "-o", "json").stdout, self.rules[0]["stdout"])

    def test_a_reader_that_has_seen_enough_is_no_failure(self):
        self.answer("get trainingjobs", items(job(RUNNING)))
        for line in (["get"], ["get", "-o", "json"], ["completion", "bash"], ["--help"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = self.into(writer, *line)
            self.assertIn((done.returncode, done.stderr), ((0, ""), (-signal.SIGPIPE, "")), line)


if __name__ == "__main__":
    PluginTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
