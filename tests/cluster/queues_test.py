#!/usr/bin/env python3
"""Queues on a real cluster of two nodes, with real workers: what was lent is taken back, and nothing is lost by it.

Needs root and the release programs.
"""

import datetime
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from long_job import LONG_STEPS, LongJobTest, long_job  # noqa: E402
from processes import wait_for  # noqa: E402

# Of a processor; two workers of a long job. Two queues of one cohort have as much each.
OWN = "320m"
# So dear that a second of two workers is more than the smaller of the budgets, whichever nodes they are on.
PRICES = {"currency": "EUR", "tiers": [{"name": "all", "prices": [{"resource": "cpu", "perHour": "3600"}]}]}
SPENT, AMPLE = "0.01", "100000000"
# A pod that is asked to leave is killed after so long (terminationGracePeriodSeconds): room that comes sooner was left by workers that
# ended by themselves.
GRACE_SECONDS = 30


def queue(name, **spec):
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
            "spec": {"resources": [{"name": "cpu", "nominal": OWN}], **spec}}


def in_queue(manifest, name, count, least, priority=None):
    manifest["spec"]["worker"].update({"count": count, "min": least, "max": count})
    manifest["spec"]["queueName"] = name
    if priority:
        manifest["spec"]["priorityClassName"] = priority
    return manifest


def short_job(name, queue_name, count, priority=None):
    """One that keeps nothing and is soon over."""
    manifest = in_queue(long_job(name, steps=2000), queue_name, count, count, priority)
    del manifest["spec"]["training"]["checkpoint"]
    return manifest


class QueuesTest(LongJobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
                           "value": 1000})
        for name in ("product", "research"):
            cls.cluster.apply(queue(name, cohort="lab"))

    @classmethod
    def tearDownClass(cls):
        cls.cluster.kubectl("delete", "tq/product", "tq/research", "tq/paid", "priorityclass/high", "--ignore-not-found")
        super().tearDownClass()

    def reason(self, name, kind="Admitted"):
        """Of the condition: its status, reason and message."""
        found = [one for one in self.status(name).get("conditions", []) if one["type"] == kind]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    def taken_back(self, name):
        return self.status(name).get("takenBack", {})

    def assert_asked_at_once(self, waits, gives, workers):
        """By what operators wrote: the first that one was told is who makes room for it, and that one was asked once."""
        told = [condition for status in self.status_writes(waits) for condition in status.get("conditions") or []
                if condition["type"] == "Admitted"]
        self.assertEqual((told[0]["status"], told[0]["reason"]), ("False", "GangWaiting"))
        self.assertIn(f"; room is made for it: team/{gives} shrinks to {workers}", told[0]["message"])
        asked = [status["takenBack"] for status in self.status_writes(gives) if status.get("takenBack")]
        self.assertEqual([one.get("shrinks") for one in asked], [1])

    def assert_given_in_seconds(self, waits):
        """By the times of the job itself: from when it was made until it had its places."""
        job = self.job(waits)
        (given,) = [one["lastTransitionTime"] for one in job["status"]["conditions"] if one["type"] == "Admitted"]
        made, given = (datetime.datetime.fromisoformat(text) for text in (job["metadata"]["creationTimestamp"], given))
        self.assertLess((given - made).total_seconds(), GRACE_SECONDS)

    def apply_short(self, manifest):
        self.addCleanup(self.kubectl, "delete", "tjob", manifest["metadata"]["name"], "--ignore-not-found", check=False)
        self.apply(manifest)

    def test_an_elastic_borrower_gives_the_owner_room_while_it_trains_and_loses_nothing(self):
        self.apply_with_claim(in_queue(long_job("wide"), "research", 4, 1))
        wait_for("four workers train", lambda: self.workers("wide") == "4/4" and self.step("wide") > 1000, 180)
        before = {pod["metadata"]["uid"] for pod in self.pods("wide")
                  if int(pod["metadata"]["labels"]["muster.dev/slot"]) < 2}
        self.apply_short(short_job("owner", "product", 2))
        wait_for("the owner's gang has its place", lambda: self.reason("owner")[0] == "True", 60)
        self.assert_asked_at_once("owner", "wide", 2)
        self.assert_given_in_seconds("owner")
        self.assertLess(self.step("wide"), LONG_STEPS, "the room is that of a job that was over")
        self.assertEqual(self.taken_back("wide"), {"shrinks": 1, "preemptions": 0, "lostProcessSeconds": 0})
        self.ended("owner")
        self.assertIn("takes back 320m cpu of its nominal quota for team/owner",
                      self.kubectl("describe", "tjob", "wide"))
        self.ended("wide", seconds=600)
        self.assertLessEqual(before, {pod["metadata"]["uid"] for pod in self.pods("wide")})
        self.assertEqual(self.job("wide")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("wide"), self.laptop_model())
        self.assert_every_step_once("wide")
        # Nobody read a checkpoint, so no step was made twice.
        self.assertNotIn("went on from the checkpoint", self.kubectl("describe", "tjob", "wide"))

    def test_a_job_grows_into_room_that_nobody_waits_for_and_gives_it_to_who_comes(self):
        # Room must last 30 s before it is grown into, and a quick machine makes 40,000 steps in a minute.
        steps = 2 * LONG_STEPS
        manifest = in_queue(long_job("modest", steps), "research", 2, 1)
        manifest["spec"]["worker"].update({"max": 4, "growsTo": "Max"})
        self.apply_with_claim(manifest)
        wait_for("it has more than it wishes for", lambda: self.workers("modest") == "4/4", 180)
        # In the same line, and of no higher priority.
        self.apply_short(short_job("late", "research", 1))
        wait_for("the other has its place", lambda: self.reason("late")[0] == "True", 60)
        self.assert_asked_at_once("late", "modest", 3)
        self.assert_given_in_seconds("late")
        self.assertLess(self.step("modest"), steps, "the room is that of a job that was over")
        self.assertEqual(self.taken_back("modest"), {"shrinks": 1, "preemptions": 0, "lostProcessSeconds": 0})
        text = self.kubectl("describe", "tjob", "modest")
        self.assertIn("there is room that nobody waits for: workers 2, 3 to join", text)
        self.assertIn("worker 3 to leave: what is beyond worker.count goes to team/late", text)
        self.ended("late")
        self.ended("modest", seconds=600)
        self.assertEqual(self.job("modest")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("modest"), self.laptop_model(steps))
        self.assert_every_step_once("modest", steps)

    def test_a_preempted_job_comes_back_by_itself_from_its_checkpoint(self):
        self.apply_with_claim(in_queue(long_job("low"), "research", 2, 2))
        wait_for("it trains", lambda: self.step("low") > 2000, 180)
        self.apply_short(short_job("urgent", "research", 4, "high"))
        wait_for("it gives way", lambda: self.taken_back("low").get("preemptions") == 1, 60)
        # Its last word, a checkpoint of its own accord, comes with its leaving.
        self.ended("urgent")
        self.ended("low", seconds=600)
        status = self.job("low")["status"]
        self.assertEqual(status["restarts"], 0)
        self.assertEqual(status["takenBack"]["preemptedFor"], "team/urgent")
        self.assertEqual(status["takenBack"]["preemptions"], 1)
        text = self.kubectl("describe", "tjob", "low")
        self.assertRegex(text, r"has the higher priority \(1000, not 0\); 2 processes, \d+ s")
        self.assertRegex(text, r"training went on from the checkpoint of step \d{4,}")
        self.assertEqual(self.fetched_model("low"), self.laptop_model())
        self.assert_every_step_once("low")

    def test_a_budget_that_is_spent_stops_a_job_with_a_checkpoint_and_it_goes_on_when_there_is_more(self):
        prices = os.path.join(self.directory, "prices.json")
        with open(prices, "w", encoding="utf-8") as file:
            json.dump({"priceList": PRICES}, file)
        self.addClassCleanup(installed.helm, "rollback", "muster", "--wait", "--timeout", "2m", check=False)
        installed.helm("upgrade", "muster", installed.CHART, "--reset-then-reuse-values", "--values", prices, "--wait",
                       "--timeout", "2m")
        self.cluster.apply(queue("paid", budget={"currency": "EUR", "amount": AMPLE, "period": "Forever"}))
        steps = LONG_STEPS // 2
        self.apply_with_claim(in_queue(long_job("paying", steps), "paid", 2, 2))
        wait_for("it trains", lambda: self.step("paying") > 0, 180)
        told = self.step("paying")
        self.set_budget(SPENT)
        wait_for("it is stopped", lambda: self.reason("paying", "Running")[1] == "BudgetSpent" and not self.pods("paying"), 120)
        self.assertIn(f"its budget of {SPENT} EUR is spent; raise spec.budget.amount", self.reason("paying")[2])
        wait_for("its queue tells what was spent", lambda: float(self.queue_status("paid").get("budget", {}).get("spent", 0)) >=
                 float(SPENT), 60)
        self.set_budget(AMPLE)
        self.ended("paying", seconds=600)
        # It saved what it had when it was asked to leave, and nothing was made twice.
        went_on = self.assert_told("paying", r"training went on from the checkpoint of step (\d+)")
        self.assertGreaterEqual(int(went_on[1]), told)
        self.assertEqual(self.fetched_model("paying"), self.laptop_model(steps))
        self.assert_every_step_once("paying", steps)
        status = self.job("paying")["status"]
        self.assertEqual((status["restarts"], status.get("takenBack", {})), (0, {}))
        self.assertGreater(float(status["cost"]["amount"]), float(SPENT))

    def set_budget(self, amount):
        self.cluster.kubectl("patch", "tq", "paid", "--type=merge", "-p", json.dumps({"spec": {"budget": {"amount": amount}}}))

    def queue_status(self, name):
        return json.loads(self.cluster.plane.get(f"/apis/muster.dev/v1alpha1/trainingqueues/{name}")).get("status", {})


if __name__ == "__main__":
    installed.main()
