# SPDX-License-Identifier: Apache-2.0
"""A VMM that has outlived its sandbox's shim: what crustd says of it, what it refuses, and what follows once it has ended."""

import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys

from cleanups import CleanupTest
from drives import DrivesTest
from grpc_stage_test import StageTest
from programs import GuestError, wait_until
from rust_runtime import RustPod, guest_name
from scratch_node import metrics_of, publish_path

NOBODY = 65534

# argv: the user, the device or "", the pipe from which it never gets anything, the sandbox. The VMM is made a child of the
# first process, as one whose shim has ended is.
START = """
import os, sys
user, device, pipe, sandbox = sys.argv[1:]
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    else:
        if device:
            os.set_inheritable(os.open(device, os.O_RDWR), True)
        os.setgid(int(user)), os.setuid(int(user))
        os.execv("/bin/sh", ["qemu-system-x86_64", "-c", "echo $$; exec <>$0 >&0; read _; :", pipe, "-name", "sandbox-" + sandbox])
"""


class Orphan:
    """A process that has a sandbox's id in its arguments, a device open, and no parent of its own."""

    def __init__(self, test, sandbox_id, device="", user=0):
        pipe = test.scratch / f"pipe-{secrets.token_hex(4)}"
        os.mkfifo(pipe)
        os.chown(pipe, user, user)
        os.chmod(test.scratch, 0o755)
        done = subprocess.run([sys.executable, "-c", START, str(user), device, str(pipe), sandbox_id], check=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60)
        self.pid = int(done.stdout)
        test.addCleanup(self.end)

    def end(self):
        if self.is_there():
            os.kill(self.pid, signal.SIGKILL)

    def is_there(self):
        arguments = pathlib.Path(f"/proc/{self.pid}/cmdline")
        return arguments.exists() and arguments.read_bytes().startswith(b"qemu-system-x86_64\0")

    def is_adopted(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return "\nPPid:\t1\n" in status


class OrphanCase(StageTest):
    """Sandboxes have ids of their own, because crustd looks for them among all processes of this machine."""

    def setUp(self):
        super().setUp()
        self.sandbox_id = secrets.token_hex(32)

    def start_vmm(self, volume, sandbox_id=None, **options):
        vmm = Orphan(self, sandbox_id or self.sandbox_id, volume.loop.device, **options)
        try:
            wait_until(vmm.is_adopted, 10, "the first process to adopt it")
        except GuestError:
            self.skipTest("children are adopted by another process than the first one here")
        return vmm

    def start_rust(self, node, volume):
        pod = RustPod(node, self.sandbox_id)
        shim = pod.start(self, vmm=False)
        vmm = self.start_vmm(volume)
        pod.run_container(volume.path, guest_name("data"))
        return pod, shim, vmm

    def start_go(self, node, volume):
        """Its shim has no directory that tells more than Kata's records."""
        vmm = self.start_vmm(volume)
        node.add_sandbox(self.sandbox_id, vmm.pid, drives=[volume.record()])
        node.record(volume.path, self.sandbox_id)
        shim = subprocess.Popen(  # pylint: disable=consider-using-with
            ["containerd-shim-kata-v2", "-c", "read _", "-namespace", "k8s.io", "-id", self.sandbox_id],
            executable="/bin/sh", stdin=subprocess.PIPE)
        self.addCleanup(self.end_process, shim)
        return shim, vmm

    def end_process(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdin.close()

    def status_of(self, node, sandbox_id=None):
        rows = node.query("SELECT status, vmm_pid FROM audit_sandboxes WHERE sandbox_id ="
                          f" '{sandbox_id or self.sandbox_id}' ORDER BY rowid")
        return (rows[-1]["status"], rows[-1]["vmm_pid"]) if rows else None

    def wait_orphaned(self, node, volume, vmm):
        row = node.wait_for(volume.path, "blocked", "sandbox_orphaned", sandbox_id=self.sandbox_id)
        self.assertIn(f"kill {vmm.pid}", row["evidence"])
        self.assertEqual(self.status_of(node), ("orphaned", vmm.pid))
        self.explains(node, volume.path, f"kill {vmm.pid}", self.sandbox_id, "never kills")

    def wait_gone(self, node, volume, vmm):
        os.kill(vmm.pid, signal.SIGTERM)
        node.wait_for(volume.path, "unbound", "none", sandbox_id=None)
        node.wait(lambda: self.status_of(node)[0] == "gone", 60, "the sandbox to be gone")

    def refuse(self, vmm, *arguments):
        with self.fails("UNAVAILABLE", f"process {vmm.pid}", self.sandbox_id):
            self.stage(*arguments)


class Rust(OrphanCase):
    """`shim delete` removes the sandbox's records within a second."""

    def test_it_is_bound_until_it_ends(self):
        node, volume = self.node_with_volume()
        pod, shim, vmm = self.start_rust(node, volume)
        self.daemon(node)
        node.wait_bound(volume.path)
        self.assertEqual(self.status_of(node), ("alive", vmm.pid))
        shim.close()
        shutil.rmtree(pod.state)
        self.wait_orphaned(node, volume, vmm)
        node.kill()
        self.daemon(node)
        self.wait_orphaned(node, volume, vmm)
        self.refuse(vmm, publish_path("pv-2"), volume.loop.device)
        self.refuse(vmm, volume.path, volume.loop.device)
        self.assertIn("orphaned", node.crustctl("sandboxes").stdout)
        self.check_named(node, vmm)
        node.unstage(volume.path)  # by the kubelet, as the pod has ended
        node.wait_for(volume.path, "unmanaged", "unstaged")
        self.check_named(node, vmm)
        node.stage(volume.path, volume.loop.device)
        self.wait_orphaned(node, volume, vmm)
        self.wait_gone(node, volume, vmm)
        self.stage(volume.path, volume.loop.device)

    def check_named(self, node, vmm):
        """Its process and its volume, for a person who is to end it."""
        name = node.query("SELECT pv FROM audit_volumes")[0]["pv"]
        doctor = node.crustctl("doctor", check=False).stdout
        self.assertRegex(" ".join(doctor.split()), rf"process {vmm.pid}.*volume {name}.*kill {vmm.pid}")
        labels = [name for name in metrics_of(node) if name.startswith("crustd_sandboxes_orphaned{")]
        self.assertEqual(len(labels), 1, labels)
        self.assertIn(f'sandbox="{self.sandbox_id}",pid="{vmm.pid}",volumes="{name}"', labels[0])

    def test_records_that_go_while_the_shim_runs(self):
        """As in a normal end, in which the process is a moment behind."""
        node, volume = self.node_with_volume()
        pod, _, vmm = self.start_rust(node, volume)
        self.daemon(node)
        node.wait_bound(volume.path)
        shutil.rmtree(pod.state)
        self.settle(node)
        self.assertEqual(self.status_of(node), ("alive", vmm.pid))
        self.wait_gone(node, volume, vmm)

    def test_another_volume_on_its_device(self):
        """The kubelet has let go of the volume: the device is still the VMM's."""
        node, volume = self.node_with_volume()
        pod, shim, vmm = self.start_rust(node, volume)
        self.daemon(node)
        node.wait_bound(volume.path)
        shim.close()
        shutil.rmtree(pod.state)
        self.wait_orphaned(node, volume, vmm)
        node.unstage(volume.path)
        row = node.wait_for(volume.path, "unmanaged", "unstaged", status="removed", sandbox_id=self.sandbox_id)
        self.assertIn(f"in process {vmm.pid}", row["evidence"])
        other = dataclasses.replace(volume, path=publish_path("pv-2"))
        self.refuse(vmm, other.path, volume.loop.device)
        node.stage(other.path, volume.loop.device)  # a driver that does not ask crustd
        self.wait_orphaned(node, other, vmm)
        second = self.sandbox(node, other, sandbox_id=secrets.token_hex(32))
        row = node.wait_for(other.path, "blocked", "multiple_sandboxes")
        self.assertIn("outlived its shim", row["evidence"])
        second.stop()
        self.wait_orphaned(node, other, vmm)
        third = secrets.token_hex(32)
        self.sandbox(node, other, sandbox_id=third)
        node.wait_for(other.path, "blocked", "multiple_sandboxes")
        os.kill(vmm.pid, signal.SIGTERM)
        node.wait_for(other.path, "in_sync", sandbox_id=third)


class Go(OrphanCase):
    """The engine's `shim delete` was killed: the records stay."""

    def test_it_is_orphaned_with_its_records(self):
        node, volume = self.node_with_volume()
        shim, vmm = self.start_go(node, volume)
        self.daemon(node)
        node.wait_bound(volume.path)
        self.settle(node)
        self.assertEqual(self.status_of(node), ("alive", vmm.pid))
        self.end_process(shim)
        self.wait_orphaned(node, volume, vmm)
        self.refuse(vmm, publish_path("pv-2"), volume.loop.device)
        changes = node.query("SELECT count(*) AS n FROM audit_journal WHERE kind LIKE 'sandbox_%'")
        node.stop()
        node.end_sandbox(self.sandbox_id)
        self.daemon(node)
        self.wait_orphaned(node, volume, vmm)
        node.crustctl("resync")
        self.settle(node)
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_journal WHERE kind LIKE 'sandbox_%'"), changes)
        self.wait_gone(node, volume, vmm)

    def test_the_shim_ended_while_no_daemon_ran(self):
        node, volume = self.node_with_volume()
        shim, vmm = self.start_go(node, volume)
        self.end_process(shim)
        self.daemon(node)
        self.wait_orphaned(node, volume, vmm)
        self.wait_gone(node, volume, vmm)


class Found(OrphanCase):
    """No record names the VMM, and crustd has none of its own: it is sought right after the first scan."""

    def test_it_has_a_volume(self):
        node = self.node({"resize.sweep_seconds": 3600})
        volume, free = self.volume(node), self.volume(node, "free")
        vmm = self.start_vmm(volume)
        other = Orphan(self, secrets.token_hex(32))  # has no volume's device
        self.start_vmm(free, secrets.token_hex(32), user=NOBODY)
        self.daemon(node)
        self.wait_orphaned(node, volume, vmm)
        self.refuse(vmm, publish_path("pv-2"), volume.loop.device)
        self.settle(node)
        self.assertEqual([row["vmm_pid"] for row in node.query("SELECT vmm_pid FROM audit_sandboxes")], [vmm.pid])
        self.assertTrue(other.is_there())
        node.wait_for(free.path, "unbound", "none")
        node.kill()
        self.daemon(node)
        self.wait_orphaned(node, volume, vmm)
        self.wait_gone(node, volume, vmm)


class Cleaned(CleanupTest):
    """The metadata of its volume stays until it has ended, and for the grace time."""

    def test_kept_and_removed(self):
        node = self.kubelet_node()
        loop = self.loop()
        node.add_device(loop.device)
        path = publish_path("pv")
        node.path(path).mkdir(parents=True)
        (node.path(path).parent / "vol_data.json").write_text('{"driverName":"csi.example"}')
        node.stage(path, loop.device)
        vmm = Orphan(self, self.sandbox_id, loop.device)
        node.start()
        node.wait_for(path, "blocked", "sandbox_orphaned")
        self.unpublish(node)
        row = self.wait_kept(node, path, "sandbox_alive")
        self.assertEqual([sandbox["pid"] for sandbox in json.loads(row["evidence"])["sandboxes"]], [vmm.pid])
        os.kill(vmm.pid, signal.SIGTERM)
        self.assertEqual(self.wait_removed(node, path)["reason"], "sandbox_ended")


class Attached(DrivesTest):
    """Nobody else gets its device as a drive."""

    def test_refused_until_it_ends(self):
        node = self.drive_node()
        loop = self.disk(node)
        sandbox_id = secrets.token_hex(32)
        node.stage(publish_path("pv"), loop.device)
        vmm = Orphan(self, sandbox_id, loop.device)
        node.start()
        node.wait_for(publish_path("pv"), "blocked", "sandbox_orphaned")
        with self.fails("UNAVAILABLE", f"process {vmm.pid}", sandbox_id):
            self.attach(node, "data-1", loop)
        os.kill(vmm.pid, signal.SIGTERM)
        node.wait_for(publish_path("pv"), "unbound", "none")
        node.unstage(publish_path("pv"))
        node.wait_for(publish_path("pv"), "unmanaged", status="removed")
        self.attach(node, "data-1", loop)
