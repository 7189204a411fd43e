# SPDX-License-Identifier: Apache-2.0
"""The example CSI driver, judged by csi-sanity: without crustd, and beside one.

Beside crustd each volume that the driver hands over gets a pod, as the kubelet starts one after it has
published the volume: without one nobody could say how full the volume is.
"""

import re
import subprocess

from csi_driver import GROWN, SIZE, CsiTest, Kubelet
from go_programs import build
from node import REPOSITORY

SANITY = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
FEWEST = 45  # of its cases apply to what the driver declares: fewer means that it declares less


class SanityTest(CsiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sanity = build(REPOSITORY / "tests/csi-sanity", SANITY, "csi-sanity")

    def judge(self, socket, *arguments):
        """Runs csi-sanity, shows its summary, and returns what it printed."""
        secrets = self.scratch / "secrets.yaml"
        secrets.write_text("".join(
            f"{call}Secret:\n  password: do-not-print-me\n"
            for call in ("CreateVolume", "DeleteVolume", "ControllerPublishVolume",
                         "ControllerUnpublishVolume", "ControllerExpandVolume", "NodeStageVolume",
                         "NodePublishVolume")))
        done = subprocess.run(
            [self.sanity, f"--csi.endpoint=unix://{socket}",
             f"--csi.mountdir={self.scratch}/csi/mount", f"--csi.stagingdir={self.scratch}/csi/staging",
             f"--csi.testvolumesize={SIZE}", f"--csi.testvolumeexpandsize={GROWN}",
             f"--csi.secrets={secrets}", "--ginkgo.no-color", *arguments],
            capture_output=True, text=True, timeout=600)
        output = done.stdout + done.stderr
        summary = re.findall(r"^Ran .*|^\w+! -- .*", output, re.M)
        print(*summary, sep="\n", flush=True)
        self.assertEqual(done.returncode, 0, output[-8000:])
        self.assertGreaterEqual(int(re.search(r"(\d+) Passed", output)[1]), FEWEST, output[-2000:])
        return output

    def nothing_is_left(self, driver):
        self.assertEqual(driver.devices(), [])
        self.assertEqual(driver.mounts(), [])
        self.assertEqual(list(driver.files.iterdir()), [])
        self.assertEqual(list((driver.directory / "state").iterdir()), [])
        self.assertNotIn("do-not-print-me", driver.log.read_text())

    def test_without_crustd(self):
        driver = self.driver()
        self.judge(driver.socket)
        self.nothing_is_left(driver)

    def test_block_volumes(self):
        driver = self.driver()
        self.judge(driver.socket, "--csi.testvolumeaccesstype=block")
        self.nothing_is_left(driver)

    def test_beside_crustd(self):
        node = self.running_node()
        driver = self.driver(crustd=node)
        kubelet = Kubelet(node, driver, self.scratch / "kubelet.sock")
        self.addCleanup(kubelet.end)
        parameters = self.scratch / "parameters.yaml"
        parameters.write_text("runtime: vm\n")
        self.judge(self.scratch / "kubelet.sock", f"--csi.testvolumeparameters={parameters}")
        self.nothing_is_left(driver)
        self.assertGreater(kubelet.begun, 4)
        self.assertEqual(kubelet.pods, {})
        kinds = {row["kind"] for row in node.query("SELECT DISTINCT kind FROM audit_journal")}
        self.assertLessEqual({"volume_staged", "volume_unstaged"}, kinds)
