#!/usr/bin/env python3
"""The API server goes away for two minutes while a job trains: nothing happens to it.

Needs root and the release programs.
"""

import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from long_job import LongJobTest  # noqa: E402

API_AWAY_SECONDS = 120


class ApiAway(LongJobTest):
    def test_training_does_not_need_the_api_server(self):
        self.start_long("alone")
        before = {pod["metadata"]["uid"] for pod in self.pods("alone")}
        self.cluster.api_stop()
        away = threading.Timer(API_AWAY_SECONDS, lambda: None)
        away.start()
        laptop = self.laptop_model()
        away.join(API_AWAY_SECONDS + 60)
        self.cluster.api_start()
        self.ended("alone")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("alone")}, before)
        self.assertEqual(self.job("alone")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("alone"), laptop)
        self.assert_no_warnings("alone")


if __name__ == "__main__":
    installed.main()
