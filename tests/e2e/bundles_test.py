# SPDX-License-Identifier: Apache-2.0
"""Where the bundles of a sandbox's containers are: in both of containerd's layouts, below its state
directory and k3s's, under both runtimes. And what is said of a bundle that cannot be read."""

import itertools
import json
import os
import secrets
import shutil

from rust_runtime import RustPod, RustShim, guest_name
from scratch_node import AFTER, ScratchNodeTest, findings

CONTAINERDS = ("run/containerd", "run/k3s/containerd")
HIDDEN = "which volumes it has is not known: "


class BundlesTest(ScratchNodeTest):

    def rust_pod(self, node, containerd=CONTAINERDS[0], sandbox_api=False):
        """It runs, and has no container yet."""
        pod = RustPod(node, secrets.token_hex(32), containerd, sandbox_api)
        pod.start(self)
        return pod

    def sandbox_row(self, node, sandbox_id):
        rows = node.query(f"SELECT * FROM audit_sandboxes WHERE sandbox_id = '{sandbox_id}'")
        return rows[0] if rows else {"status": None, "problem": None}

    def wait_alive(self, node, sandbox_id):
        node.wait(lambda: self.sandbox_row(node, sandbox_id)["status"] == "alive", 60, "the sandbox")

    def bound(self, node, volume, sandbox_id):
        node.wait(lambda: node.volume(volume.path)["sandbox_id"] == sandbox_id, 60, "the binding")
        self.assertIsNone(self.sandbox_row(node, sandbox_id)["problem"])

    def test_go_runtime(self):
        for number, (containerd, sandbox_api) in enumerate(itertools.product(CONTAINERDS, (False, True))):
            with self.subTest(containerd=containerd, sandbox_api=sandbox_api):
                node, sandbox_id = self.node(), secrets.token_hex(32)
                agent = self.agent(node, f"agent{number}.sock")
                volume = self.volume(node)
                vmm = node.start_vmm(sandbox_id)
                node.add_sandbox(sandbox_id, vmm.pid, drives=[volume.record()],
                                 agent=f"unix:///agent{number}.sock")
                self.monitor(node, volume, sandbox_id=sandbox_id)
                containers = self.containers(node, sandbox_id, containerd=containerd, sandbox_api=sandbox_api)
                node.start()
                self.wait_alive(node, sandbox_id)
                self.assertEqual(node.volume(volume.path)["state"], "unbound")
                bundle = containers.run((volume.path, "/data"))
                self.bound(node, volume, sandbox_id)
                node.grow(volume, AFTER)
                agent.wait_for_requests(1, method="ResizeVolume")
                shutil.rmtree(bundle)
                node.wait_for(volume.path, "unbound", "none")

    def test_rust_runtime(self):
        for containerd, sandbox_api in itertools.product(CONTAINERDS, (False, True)):
            with self.subTest(containerd=containerd, sandbox_api=sandbox_api):
                node, volume = self.node_with_volume()
                pod = self.rust_pod(node, containerd, sandbox_api)
                node.start()
                self.wait_alive(node, pod.id)
                self.assertEqual(node.volume(volume.path)["state"], "unbound")
                container = pod.run_container(volume.path, guest_name("data"))
                self.bound(node, volume, pod.id)
                pod.end_container(container)
                node.wait_for(volume.path, "unbound", "none")

    def findings(self, node):
        return [one for one in findings(node) if HIDDEN in one["what"]]

    def check_fault(self, node, pod, volume, spoil, text):
        """A container whose bundle is spoiled before it is there; then it is mended."""
        container = secrets.token_hex(32)
        making = node.root / "making"
        making.mkdir(mode=0o700)
        spoil(making / "config.json", volume)
        os.rename(making, pod.bundle(container))
        file = "/" + str((pod.bundle(container) / "config.json").relative_to(node.root))
        row = node.wait_for(volume.path, "unbound", "bundle_unreadable")
        for said in (row["evidence"], self.sandbox_row(node, pod.id)["problem"]):
            self.assertIn(HIDDEN + file, said)
            self.assertIn(text, said)
        self.assertIn(pod.id, row["evidence"])
        self.assertEqual(node.log_tail().count(f"not believed: {HIDDEN}{file}"), 1)
        self.assertEqual([file in one["what"] for one in self.findings(node)], [True])
        explained = " ".join(node.crustctl("explain", volume.path).stdout.split())
        self.assertIn("it may use this volume", explained)
        self.assertIn(f"{container}/config.json", explained)
        (pod.bundle(container) / "config.json").unlink()
        pod.bundle(container).chmod(0o700)
        pod.write_bundle(container, [(volume.path, "/data")])
        self.bound(node, volume, pod.id)
        node.wait(lambda: not self.findings(node), 60, "the doctor to be content")
        pod.end_container(container)
        node.wait_for(volume.path, "unbound", "none")

    @staticmethod
    def put_large(file, _):
        file.touch()
        os.truncate(file, 64 << 20)

    @staticmethod
    def put_writable(file, _):
        file.write_text("{}")
        file.chmod(0o666)
        file.parent.chmod(0o711)

    @staticmethod
    def put_twice(file, _):
        file.write_text('{"mounts": [], "Mounts": []}')

    def test_unreadable_bundle_is_said(self):
        for sandbox_api in (False, True):
            node, volume = self.node_with_volume({"resize.sweep_seconds": 1})
            pod = self.rust_pod(node, sandbox_api=sandbox_api)
            pod.write_bundle(secrets.token_hex(32), [])
            node.start()
            node.wait_for(volume.path, "unbound", "none")
            for spoil, text in ((self.put_large, "bytes"), (self.put_writable, "is writable by others"),
                                (self.put_twice, "config.json: ")):
                with self.subTest(sandbox_api=sandbox_api, text=text):
                    self.check_fault(node, pod, volume, spoil, text)

    def test_sandbox_without_bundles_is_said(self):
        """It ends, and then nothing can hide a volume any more."""
        node, volume = self.node_with_volume()
        pod = RustPod(node, secrets.token_hex(32))
        pod.make_directories()
        pod.bundle = lambda _: node.root  # where the shim works
        shim = RustShim(pod)
        self.addCleanup(shim.close)
        vmm = node.start_vmm(pod.id)
        pod.write_state("qemu")
        node.start()
        row = node.wait_for(volume.path, "unbound", "bundle_unreadable")
        self.assertIn("no bundle of it is found", row["evidence"])
        self.assertIn("no bundle of it is found", self.sandbox_row(node, pod.id)["problem"])
        self.assertEqual(len(self.findings(node)), 1)
        status = json.loads(node.crustctl("status", "-o", "json", check=False).stdout)
        self.assertIn(pod.id, status["cleanup_problem"])
        vmm.stop()
        node.wait_for(volume.path, "unbound", "none")

    def test_umask_of_zero(self):
        """Only root can enter the directory, so the file's own mode opens it to nobody."""
        node, volume = self.node_with_volume()
        pod = self.rust_pod(node)
        container = pod.run_container(volume.path, guest_name("data"))
        (pod.bundle(container) / "config.json").chmod(0o666)
        node.start()
        self.bound(node, volume, pod.id)
