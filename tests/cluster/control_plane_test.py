#!/usr/bin/env python3
"""The control plane of the tests does what its users rely on: rights are enforced and nothing outlives it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import urllib.error

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, start_of_machine  # noqa: E402
from control_plane import ControlPlane  # noqa: E402
from processes import ClusterError, Daemon, free_ports, start_time, wait_for  # noqa: E402

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def scratch(case):
    directory = tempfile.mkdtemp(prefix="muster-test-", dir=MEMORY)
    case.addCleanup(shutil.rmtree, directory, ignore_errors=True)
    return directory


class ControlPlaneTest(unittest.TestCase):
    def test_users_have_only_the_rights_they_were_given(self):
        with ControlPlane(scratch(self)) as plane:
            nobody = plane.user("nobody", ["some-group"])
            with self.assertRaisesRegex(ClusterError, 'User "nobody" cannot list resource "pods"'):
                plane.kubectl("get", "pods", kubeconfig=nobody)
            # Not "view": such roles are put together by the controller manager, which does not run here.
            plane.kubectl("create", "clusterrole", "seer", "--verb=list", "--resource=pods")
            plane.kubectl("create", "clusterrolebinding", "see", "--clusterrole=seer", "--group=some-group")
            wait_for("the binding counts", lambda: plane.kubectl(
                "auth", "can-i", "list", "pods", kubeconfig=nobody, check=False).split() == ["yes"], 30)
            account = plane.service_account("default", "robot")
            who = json.loads(plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=account))
            self.assertEqual(who["status"]["userInfo"]["username"], "system:serviceaccount:default:robot")
            self.assertEqual(plane.kubectl("auth", "can-i", "list", "pods", kubeconfig=account, check=False).split(), ["no"])
            pids = [daemon.pid for daemon in plane.daemons]
            self.assertEqual(len(pids), 2)
            for pid in pids:
                self.assertIsNotNone(start_time(pid))
        for pid in pids:
            self.assertIsNone(start_time(pid))

    def test_a_thread_asks_on_one_connection_also_once_the_server_has_closed_it(self):
        with ControlPlane(scratch(self)) as plane:
            self.assertEqual(plane.get("/readyz"), b"ok")
            kept = plane._connection()
            ours = kept.sock.getsockname()
            with self.assertRaises(urllib.error.HTTPError) as refused:
                plane.get("/api/v1/namespaces/none")
            self.assertEqual(refused.exception.code, 404)
            self.assertIn(b"not found", refused.exception.read())
            self.assertEqual(kept.sock.getsockname(), ours)
            kept.sock.shutdown(socket.SHUT_RDWR)
            self.assertEqual(plane.get("/readyz"), b"ok")
            self.assertNotEqual(kept.sock.getsockname(), ours)
            plane.api().kill()
            with self.assertRaises(ConnectionError):
                plane.get("/readyz")
            plane.api().start()
            plane.wait_api_ready()
            plane.api().kill()
            plane.api().start()
            plane.api().wait_ready(lambda: plane.get("/readyz") == b"ok", 60)
            self.assertIs(plane._connection(), kept)

    def test_the_control_plane_of_a_killed_test_dies_with_it(self):
        directory = scratch(self)
        test = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                              "control_plane.py"),
                                 "--directory", directory, "--", "cat"], stdin=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.assertIn("control plane at", test.stderr.readline())
        daemons = [Daemon.load(directory, name) for name in ("etcd", "kube-apiserver")]
        self.assertTrue(all(daemon.alive() for daemon in daemons))
        test.send_signal(signal.SIGKILL)
        test.wait(20)
        for stream in (test.stdin, test.stderr):
            stream.close()
        for daemon in daemons:
            wait_for(f"{daemon.name} is gone", lambda daemon=daemon: not daemon.alive(), 20)

    def test_a_program_that_ends_at_once_is_named_with_its_last_words(self):
        daemon = Daemon(scratch(self), "sick", ["sh", "-c", "echo out of luck; exit 3"], dies_with_us=True).start()
        with self.assertRaisesRegex(ClusterError, "(?s)sick has ended.*out of luck"):
            daemon.wait_ready(lambda: False, 20)

    def test_free_ports_are_distinct_and_free(self):
        ports = free_ports(20)
        self.assertEqual(len(set(ports)), 20)


class AfterRestart(unittest.TestCase):
    """A directory whose cluster's programs are no more, because the machine was started anew or they were ended by hand."""

    def directory(self, machine, maker=None):
        path = os.path.join(scratch(self), "state")
        os.makedirs(path)
        with open(os.path.join(path, "cluster.json"), "w", encoding="utf-8") as file:
            json.dump({"base": 249, "nodes": 1, "dies_with_us": False, "machine": machine, "maker": maker,
                       "before": {"kernel parameter": ["kernel/panic = 77"]}}, file)
        return path

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_what_another_cluster_made_under_the_same_name_stays(self):
        path = self.directory("an earlier start")
        self.assertFalse(Cluster.attach(path).runs())
        subprocess.run(["ip", "link", "add", "mu249br", "type", "bridge"], check=True)
        try:
            self.assertEqual(Cluster.attach(path).down(), ([], []))
            self.assertTrue(os.path.exists("/sys/class/net/mu249br"))
        finally:
            subprocess.run(["ip", "link", "del", "mu249br"], check=True)
        self.assertFalse(os.path.exists(path))

    def test_a_program_of_it_or_its_maker_keeps_the_directory(self):
        path = self.directory("an earlier start")
        daemon = Daemon(path, "etcd", ["sleep", "1000"], dies_with_us=True).start()
        self.assertTrue(Cluster.attach(path).runs())
        with unittest.mock.patch.object(Cluster, "_check_machine"), self.assertRaisesRegex(ClusterError, "there is a cluster in"):
            Cluster(path).up()
        daemon.kill()
        self.assertFalse(Cluster.attach(path).runs())
        self.assertTrue(Cluster.attach(self.directory(start_of_machine(), [os.getpid(), start_time(os.getpid())])).runs())
        self.assertFalse(Cluster.attach(self.directory(start_of_machine(), [os.getpid(), 1])).runs())

    def test_another_cluster_comes_up_in_its_place(self):
        for machine in ("an earlier start", None):  # None: as it was written before anybody noted it
            with self.subTest(machine):
                self.comes_up_in_its_place(machine)

    def comes_up_in_its_place(self, machine):
        path = self.directory(machine)
        made = []
        with unittest.mock.patch.object(Cluster, "_check_machine"), \
                unittest.mock.patch.object(Cluster, "_claim_network", lambda cluster: made.append(os.listdir(path)) or 1 / 0), \
                self.assertRaises(ZeroDivisionError):
            Cluster(path).up()
        self.assertEqual(made, [[]])


if __name__ == "__main__":
    unittest.main()
