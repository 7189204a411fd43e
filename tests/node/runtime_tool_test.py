# SPDX-License-Identifier: Apache-2.0
"""A runtime's tool is run by the shipped unit: in the mounts, with the system calls, tasks and
capabilities that it leaves."""

import base64
import json

from node_test_case import NodeTest
from runtime_tools import TOOL, put_tool, stats_of, tool_runs

VOLUME = "/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/spare/mount"
DIRECTORY = ("/run/kata-containers/shared/direct-volumes/"
             + base64.urlsafe_b64encode(VOLUME.encode()).decode())


class RuntimeToolTest(NodeTest):

    DISKS = {"spare": 64 << 20}

    @classmethod
    def prepare(cls):
        put_tool(cls.node)
        cls.node.configure(crust__runtime_cli_allow=TOOL)
        information = json.dumps({"volume-type": "block", "fstype": "ext4", "metadata": {},
                                  "options": [], "device": "/dev/disk/by-id/virtio-spare"})
        cls.node.run(f"umask 077 && mkdir -p {DIRECTORY} && cat >{DIRECTORY}/mountInfo.json"
                     f" && echo {TOOL} >{DIRECTORY}/runtime-cli", given=information)
        cls.node.start_crustd()
        cls.node.wait(lambda: cls.node.volume(VOLUME), 60, "the volume to be seen")

    def test_its_answer_is_passed_on(self):
        reply = stats_of(self.node, VOLUME)
        self.assertEqual(reply.get("usage", [{}])[0].get("total"), 4096,
                         f"{reply}\n{self.node.journal()}")
        self.assertEqual(self.node.read("/run/called"), f"crust stats {VOLUME}\n")
        self.assertEqual(tool_runs(self.node), ["runtime_cli_intended", "runtime_cli_answered"])

    def test_not_one_that_only_the_unit_sees(self):
        """Another program in the unit's mounts than the node's first process has."""
        pid = self.node.property("MainPID")
        self.node.run(f"nsenter --target {pid} --mount mount --bind /bin/true {TOOL}")
        self.addCleanup(self.node.run, f"nsenter --target {pid} --mount umount {TOOL}")
        before = tool_runs(self.node)
        self.assertNotIn("usage", stats_of(self.node, VOLUME))
        self.assertEqual(tool_runs(self.node), before)
        self.assertIn("the node's first process has another file there", self.node.journal())
