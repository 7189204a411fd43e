# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of Kata's Go runtime whose VMM is a scripted Cloud Hypervisor or Firecracker.

    vmm = cloud_hypervisor(test, node, sandbox_id, volume, "v52.0")
    record(node, vmm, volume)
    vmm.set(close_on="PUT")         # the hooks of MicroHttp
    vmm.sent("PUT")

The VMM is a process of its own, because crustd talks to an HTTP API only if the VMM's process serves
it. It ends with the test, or when it is told to.
"""

import json
import pathlib
import subprocess
import sys

FAKES = pathlib.Path(__file__).resolve().parent.parent / "fakes"
DRIVE = "drive_1"


class Vmm:
    """A fake as a process, with the arguments that Kata would have given to the real one."""

    def __init__(self, test, sandbox_id, kind, arguments):
        self.sandbox_id, self.kind = sandbox_id, kind
        self.log = test.scratch / f"{sandbox_id}.requests"
        self.process = subprocess.Popen(
            [kind, FAKES / f"{kind.replace('-', '_')}.py", *map(str, arguments), "--obey",
             "--log", str(self.log)],
            executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        test.addCleanup(self.stop)

    def set(self, **hooks):
        """Returns when they hold."""
        self.process.stdin.write(json.dumps(hooks) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if answer != "obeyed\n":
            raise AssertionError(f"the {self.kind} does not obey: {answer!r}")

    def mend(self):
        self.set(delay=0.0, split=0, close_on=None, silent_on=None, silent_at=None, padding=0,
                 full=False, refuse=None, state="Running")

    def sent(self, method):
        """The bodies of the requests of this method, so far."""
        requests = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else ()
        return [r["body"] and json.loads(r["body"]) for r in requests if r["method"] == method]

    def targets(self, method):
        requests = map(json.loads, self.log.read_text().splitlines())
        return [r["target"] for r in requests if r["method"] == method]

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            end.close()


def cloud_hypervisor(test, node, sandbox_id, volume, version="v52.0", *options):
    return Vmm(test, sandbox_id, "cloud-hypervisor",
               ["--api-socket", node.vm_dir(sandbox_id) / "clh-api.sock", "--version", version,
                "--device", volume.loop.device, "--id", volume.drive, *options])


def jail_of(node, sandbox_id):
    """Firecracker's directory, jailed or not; it knows half of the id only."""
    jail = node.root / "run/vc/firecracker" / sandbox_id[:32] / "root"
    (jail / "run").mkdir(parents=True, mode=0o700, exist_ok=True)
    return jail


def firecracker(test, node, sandbox_id, volume, *options, jailed=False):
    jail = jail_of(node, sandbox_id)
    where = (["--jail", jail, "--id", sandbox_id[:32]] if jailed else
             ["--api-sock", jail / "run/firecracker.socket"])
    return Vmm(test, sandbox_id, "firecracker",
               [*where, "--device", volume.loop.device, "--drive-id", DRIVE, *options])


def record(node, vmm, volume, agent="unix:///agent.sock", drive=None):
    """Kata's records of the sandbox and of its volume, when the VMM runs."""
    record_sandbox(node, vmm, volume, agent, drive)
    node.record(volume.path, vmm.sandbox_id)


def record_sandbox(node, vmm, volume, agent="unix:///agent.sock", drive=None):
    """These VMMs have no pid file."""
    vmm.set()
    kata_name = {"cloud-hypervisor": "clh"}.get(vmm.kind, vmm.kind)
    drives = [volume.record(id=drive or volume.drive)]
    directory = node.root / "run/vc/sbs" / vmm.sandbox_id
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    persist = node.persist(vmm.sandbox_id, vmm.pid, agent, drives, "virtio-blk", kata_name, 2)
    if vmm.kind == "cloud-hypervisor":
        persist["HypervisorState"]["Bridges"] = None  # as Kata has it
    (directory / "persist.json").write_text(json.dumps(persist))
