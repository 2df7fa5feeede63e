#!/usr/bin/env python3
"""Images that know nothing about Muster, as gangs on a real cluster: a shell, Python, and PyTorch as Debian ships it.

Needs root, mmdebstrap and the release programs. One cluster and one installation serve all cases of OwnImages; Laptop
runs the same PyTorch example under `muster run`, where this machine's Python has torch, and says so when it does not.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import HERE, MUSTER, ROOT, SHELL, InstalledTest  # noqa: E402
from processes import ClusterError, run, wait_for  # noqa: E402

TORCH = "muster.dev/torch:test"
DDP = os.path.join(ROOT, "examples", "torch", "ddp.py")
EXAMPLE = os.path.join(ROOT, "examples", "torch-ddp.yaml")
TORCHRUN = ["python3", "-m", "torch.distributed.run"]
PORT = 29500
# Of a gang that imports PyTorch on a machine with two busy processors.
TORCH_SECONDS = 420
DEADLINE_SECONDS = 900


def job(name, image, command, restart=None, **worker):
    """A job of an own program. A lost test's job ends by itself."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"image": image, "command": command, "terminationGracePeriodSeconds": 1,
                   "resources": {"cpu": "50m", "memory": "32Mi"}, **worker},
        "restart": restart or {"policy": "Never"}, "activeDeadlineSeconds": DEADLINE_SECONDS}}


def shell_job(name, script, **rest):
    return job(name, SHELL, ["sh", "-c", script], **rest)


def torch_job(name, command, **rest):
    """A job of the PyTorch image with examples/torch/ddp.py at /torch, as examples/torch-ddp.yaml mounts it."""
    return job(name, TORCH, command, volumes=[{"name": "program", "configMap": {"name": "torch-ddp"}}],
               volumeMounts=[{"name": "program", "mountPath": "/torch", "readOnly": True}],
               resources={"cpu": "400m", "memory": "1Gi"}, **rest)


def exit_codes(pods):
    """By slot; the pod's phase comes later than these."""
    return {slot: pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for slot, pod in pods.items()}


def agreed(logs, world):
    """The ranks that said that all `world` ranks agree, sorted."""
    return sorted(int(rank) for rank in re.findall(rf"rank (\d+): all {world} ranks agree, mean loss", logs))


class Programs(InstalledTest):
    """What every file of jobs of own programs needs."""

    def start(self, manifest):
        name = manifest["metadata"]["name"]
        self.apply(manifest)
        self.addCleanup(self.kubectl, "delete", "tjob", name, "--ignore-not-found", check=False)
        return name

    @classmethod
    def bring_torch(cls):
        """What torch_job() needs."""
        if not all(TORCH in node.images() for node in cls.cluster.nodes):
            cls.cluster.load(run([os.path.join(HERE, "torch_image")], seconds=2400).splitlines()[-1])
        with open(DDP, encoding="utf-8") as file:
            cls.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "torch-ddp"},
                       "data": {"ddp.py": file.read()}})

    def logs_with(self, name, pattern, count, seconds=120):
        """The job's logs once `count` of their lines match."""
        def enough():
            try:
                logs = self.muster("logs", name)
            except ClusterError:  # Not all of them have started.
                return None
            return logs if len(re.findall(pattern, logs, re.MULTILINE)) >= count else None

        try:
            return wait_for(f"{count} lines of {name} match {pattern!r}", enough, seconds)
        except ClusterError as error:
            raise AssertionError(f"{error}\n{self.kubectl('describe', 'tjob', name)}\n"
                                 f"{self.kubectl('describe', 'pods')}\n{installed.operator_logs()}") from None

    def slots(self, name, **labels):
        """Pods of the job by slot; each slot once."""
        found = {}
        for pod in self.pods(name):
            if all(pod["metadata"]["labels"][f"muster.dev/{key}"] == value for key, value in labels.items()):
                slot = int(pod["metadata"]["labels"]["muster.dev/slot"])
                self.assertNotIn(slot, found)
                found[slot] = pod
        return found


class BeforeTheWorker(Programs):
    """spec.worker.initContainers."""

    def first(self, script):
        """Two workers that say what `script`, and after it another, left them."""
        mount = [{"name": "data", "mountPath": "/data"}]
        return {"count": 2, "volumes": [{"name": "data", "emptyDir": {}}], "volumeMounts": mount, "initContainers": [
            {"name": "fetch", "image": SHELL, "args": ["-c", script], "command": ["sh"], "volumeMounts": mount,
             "env": [{"name": "WHAT", "value": "fetched"}], "resources": {"memory": "48Mi"}},
            {"name": "second", "command": ["sh", "-c", "id -u >> /data/x; touch /tmp/writable"], "volumeMounts": mount}]}

    def test_they_run_in_order_and_leave_the_worker_what_they_made(self):
        name = self.start(shell_job("before", "cat /data/x", **self.first(
            "echo $WHAT by $MUSTER_SLOT of $MUSTER_WORKERS ${MUSTER_ENDPOINT:-alone} > /data/x; cd /data && umask 0 && chmod 660 x")))
        self.ended(name)
        for pod in self.pods(name):
            slot = pod["metadata"]["labels"]["muster.dev/slot"]
            self.assertEqual(self.kubectl("logs", pod["metadata"]["name"]).split("\n")[:2],
                             [f"fetched by {slot} of 2 alone", "65532"])

    def test_one_that_fails_is_the_jobs_own_failure_and_is_named(self):
        name = self.start(shell_job("stumbles", "true", restart={"policy": "OnFailure", "maxRestarts": 1, "backoffSeconds": 0},
                                    **self.first("[ $MUSTER_SLOT = 0 ] && exec sleep 900; echo no such bucket; exit 7")))
        self.ended(name, "Failed")
        status = self.job(name)["status"]
        self.assertEqual((status["restarts"], status["failure"]["container"], status["failure"]["exitCode"]), (1, "fetch", 7))
        self.assertIn("no such bucket", status["failure"]["logTail"])
        self.assertIn("failed in init container fetch with exit code 7", self.muster("describe", name).replace("\n", " "))
        logs = self.muster("logs", name)
        self.assertIn("failed first in init container fetch with exit code 7", logs)
        self.assertRegex(logs, r"worker-1\.[0-9]+/fetch \| no such bucket")

    def test_a_sidecar_works_beside_the_worker_comes_back_and_holds_up_no_end(self):
        mount = [{"name": "data", "mountPath": "/data"}]
        # The worker ends once the sidecar has begun for the second time, after an end that is none of the job's.
        script = "echo begun >> /data/starts; [ $(wc -l < /data/starts) != 1 ] || exit 7; echo at work; exec sleep 900"
        sidecar = {"name": "tail", "image": SHELL, "command": ["sh", "-c", script], "restartPolicy": "Always",
                   "volumeMounts": mount, "resources": {"cpu": "20m", "memory": "16Mi"}}
        fetch = {"name": "fetch", "command": ["sh", "-c", "until [ -s /data/starts ]; do sleep 1; done; id -u"],
                 "volumeMounts": mount}
        name = self.start(shell_job("beside", "until [ $(wc -l < /data/starts) = 2 ]; do sleep 1; done; echo seen", count=2,
                                    volumes=[{"name": "data", "emptyDir": {}}], volumeMounts=mount,
                                    initContainers=[sidecar, fetch]))
        self.ended(name)
        status = self.job(name)["status"]
        self.assertEqual((status.get("restarts", 0), status.get("failure")), (0, None))
        logs = self.muster("logs", name)
        self.assertEqual(sorted(re.findall(r"^worker-(\d) +\| seen$", logs, re.MULTILINE)), ["0", "1"], logs)
        beside = self.muster("logs", name, "--container", "tail")
        self.assertEqual(sorted(re.findall(r"^worker-(\d)/tail +\| at work$", beside, re.MULTILINE)), ["0", "1"], beside)

        def phases():
            pods = self.pods(name)
            return len(pods) == 2 and all(pod["status"]["phase"] == "Succeeded" for pod in pods)

        wait_for("the kubelet ends the sidecars with their workers", phases, 60)
        for pod in self.pods(name):
            self.assertGreaterEqual(pod["status"]["initContainerStatuses"][0]["restartCount"], 1)


class OwnImages(Programs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bring_torch()

    # ---- The contract

    def test_a_shell_finds_its_place_and_all_others_by_name(self):
        # What ping says before it is refused is the address that the pod's own resolver gave.
        script = (f"env; for peer in $(echo \"$TF_CONFIG\" | grep -o '[a-z0-9.-]*:{PORT}'); do "
                  "until said=$(ping -c 1 ${peer%:*} 2>&1 | grep -o '([0-9.]*)'); do sleep 1; done; "
                  "echo \"peer $peer $said\"; done; echo all found; exec sleep 900")
        name = self.start(shell_job("shell", script, count=3, env=[{"name": "MINE", "value": "$(RANK) is mine"}]))
        logs = self.logs_with(name, "all found$", 3)
        for pod in self.slots(name).values():
            self.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", "! test -e /var/run/secrets/kubernetes.io && "
                         "test -s \"$MUSTER_TOKEN_FILE\" && test -r \"$MUSTER_TOKEN_FILE\"")
        pods = self.slots(name)
        self.assertEqual(sorted(pods), [0, 1, 2])
        service = pods[0]["spec"]["subdomain"]
        hosts = [f"{pods[slot]['metadata']['name']}.{service}.team.svc" for slot in range(3)]
        for slot in range(3):
            lines = re.findall(rf"^worker-{slot} \| (.*)$", logs, re.MULTILINE)
            env = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
            expected = {
                "MUSTER_JOB": "team/shell", "MUSTER_SLOT": str(slot), "MUSTER_ATTEMPT": "0", "MUSTER_WORKERS": "3",
                "MUSTER_PROCESSES": "1", "MUSTER_ENDPOINT": "https://muster-endpoint.muster.svc:9443",
                "MUSTER_TOKEN_FILE": "/var/run/secrets/muster.dev/token",
                "MUSTER_CA_CERT": "-----BEGIN CERTIFICATE-----",  # and its further lines
                "RANK": str(slot), "LOCAL_RANK": "0", "WORLD_SIZE": "3",
                "MASTER_ADDR": hosts[0], "MASTER_PORT": str(PORT), "PET_NNODES": "3", "PET_NPROC_PER_NODE": "1",
                "PET_NODE_RANK": str(slot), "PET_MASTER_ADDR": hosts[0], "PET_MASTER_PORT": str(PORT),
                "PET_RDZV_BACKEND": "static", "PET_RDZV_ENDPOINT": f"{hosts[0]}:{PORT}",
                "MINE": f"{slot} is mine", "HOSTNAME": pods[slot]["metadata"]["name"]}
            self.assertEqual({key: env.get(key) for key in expected}, expected)
            self.assertEqual(json.loads(env["TF_CONFIG"]), {
                "cluster": {"worker": [f"{host}:{PORT}" for host in hosts]},
                "task": {"type": "worker", "index": slot}})
            for other in range(3):
                self.assertIn(f"peer {hosts[other]}:{PORT} ({pods[other]['status']['podIP']})", lines)

    def test_none_of_a_gang_is_there_before_there_is_room_for_all(self):
        """All that kubernetes-sigs/ai-conformance asks of gang scheduling (KAR-0053): with too little room no pod within a
        bounded wait, with enough all run and the work is done, and nothing is left once it is deleted."""
        blocker = self.start(shell_job("blocker", "echo up; exec sleep 900", count=2,
                                       resources={"cpu": "1", "memory": "32Mi"}))
        self.logs_with(blocker, "up$", 2)
        # Two of the three would fit beside the blocker.
        gang = self.start(shell_job("gang", "echo rank $RANK", count=3, resources={"cpu": "800m", "memory": "32Mi"}))
        waiting = wait_for("the gang is told to wait", lambda: next(
            (condition for condition in self.job(gang).get("status", {}).get("conditions", [])
             if condition["type"] == "Admitted" and condition["status"] == "False"), None), 60)
        self.assertIn("cpu", waiting["message"].lower())
        until = time.monotonic() + 15
        while time.monotonic() < until:
            self.assertEqual(self.pods(gang), [])
            time.sleep(0.5)
        self.kubectl("delete", "tjob", blocker)
        self.ended(gang)
        self.assertEqual(sorted(self.slots(gang)), [0, 1, 2])
        self.assertEqual(sorted(re.findall(r"rank \d", self.muster("logs", gang))), ["rank 0", "rank 1", "rank 2"])
        self.kubectl("delete", "tjob", gang)
        wait_for("its pods are gone", lambda: not self.pods(gang), 60)

    def test_python_reads_tf_config_and_may_write_where_programs_write(self):
        script = ("import getpass, json, os, pathlib, tempfile\n"
                  "place = json.loads(os.environ['TF_CONFIG'])\n"
                  "assert place['cluster']['worker'][place['task']['index']].startswith(os.uname().nodename + '.')\n"
                  "assert len(place['cluster']['worker']) == 2 and place['task']['type'] == 'worker'\n"
                  "tempfile.NamedTemporaryFile().close()\n"
                  "cache = pathlib.Path.home() / '.cache' / 'program'\n"
                  "cache.mkdir(parents=True)\n"
                  "print('task', place['task']['index'], 'as', getpass.getuser(), os.getuid(), 'at', pathlib.Path.home())")
        name = self.start(job("python", TORCH, ["python3", "-c", script], count=2,
                              resources={"cpu": "200m", "memory": "128Mi"}))
        self.ended(name)
        logs = self.muster("logs", name)
        self.assertEqual(sorted(re.findall(r"task (\d) as worker 65532 at /tmp", logs)), ["0", "1"], logs)

    def test_a_worker_is_the_user_that_its_job_names(self):
        name = self.start(job("somebody", SHELL, ["sh", "-c", "echo $(id -u) $(id -g) $(id -G) at $HOME"], count=1,
                              runAsUser=4711, runAsGroup=4712, fsGroup=4713, supplementalGroups=[4714]))
        self.ended(name)
        told = re.search(r"4711 4712 ([\d ]+) at /tmp", self.muster("logs", name))
        self.assertEqual({4712, 4713, 4714}, set(map(int, told.group(1).split())))

    # ---- PyTorch

    def test_pytorch_trains_with_one_process_a_worker(self):
        name = self.start(torch_job("direct", ["python3", "/torch/ddp.py"], count=3))
        self.ended(name, seconds=TORCH_SECONDS)
        logs = self.muster("logs", name)
        self.assertEqual(agreed(logs, 3), [0, 1, 2], logs)
        self.assertEqual(len(re.findall(r"rank \d step 39: loss 0\.\d+", logs)), 3)

    def test_torchrun_trains_with_one_process_a_worker(self):
        name = self.start(torch_job("torchrun", [*TORCHRUN, "/torch/ddp.py"], count=2))
        self.ended(name, seconds=TORCH_SECONDS)
        logs = self.muster("logs", name)
        self.assertEqual(agreed(logs, 2), [0, 1], logs)

    def test_the_example_trains_with_two_processes_a_worker(self):
        self.kubectl("apply", "-f", EXAMPLE)
        self.addCleanup(self.kubectl, "delete", "tjob", "torch-ddp", "--ignore-not-found", check=False)
        self.ended("torch-ddp", seconds=TORCH_SECONDS)
        logs = self.muster("logs", "torch-ddp")
        self.assertEqual(agreed(logs, 4), [0, 1, 2, 3], logs)
        places = re.findall(r"^worker-(\d) \| .*rank (\d) of 4: local rank (\d)", logs, re.MULTILINE)
        self.assertEqual(sorted(places), [("0", "0", "0"), ("0", "1", "1"), ("1", "2", "0"), ("1", "3", "1")],
                         logs)
        nodes = {pod["spec"]["nodeName"] for pod in self.pods("torch-ddp")}
        self.assertLessEqual(nodes, {"node1", "node2"})

    def test_a_killed_worker_of_pytorch_starts_its_gang_again_be_it_the_one_that_all_others_meet_at(self):
        # Never done in the first two attempts; the others notice by themselves or are ended. The last one, as plain Python, saves
        # an import.
        script = ("[ $MUSTER_ATTEMPT -ge 2 ] && exec python3 /torch/ddp.py; "
                  f"exec {' '.join(TORCHRUN)} /torch/ddp.py --steps 100000000")
        name = self.start(torch_job("killed", ["sh", "-c", script], count=2,
                                    restart={"policy": "OnFailure", "maxRestarts": 3, "backoffSeconds": 0}))
        self.logs_with(name, r"^worker-\d \|.*rank \d step 10: loss", 2, TORCH_SECONDS)
        self.assertTrue(self.kill(self.slots(name, attempt="0")[1]))
        # MASTER_ADDR is the other's, and with it goes what the ranks meet at.
        self.logs_with(name, r"^worker-\d\.1 .*rank \d step 10: loss", 2, TORCH_SECONDS)
        self.assertTrue(self.kill(self.slots(name, attempt="1")[0]))
        self.ended(name, seconds=TORCH_SECONDS)
        logs = self.muster("logs", name)
        again = "\n".join(line for line in logs.splitlines() if re.match(r"worker-\d\.2 ", line))
        self.assertEqual(agreed(again, 2), [0, 1], logs)
        masters = set(re.findall(r"rank \d of 2: local rank 0, master (\S+)", again))
        self.assertEqual({master.split(".")[0] for master in masters}, {self.slots(name, attempt="2")[0]["metadata"]["name"]})
        self.assertEqual(self.job(name)["status"]["restarts"], 2)
        text = self.kubectl("describe", "tjob", name)
        self.assertRegex(text, r"Restarting")

    def test_torchrun_scaled_up_and_down_starts_again_in_each_size_and_completes(self):
        # Never done before the third start.
        script = f"exec {' '.join(TORCHRUN)} /torch/ddp.py --steps $([ $MUSTER_ATTEMPT -lt 2 ] && echo 100000000 || echo 40)"
        name = self.start(torch_job("scaled", ["sh", "-c", script], count=2, min=1, max=3))
        self.logs_with(name, r"^worker-\d \|.*rank \d step 10: loss", 2, TORCH_SECONDS)
        self.kubectl("scale", f"tjob/{name}", "--replicas=3")
        self.logs_with(name, r"^worker-\d\.1 .*rank \d step 10: loss", 3, TORCH_SECONDS)
        self.kubectl("scale", f"tjob/{name}", "--replicas=2")
        self.ended(name, seconds=TORCH_SECONDS)
        logs = self.muster("logs", name)
        last = "\n".join(line for line in logs.splitlines() if re.match(r"worker-\d\.2 ", line))
        self.assertEqual(agreed(last, 2), [0, 1], logs)
        status = self.job(name)["status"]
        self.assertEqual((status.get("resizes"), status["restarts"]), (2, 0), status)
        # An operator that is killed between what it did and its event has told nobody; of both that is not to be expected.
        self.assertRegex(self.kubectl("describe", "tjob", name), r"starts again in that size \(resize [12]\)")

    # ---- Restarts

    def test_a_failed_worker_takes_its_gang_into_the_next_attempt(self):
        script = ("echo attempt $MUSTER_ATTEMPT rank $RANK master $MASTER_ADDR; [ $MUSTER_ATTEMPT = 0 ] || exit 0; "
                  "[ $RANK != 1 ] || exit 7; exec sleep 900")
        name = self.start(shell_job("again", script, count=3,
                                    restart={"policy": "OnFailure", "maxRestarts": 2, "backoffSeconds": 0}))
        self.ended(name)
        self.assertEqual(self.job(name)["status"]["restarts"], 1)
        pods = self.slots(name, attempt="1")
        self.assertEqual(exit_codes(pods), {0: 0, 1: 0, 2: 0})
        first, second = pods[0]["metadata"]["name"], pods[0]["spec"]["subdomain"]
        logs = self.muster("logs", name)
        for rank in range(3):
            self.assertIn(f"worker-{rank}.1 | attempt 1 rank {rank} master {first}.{second}.team.svc", logs)
        left = [pod["metadata"]["name"] for pod in self.pods(name)
                if pod["metadata"]["labels"]["muster.dev/attempt"] == "0"
                and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] not in ("Succeeded", "Failed")]
        self.assertEqual(left, [], "nothing of the first attempt runs on")

    def test_a_gang_that_goes_on_failing_fails_with_its_last_words_first(self):
        script = "echo here is rank $RANK; [ $RANK != 1 ] || { echo the reason >&2; exit 7; }; exec sleep 900"
        name = self.start(shell_job("fails", script, count=2,
                                    restart={"policy": "OnFailure", "maxRestarts": 1, "backoffSeconds": 0}))
        self.ended(name, "Failed")
        status = self.job(name)["status"]
        self.assertEqual((status["restarts"], status["failure"]["slot"], status["failure"]["exitCode"]), (1, 1, 7))
        self.assertIn("the reason", status["failure"]["logTail"])
        # Those who did not fail are being removed, and with them their logs.
        logs = self.logs_with(name, "the reason", 1)
        self.assertLess(logs.index("the reason"), (logs + "here is rank 0").index("here is rank 0"), logs)


class Laptop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run(["python3", "-c", "import torch.distributed"], capture_output=True, check=False).returncode:
            print("skipped: this machine's python3 has no torch: the example was not tried under `muster run`")
            raise unittest.SkipTest("no torch")

    def ranks(self, *settings):
        directory = tempfile.mkdtemp(prefix="muster-laptop-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        arguments = [item for setting in settings for item in ("--set", setting)]
        run([MUSTER, "run", EXAMPLE, "--output", directory, *arguments], seconds=300)
        logs = ""
        for file_name in sorted(os.listdir(os.path.join(directory, "logs"))):
            with open(os.path.join(directory, "logs", file_name), encoding="utf-8", errors="replace") as file:
                logs += file.read()
        return logs

    def test_torchrun_with_two_processes_a_worker(self):
        self.assertEqual(agreed(self.ranks(), 4), [0, 1, 2, 3])

    def test_torchrun_with_one_process_a_worker(self):
        self.assertEqual(agreed(self.ranks("spec.worker.processes=1"), 2), [0, 1])

    def test_plain_python(self):
        logs = self.ranks("spec.worker.processes=1", "spec.worker.count=3", "spec.worker.command=[python3, torch/ddp.py]")
        self.assertEqual(agreed(logs, 3), [0, 1, 2])


if __name__ == "__main__":
    installed.main()
