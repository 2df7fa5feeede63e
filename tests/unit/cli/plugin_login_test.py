#!/usr/bin/env python3
"""Commands whose kubectl leaves something behind, as logins and tunnels do, or asks the user for something.

    tests/unit/cli/plugin_login_test.py BIN_DIR [unittest arguments]
"""

import os
import sys
import unittest

from plugin_test import COMPLETE, DEADLINE, PluginTest, archive, ended, items, job, model, pod


class LoginTest(PluginTest):
    def setUp(self):
        super().setUp()
        os.mkfifo(self.path("left"))
        self.addCleanup(os.close, os.open(self.path("left"), os.O_RDWR))

    def test_what_a_kubectl_leaves_behind_keeps_no_answer_back(self):
        content, sha256 = model()
        with open(self.path("tar"), "wb") as file:
            file.write(archive([("model.safetensors", content)]))
        done = job(COMPLETE, phase="Complete", model={"parameters": 5000, "sha256": sha256})
        self.answer("get trainingjobs.muster.dev -o json", items(done), leaves="left")
        self.answer("get trainingjobs.muster.dev -o name", "trainingjob.muster.dev/digits\n", leaves="left")
        self.answer("get trainingjobs", done)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")))
        self.answer("^logs ", "2026-11-21T12:00:01Z a line\n", leaves="left")
        self.answer("^create |^delete ", "done\n")
        self.answer("get pod digits-fetch", pod(9))
        self.answer("^exec ", stdout_file="tar", leaves="left")
        for line, expected in [(["get"], "Complete"), (["get", "-o", "name"], "trainingjob.muster.dev/digits\n"),
                               (["logs", "digits"], "worker-0 | a line\n"),
                               (["fetch", "digits"], "muster-fetch/digits/model.safetensors ")]:
            done = self.muster(*line)
            self.assertEqual((done.returncode, expected in done.stdout), (0, True), (line, done))

    def test_a_kubectl_that_fails_says_why_whatever_it_leaves_behind(self):
        self.answer("get trainingjobs", stderr="Unable to connect to the server: i/o timeout\n", code=1, leaves="left")
        for line in ["get"], ["get", "-o", "json"]:
            done = self.muster(*line)
            self.assertEqual((done.returncode, done.stdout), (4, ""))
            self.assertIn("muster: no cluster answers: Unable to connect to the server: i/o timeout", done.stderr)

    def test_what_a_login_asks_is_shown_while_it_waits(self):
        os.mkfifo(self.path("answer"))
        self.answer("get trainingjobs", asks="Code \x1b[2Jof your key: ", fifo="answer")
        for line in ["get"], ["get", "-o", "json"]:
            process = self.start(*line)
            shown = "Code  [2Jof your key: "
            self.assertEqual(process.stderr.read(len(shown)), shown)
            with open(self.path("answer"), "w", encoding="utf-8") as file:
                file.write(items(job(COMPLETE)))
            out, err = process.communicate(timeout=DEADLINE)
            self.assertEqual((process.returncode, err), (0, ""))
            self.assertIn("digits", out)


if __name__ == "__main__":
    PluginTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
