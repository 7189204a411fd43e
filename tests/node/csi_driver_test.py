# SPDX-License-Identifier: Apache-2.0
"""The example CSI driver on a node: volumes on LVM, crustd as a service, a guest on KVM."""

import json
import re
import tempfile
import unittest

import csi_driver
import grpc_client
from go_programs import build
from node_test_case import REPOSITORY
from sandboxes import MIB, RESIZE_SECONDS, TOOLS, SandboxTest

SOCKET, GROUP = "/run/csi.sock", "crust"
SIZE, GROWN, LARGER = 64 * MIB, 128 * MIB, 192 * MIB
SANITY = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"


class CsiDriverTest(SandboxTest):
    # csi-sanity makes volumes of 1 GiB too, one at a time.
    DISKS = {"lvm": 3 << 30}

    @classmethod
    def get_programs(cls):
        if grpc_client.missing():
            raise unittest.SkipTest(f"needs {grpc_client.missing()}")
        cls.programs = {"crust-csi": csi_driver.program(),
                        "csi-sanity": build(REPOSITORY / "tests/csi-sanity", SANITY, "csi-sanity")}

    @classmethod
    def prepare(cls):
        super().prepare()
        for name, program in cls.programs.items():
            cls.node.put(program, f"{TOOLS}/{name}")
        cls.node.put(REPOSITORY / "tests/node/csi_calls.py", f"{TOOLS}/csi_calls.py")
        with tempfile.TemporaryDirectory() as stubs:
            csi_driver.make_stubs(stubs)
            cls.node.put(stubs, f"{TOOLS}/stubs")
        cls.node.run(f"vgcreate -q {GROUP} /dev/disk/by-id/virtio-lvm")
        cls.node.configure(resize__sweep_seconds=5)
        cls.node.start_crustd()
        # As in its pod: mounts of its own, into which the node's come; what it mounts is the node's.
        cls.node.run(["systemd-run", "--quiet", "--unit=crust-csi", "--property=PrivateMounts=yes",
                      f"{TOOLS}/crust-csi", f"--endpoint=unix://{SOCKET}", "--node-id=node-1",
                      f"--volume-group={GROUP}", "--run-on-node"])
        cls.node.wait(f"[ -S {SOCKET} ]", 60, "the driver")

    def call(self, method, **arguments):
        answer = json.loads(self.node.output(
            ["python3", f"{TOOLS}/csi_calls.py", SOCKET, method, json.dumps(arguments)],
            seconds=600))
        if isinstance(answer, dict) and "code" in answer:
            raise AssertionError(f"{method}: {answer}\n{self.node.journal(unit='crust-csi')[-3000:]}")
        return answer

    def refused(self, code, method, **arguments):
        with self.assertRaisesRegex(AssertionError, code):
            self.call(method, **arguments)

    def create(self, name, runtime):
        volume = self.call("create", name=name, size=SIZE, parameters={"runtime": runtime})
        return {key: volume[key] for key in ("volume_id", "volume_context")}

    def logical_volumes(self):
        return self.node.output(f"lvs --noheadings -o lv_name {GROUP}").split()

    def test_csi_sanity(self):
        """The cases in which storage does something, each once: LVM's tools take minutes on emulated
        processors. tests/e2e/csi_sanity_test.py has them all."""
        self.node.write("/run/parameters.yaml", "runtime: host\n")
        done = self.node.run(
            [f"{TOOLS}/csi-sanity", f"--csi.endpoint=unix://{SOCKET}", "--ginkgo.no-color",
             "--ginkgo.skip=idempotent", "--ginkgo.focus=CreateVolume|DeleteVolume|ExpandVolume|should work",
             f"--csi.testvolumesize={SIZE}", f"--csi.testvolumeexpandsize={GROWN}",
             "--csi.testvolumeparameters=/run/parameters.yaml"], check=False, seconds=900)
        print(*re.findall(r"^Ran .*|^\w+! -- .*", done.stdout, re.M), sep="\n", flush=True)
        self.assertEqual(done.status, 0, done.stdout[-8000:])
        self.assertGreaterEqual(int(re.search(r"(\d+) Passed", done.stdout)[1]), 15)
        self.assertEqual(self.logical_volumes(), [])

    def test_the_node_mounts_it(self):
        volume, target = self.create("pvc-host", "host"), "/run/pods/host/mount"
        self.assertEqual(self.logical_volumes(), ["csi-pvc-host"])
        self.call("stage", volume=volume, staging="/run/staging")
        self.call("publish", volume=volume, target=target, staging="/run/staging")
        self.node.run(f"findmnt --noheadings {target} && echo kept >{target}/file")
        self.assertEqual(self.call("expand", volume=volume, target=target, size=GROWN), GROWN)
        size = int(self.node.output(f"stat -f -c '%b %S' {target} | awk '{{ print $1 * $2 }}'"))
        self.assertGreater(size, GROWN * 3 // 4)
        self.assertEqual(int(self.call("stats", volume=volume, target=target)["usage"][0]["total"]),
                         size)
        self.refused("FAILED_PRECONDITION", "delete", volume=volume)
        self.call("unpublish", volume=volume, target=target)
        self.call("unstage", volume=volume, staging="/run/staging")
        self.assertEqual(self.node.output(f"ls /dev/{GROUP} 2>/dev/null || true"), "")
        self.call("stage", volume=volume, staging="/run/staging")
        self.call("publish", volume=volume, target=target, staging="/run/staging")
        self.assertEqual(self.node.output(f"cat {target}/file"), "kept")
        self.call("unpublish", volume=volume, target=target)
        self.call("unstage", volume=volume, staging="/run/staging")
        self.call("delete", volume=volume)
        self.assertEqual(self.logical_volumes(), [])

    def test_a_guest_mounts_it(self):
        volume = self.create("pvc-guest", "vm")
        sandbox = self.add_sandbox({"pvc-guest": (f"/dev/{GROUP}/csi-pvc-guest", "ext4")}, staged=True)
        target = sandbox.volumes["pvc-guest"].path
        self.call("stage", volume=volume, staging="/run/staging-guest")
        self.call("publish", volume=volume, target=target, staging="/run/staging-guest")
        # The claim is edited before the pod starts: the kubelet waits for this answer.
        self.call("expand_device", volume_id=volume["volume_id"], size=GROWN)
        self.assertEqual(self.call("expand", volume=volume, target=target, size=GROWN), GROWN)
        sandbox.start()
        sandbox.wait_ready()
        disk, file_system = self.settle("pvc-guest")
        self.assertEqual(disk, GROWN)
        self.assertGreater(file_system, GROWN * 3 // 4)
        # And while it runs.
        self.call("expand_device", volume_id=volume["volume_id"], size=LARGER)
        self.assertEqual(self.call("expand", volume=volume, target=target, size=LARGER), LARGER)
        disk, file_system = self.guest_sizes("pvc-guest")
        self.assertEqual(disk, LARGER)
        self.assertGreater(file_system, LARGER * 3 // 4)
        sandbox.ask("verify", 0)
        usage = self.call("stats", volume=volume, target=target)["usage"][0]
        self.assertEqual(int(usage["total"]), file_system)
        # A VMM has the device open: LVM does not let go of it.
        self.refused("FAILED_PRECONDITION", "unstage", volume=volume, staging="/run/staging-guest")
        self.node.run(f"systemctl stop {sandbox.unit}", seconds=RESIZE_SECONDS)
        self.call("unpublish", volume=volume, target=target)
        self.node.wait(lambda: self.node.volume(target)["status"] == "removed", 60, "the removal")
        self.call("unstage", volume=volume, staging="/run/staging-guest")
        self.call("delete", volume=volume)
        self.assertEqual(self.logical_volumes(), [])
