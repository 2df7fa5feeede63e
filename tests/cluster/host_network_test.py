#!/usr/bin/env python3
"""Own programs in the network of their nodes (spec.worker.hostNetwork) on a real cluster of two nodes, with the chart installed.

Needs root, mmdebstrap and build/release/bin. One cluster and one installation serve all cases. The namespace `hpc` may have such
workers, `team` may not.
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from own_images_test import PORT, TORCH_SECONDS, TORCHRUN, Programs, agreed, shell_job, torch_job  # noqa: E402
from processes import ClusterError, wait_for  # noqa: E402

PROFILE = "pod-security.kubernetes.io/enforce"
INTERFACE = "eth0"  # Of a node of the test's cluster.
HOLDS = "echo up; exec sleep 900"


def host_job(name, script, **rest):
    return shell_job(name, script, hostNetwork=True, **rest)


class HostNetwork(Programs):
    namespace, profile = "hpc", "privileged"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        installed.helm("upgrade", "muster", installed.CHART, "--set", f"worker.hostNetworkNamespaces={{{cls.namespace}}}",
                       "--wait", "--timeout", "3m")
        cls.addresses = {node.name: node.address for node in cls.cluster.nodes}

    def start(self, manifest):
        """The API server knows the policy of a chart that was just upgraded a moment later."""
        name = manifest["metadata"]["name"]
        self.addCleanup(self.gone, name)

        def is_taken():
            try:
                self.apply(manifest)
            except ClusterError as error:
                if "hostNetworkNamespaces" not in str(error):
                    raise
                return False
            return True

        wait_for(f"{name} is taken", is_taken, 60)
        return name

    def gone(self, name):
        """Deletes a job; its nodes' ports are free then."""
        self.kubectl("delete", "tjob", name, "--ignore-not-found", check=False)
        wait_for(f"the pods of {name} are gone", lambda: not self.pods(name), 60)

    def waits(self, name, *words):
        """The message of Admitted, once it is False and has these words."""
        said = []

        def is_so():
            said[:] = [condition for condition in self.status(name).get("conditions", [])
                       if condition["type"] == "Admitted" and condition["status"] == "False"]
            return all(word in said[0]["message"] for word in words) if said else False

        try:
            wait_for(f"{name} waits for {words}", is_so, 60)
        except ClusterError as error:
            self.fail(f"{error}\n{said}\n{installed.operator_logs()}")
        return said[0]

    def blocker(self, node, port):
        """A pod of somebody else's on that node, with that host port."""
        name = f"blocker-{port}"
        self.addCleanup(self.kubectl, "delete", "pod", name, "--ignore-not-found", "--wait=true", "--grace-period=1", check=False)
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [
                {"name": "it", "image": installed.SHELL, "command": ["sleep", "900"],
                 "ports": [{"containerPort": port, "hostPort": port}]}]}})
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
        return name

    def nodes(self, name):
        """Where the job's pods are, by slot."""
        return {slot: pod["spec"].get("nodeName") for slot, pod in self.slots(name).items()}

    # ---- May it

    def test_it_is_let_in_by_the_chart_and_by_the_namespaces_pod_security(self):
        manifest = json.dumps(host_job("elsewhere", "true", count=1))
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        with self.assertRaisesRegex(ClusterError, r"spec\.worker\.hostNetwork: .*worker\.hostNetworkNamespaces"):
            self.cluster.kubectl("-n", "team", "apply", "-f", "-", stdin=manifest)
        self.kubectl("label", "namespace", self.namespace, "--overwrite", f"{PROFILE}=baseline")
        self.addCleanup(self.kubectl, "label", "namespace", self.namespace, "--overwrite", f"{PROFILE}={self.profile}")
        name = self.start(host_job("secured", "true", count=2))
        said = self.waits(name, "violates PodSecurity", "hostNetwork=true")
        self.assertEqual(said["reason"], "CreateFailed")
        told = self.muster("describe", name)
        self.assertIn(f"{PROFILE}=privileged", told)
        self.assertNotIn("expected start: now", told)
        self.kubectl("label", "namespace", self.namespace, "--overwrite", f"{PROFILE}={self.profile}")
        self.ended(name)
        self.assertEqual(self.status(name).get("restarts", 0), 0)

    # ---- The contract

    def test_workers_have_their_nodes_addresses_and_find_each_other_by_name(self):
        # Port 8080 is the job's own; what waits at MASTER_PORT is reached by the name of rank 0.
        script = (f"ip -4 -o address show dev {INTERFACE}; echo \"pod $MUSTER_POD_IP at $MASTER_ADDR\"; if [ $RANK = 0 ]; then "
                  "echo here is rank 0 | nc -l -p $MASTER_PORT; else "
                  "until said=$(nc $MASTER_ADDR $MASTER_PORT </dev/null) && [ -n \"$said\" ]; do sleep 1; done; echo heard: $said; "
                  f"fi; echo done; {HOLDS}")
        name = self.start(host_job("names", script, count=2, ports=[{"name": "http", "containerPort": 8080}]))
        logs = self.logs_with(name, "done$", 2)
        pods = self.slots(name)
        self.assertEqual(sorted(pods), [0, 1])
        self.assertEqual(sorted(self.nodes(name).values()), ["node1", "node2"])
        self.assertRegex(logs, r"worker-1 \| heard: here is rank 0\n")
        service = pods[0]["spec"]["subdomain"]
        for slot, pod in pods.items():
            address = self.addresses[pod["spec"]["nodeName"]]
            self.assertEqual((pod["status"]["podIP"], pod["status"]["hostIP"]), (address, address))
            self.assertRegex(logs, rf"worker-{slot} \| .*inet {re.escape(address)}/24 ")
            self.assertIn(f"worker-{slot} | pod {address} at {pods[0]['metadata']['name']}.{service}.{self.namespace}.svc\n", logs)
            self.assertEqual([(port["containerPort"], port["hostPort"]) for port in pod["spec"]["containers"][0]["ports"]],
                             [(PORT, PORT), (8080, 8080)])
            self.assertEqual(self.kubectl("exec", pod["metadata"]["name"], "--", "id", "-u").strip(), "65532")
        slices = json.loads(self.kubectl("get", "endpointslices", "-l", f"kubernetes.io/service-name={service}", "-o", "json"))
        self.assertEqual({(one["hostname"], *one["addresses"]) for piece in slices["items"] for one in piece["endpoints"]},
                         {(pod["metadata"]["name"], self.addresses[pod["spec"]["nodeName"]]) for pod in pods.values()})

    def test_torchrun_trains_over_the_nodes_own_interface(self):
        """Once with a fixed gang, and once with one that may be smaller. All nodes here have one host name, and are told apart
        all the same."""
        self.bring_torch()
        for least, name in ((2, "wires"), (1, "elastic-wires")):
            self.start(torch_job(name, [*TORCHRUN, "/torch/ddp.py"], count=2, min=least, hostNetwork=True,
                                 env=[{"name": "GLOO_SOCKET_IFNAME", "value": INTERFACE}]))
            self.ended(name, seconds=TORCH_SECONDS)
            logs = self.muster("logs", name)
            self.assertEqual(agreed(logs, 2), [0, 1], logs)
            self.gone(name)

    # ---- One a node

    def test_another_job_waits_for_the_port_of_its_nodes_and_starts_when_it_is_free(self):
        first = self.start(host_job("first", HOLDS, count=2))
        self.logs_with(first, "up$", 2)
        second = self.start(host_job("second", "echo rank $RANK", count=1))
        self.waits(second, "host-port-29500 1}", "host-port-29500 0")
        # Whoever is in a network of its own has the same port there.
        beside = self.start(shell_job("beside", "nc -l -p $MASTER_PORT & sleep 1; kill $!", count=1))
        self.ended(beside)
        self.assertEqual(self.pods(second), [])
        self.assertIn("host-port-29500", self.muster("describe", second))
        self.kubectl("delete", "tjob", first)
        self.ended(second)

    def test_a_pod_of_others_that_holds_the_port_keeps_its_node_to_itself(self):
        self.blocker("node1", PORT)
        name = self.start(host_job("kept-off", HOLDS, count=2, min=1))
        self.logs_with(name, "up$", 1)
        self.assertEqual(self.nodes(name), {0: "node2"})

    def test_a_port_of_the_jobs_own_that_others_hold_leads_to_another_node(self):
        self.blocker("node1", 8080)
        name = self.start(host_job("port", HOLDS, count=1, ports=[{"name": "http", "containerPort": 8080}]))
        self.logs_with(name, "up$", 1, seconds=180)
        self.assertEqual(set(self.nodes(name).values()), {"node2"})

    # ---- Ends

    def test_the_next_attempt_gets_the_ports_of_the_one_before(self):
        # The one that did not fail does not hear SIGTERM: it holds its node's port until it is killed.
        script = ("echo attempt $MUSTER_ATTEMPT rank $RANK; [ $MUSTER_ATTEMPT = 0 ] || exit 0; [ $RANK != 1 ] || exit 7; "
                  "trap '' TERM; while :; do sleep 1; done")
        name = self.start(host_job("again", script, count=2, terminationGracePeriodSeconds=5,
                                   restart={"policy": "OnFailure", "maxRestarts": 2, "backoffSeconds": 0}))
        self.ended(name)
        self.assertEqual(self.status(name)["restarts"], 1)
        logs = self.muster("logs", name)
        for rank in range(2):
            self.assertIn(f"worker-{rank}.1 | attempt 1 rank {rank}", logs)

    def test_when_a_node_loses_its_power_the_gang_goes_on_where_the_port_is_free(self):
        name = self.start(host_job("lost", "echo $WORLD_SIZE of attempt $MUSTER_ATTEMPT; " + HOLDS, count=2, min=1,
                                   restart={"policy": "OnFailure", "maxRestarts": 2, "backoffSeconds": 0}))
        self.logs_with(name, r"^worker-. \| 2 of attempt 0$", 2)
        node = self.cluster.node(2)
        self.addCleanup(node.ready)
        self.addCleanup(node.start)
        node.power_off()
        # The log of the worker on the lost node cannot be read; that of the other is shown all the same.
        self.logs_with(name, r"^worker-0\.[1-9] \| 1 of attempt [1-9]$", 1, seconds=180)
        alive = [pod for pod in self.pods(name) if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
        self.assertEqual([pod["spec"]["nodeName"] for pod in alive], ["node1"])
        self.assertEqual(self.status(name).get("restarts", 0), 0)


if __name__ == "__main__":
    installed.main()
