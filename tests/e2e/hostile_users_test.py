# SPDX-License-Identifier: Apache-2.0
"""Users of the node who start programs with a sandbox's arguments, in directories of their own:
crustd believes none of them, even the first, and says so."""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import subprocess

from locked_memory import start_locked_process
from rust_runtime import RustPod, RustShim, guest_name
from scratch_node import ScratchNodeTest, findings

NOBODY = 65534
# No other test has such processes meanwhile.
VICTIM, OTHER = secrets.token_hex(32), secrets.token_hex(32)


class HostileUsersTest(ScratchNodeTest):
    hostile = True

    def setUp(self):
        super().setUp()
        self.host = self.node({"resize.sweep_seconds": 1})

    # the node's side

    def pod(self, sandbox_id):
        pod = RustPod(self.host, sandbox_id)
        pod.make_directories()
        return pod

    def run_pod(self, pod, volume):
        """Shim, VMM and a container with the volume."""
        pod.shim = RustShim(pod)
        self.addCleanup(pod.shim.close)
        pod.vmm = self.host.start_vmm(pod.id)
        pod.write_state("qemu")
        pod.run_container(volume.path, guest_name("data"))

    # the users'

    def start(self, arguments, directory="/", user=NOBODY):
        # pylint: disable-next=consider-using-with
        process = subprocess.Popen([arguments[0], "-c", "read _", *arguments[1:]],
                                   executable="/bin/sh", cwd=directory, stdin=subprocess.PIPE,
                                   user=user, group=user, extra_groups=[])
        self.addCleanup(self.finish, process)
        return process

    @staticmethod
    def finish(process):
        process.kill()
        process.wait()
        process.stdin.close()

    def impersonate(self, sandbox_id, *mounts, home="home"):
        """A shim and a VMM of a user's, in a bundle of the user's that mounts these paths."""
        bundle = self.host.root / home / sandbox_id
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps({
            "mounts": [{"source": path, "destination": f"/data{number}", "type": "bind"}
                       for number, path in enumerate(mounts)],
            "annotations": {"io.kubernetes.cri.sandbox-id": sandbox_id}}))
        for one in (bundle, bundle.parent, bundle / "config.json"):
            os.chown(one, NOBODY, NOBODY)
        return (self.start(["containerd-shim-kata-v2", "-id", sandbox_id], bundle),
                self.start(["qemu-system-x86_64", "-name", f"sandbox-{sandbox_id}"], bundle))

    # what crustd says

    def sandboxes(self):
        return {row["sandbox_id"]: row["vmm_pid"] for row in self.host.query(
            "SELECT sandbox_id, vmm_pid FROM audit_sandboxes WHERE status = 'alive'")}

    def findings(self):
        return [one["what"] for one in findings(self.host) if "not believed" in one["what"]]

    def check_two_pods(self, *, impostor_first):
        """A user becomes the victim's shim, and claims the other pod's volume."""
        victim, other = self.pod(VICTIM), self.pod(OTHER)
        own, claimed = self.volume(self.host, "own"), self.volume(self.host, "claimed")
        if impostor_first:
            self.impersonate(VICTIM, claimed.path)
        self.run_pod(victim, own)
        self.run_pod(other, claimed)
        if not impostor_first:
            self.impersonate(VICTIM, claimed.path)
        self.host.start()
        self.settle(self.host)
        self.assertEqual(self.sandboxes(), {VICTIM: victim.vmm.pid, OTHER: other.vmm.pid})
        for volume, sandbox_id in ((own, VICTIM), (claimed, OTHER)):
            row = self.host.volume(volume.path)
            self.assertEqual(row["sandbox_id"], sandbox_id, row)
            self.assertNotEqual(row["reason"], "multiple_sandboxes", row)

    def test_a_users_process_before_the_real_one(self):
        self.check_two_pods(impostor_first=True)

    def test_a_users_process_after_the_real_one(self):
        self.check_two_pods(impostor_first=False)

    def test_a_users_process_alone(self):
        """Nothing runs for the sandbox except processes that a user has started."""
        self.pod(VICTIM).write_state("qemu")
        volume = self.volume(self.host)
        shim, vmm = self.impersonate(VICTIM, volume.path)
        self.host.start()
        self.host.wait(self.findings, 30, "the doctor to say so")
        self.assertEqual(self.sandboxes(), {})
        self.assertEqual(self.host.volume(volume.path)["state"], "unbound")
        self.assertIn(f"process {vmm.pid} names the sandbox but is not trusted: it belongs to another user",
                      self.findings()[0])
        self.assertIn("it belongs to another user", self.host.log_tail())
        for process in (shim, vmm):
            process.kill()
            process.wait()
        self.host.wait(lambda: not self.findings(), 30, "the doubt to pass")

    def test_two_processes_of_root_are_both_refused(self):
        pod, volume = self.pod(VICTIM), self.volume(self.host)
        self.run_pod(pod, volume)
        second = self.start(["qemu-system-x86_64", "-name", f"sandbox-{VICTIM}"], user=0)
        self.host.start()
        self.host.wait(self.findings, 30, "the doctor to say so")
        self.assertEqual(self.sandboxes(), {})
        self.assertIn("both name the sandbox", self.findings()[0])
        second.kill()
        second.wait()
        self.host.wait(lambda: self.sandboxes() == {VICTIM: pod.vmm.pid}, 30, "the real one")
        self.assertEqual(self.findings(), [])

    def test_a_number_that_a_user_has_got_again(self):
        """The pid file of Kata's Go runtime names a process of a user's."""
        volume = self.volume(self.host)
        vmm = self.start(["qemu-system-x86_64", "-name", f"sandbox-{VICTIM}"])
        self.host.add_sandbox(VICTIM, vmm.pid, drives=[volume.record()])
        self.host.record(volume.path, VICTIM)
        self.host.start()
        self.settle(self.host)
        self.assertEqual(self.sandboxes(), {})
        self.assertEqual(self.host.volume(volume.path)["state"], "unbound")

    def watches(self):
        """How many inotify watches crustd has; descriptors come and go."""
        count = 0
        for file in pathlib.Path(f"/proc/{self.host.process.pid}/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += file.read_text().count("inotify wd:")
        return count

    def test_a_user_who_keeps_memory_locked(self):
        """Who reads the arguments of such a process waits for it; crustd names it, and goes on."""
        holder = start_locked_process(self)
        pod, volume = self.pod(VICTIM), self.volume(self.host)
        self.host.start()
        self.run_pod(pod, volume)
        self.host.wait(lambda: self.sandboxes() == {VICTIM: pod.vmm.pid}, 30, "the pod")
        # One that runs nowhere is looked for again and again.
        self.host.record(self.volume(self.host, "other").path, OTHER)
        said = f"the arguments of process {holder.pid} cannot be read"
        self.host.wait(lambda: self.host.crustctl("resync") and said in self.host.log.read_text(),
                       60, "the process to be named")
        self.assertEqual(self.host.volume(volume.path)["sandbox_id"], VICTIM)
        self.assert_served(self.host)

    def test_users_take_no_watches(self):
        pods = [self.pod(secrets.token_hex(32)) for _ in range(6)]
        for pod in pods:
            pod.write_state("qemu")
        self.host.start()
        self.settle(self.host)
        before = self.watches()
        for number, pod in enumerate(pods):
            self.impersonate(pod.id, "/data", home=f"home{number}")
        self.host.wait(lambda: self.host.crustctl("resync") and
                       len(self.findings()) + len(self.sandboxes()) == len(pods), 60, "all to be observed")
        self.assertEqual((self.sandboxes(), self.watches()), ({}, before))

    def test_directories_are_watched_for_as_long_as_a_pod_needs_them(self):
        volume = self.volume(self.host)
        self.host.path("/run/kata").mkdir()
        self.host.start()
        self.settle(self.host)
        before = self.watches()
        pod = self.pod(VICTIM)
        self.run_pod(pod, volume)
        self.host.wait(self.sandboxes, 30, "the pod")
        self.settle(self.host)
        self.assertGreater(self.watches(), before)
        pod.vmm.stop()
        pod.shim.close()
        self.host.wait(lambda: not self.sandboxes(), 30, "the pod to be gone")
        shutil.rmtree(pod.state)
        self.settle(self.host)
        self.host.wait(lambda: self.watches() == before, 30, "the watches to be released")
