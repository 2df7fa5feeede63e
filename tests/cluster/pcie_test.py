#!/usr/bin/env python3
"""Eight GPUs below two PCIe switches of a real node: what a real kubelet gives to whom, by a device plugin as makers of GPUs
have one, beside what the operator says of it.

The devices are names of tests/cluster/tools/device-plugin, and the tree that the node agent reads is made here. Needs root and
the release programs.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from control_plane import kube_tools  # noqa: E402
from installed import BIN, InstalledTest  # noqa: E402
from own_images_test import shell_job  # noqa: E402
from processes import Daemon, wait_for  # noqa: E402

RESOURCE = "nvidia.com/gpu"
GPU = {"class": "0x030200", "vendor": "0x10de"}
PORT = {"class": "0x060400", "max_link_speed": "16.0 GT/s PCIe", "current_link_speed": "16.0 GT/s PCIe",
        "max_link_width": "16", "current_link_width": "16"}
# Buses of each switch's upstream port.
SWITCHES = (0x10, 0x50)
PER_SWITCH = 4


def address(bus, device=0):
    return f"0000:{bus:02x}:{device:02x}.0"


# Below each switch.
GPUS = [[address(bus + 2 + port) for port in range(PER_SWITCH)] for bus in SWITCHES]


def make_sysfs(root):
    """What Linux shows of a machine whose GPUs stand below two switches."""
    def add(path, attributes):
        folder = os.path.join(root, "devices", path)
        os.makedirs(folder)
        for name, value in attributes.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(value + "\n")
        os.symlink(f"../../../devices/{path}", os.path.join(root, "bus", "pci", "devices", os.path.basename(path)))

    os.makedirs(os.path.join(root, "bus", "pci", "devices"))
    for numa, bus in enumerate(SWITCHES):
        port = f"pci0000:{bus - 0x10:02x}/{address(bus - 0x10, 1)}"
        add(port, PORT)
        add(f"{port}/{address(bus)}", PORT)
        for number, gpu in enumerate(GPUS[numa]):
            downstream = f"{port}/{address(bus)}/{address(bus + 1, number)}"
            add(downstream, PORT)
            add(f"{downstream}/{gpu}", {**GPU, "numa_node": str(numa)})


class PcieTest(InstalledTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        node = cls.cluster.node(1)
        devices = "/".join(",".join(below) for below in GPUS)
        node.start_program("device-plugin", os.path.join(kube_tools(["device-plugin"]), "device-plugin"),
                           "-resource", RESOURCE, "-devices", devices)
        tree = os.path.join(cls.directory, "sysfs")
        make_sysfs(tree)
        agent = Daemon(cls.cluster.directory, "node-agent", [
            os.path.join(BIN, "muster-operator"), "--node-agent", node.name, "--sysfs", tree, "--kubeconfig",
            cls.cluster.plane.user("node-agent", ["system:masters"])], dies_with_us=True).start()
        cls.addClassCleanup(agent.stop)

        def is_told():
            found = json.loads(cls.cluster.plane.get(f"/api/v1/nodes/{node.name}"))
            return (found["status"]["allocatable"].get(RESOURCE) == "8"
                    and "muster.dev/pcie" in found["metadata"].get("annotations", {}))
        wait_for("the kubelet offers eight GPUs and the agent tells of them", is_told, 60)

    def start(self, name, gpus, count=1):
        """A job whose workers have so many GPUs each; returns when they run."""
        self.ask(name, gpus, count)
        wait_for(f"{name} runs", lambda: self.status(name).get("workers") == f"{count}/{count}", 60)

    def ask(self, name, gpus, count=1):
        self.addCleanup(wait_for, f"{name} is gone", lambda: not self.pods(name), 60)
        self.addCleanup(self.kubectl, "delete", "tjob", name, "--ignore-not-found", check=False)
        self.apply(shell_job(name, "echo $DEVICES; exec sleep 900", count=count,
                             resources={"cpu": "50m", "memory": "32Mi", "gpus": gpus}))

    def devices(self, name):
        """What each worker was given, as (number of the switch, address)."""
        given = []
        for pod in sorted(self.pods(name), key=lambda one: one["metadata"]["name"]):
            line = ""

            def is_said():
                nonlocal line
                line = self.kubectl("logs", pod["metadata"]["name"]).strip()
                return line
            wait_for("it says which", is_said, 30)
            given.append([(number, gpu) for gpu in line.split(",") for number, below in enumerate(GPUS) if gpu in below])
        return given

    @staticmethod
    def switches(given):
        """Numbers of the switches that a worker's devices are below."""
        return sorted({number for number, _ in given})

    def admitted(self, name):
        """Status and message of the condition; empty before there is one."""
        for one in self.status(name).get("conditions", []):
            if one["type"] == "Admitted":
                return one["status"], one["message"]
        return "", ""

    def test_workers_of_four_gpus_each_have_a_switch_of_their_own(self):
        self.start("fours", 4, count=2)
        given = self.devices("fours")
        self.assertEqual(sorted(map(self.switches, given)), [[0], [1]])
        self.assertEqual([len(one) for one in given], [4, 4])
        status, message = self.admitted("fours")
        self.assertEqual(status, "True")
        self.assertNotIn("switch", message)
        self.assertIn("on node1 no NUMA node has 8 GPUs", message)

    def test_who_must_share_a_switch_is_told_with_whom(self):
        for name in ("three-a", "three-b"):
            self.start(name, 3)
            self.assertNotIn("shared", self.admitted(name)[1])
        self.start("two", 2)
        alone = [self.switches(self.devices(name)[0]) for name in ("three-a", "three-b")]
        self.assertEqual(sorted(alone), [[0], [1]])
        self.assertEqual(self.switches(self.devices("two")[0]), [0, 1])
        self.assertIn("on node1 team/three-a and team/three-b hold 6 of 8 GPUs, so one of its 2 PCIe switches is shared",
                      self.admitted("two")[1])

    def test_what_does_not_fit_waits_and_is_placed_when_gpus_come_free(self):
        self.start("five", 5)
        self.ask("four", 4)
        wait_for("it is told why", lambda: self.admitted("four")[0] == "False", 30)
        self.assertIn(RESOURCE, self.admitted("four")[1])
        self.kubectl("delete", "tjob", "five")
        wait_for("it runs", lambda: self.status("four").get("workers") == "1/1", 60)
        self.assertEqual(len(self.switches(self.devices("four")[0])), 1)


if __name__ == "__main__":
    installed.main()
