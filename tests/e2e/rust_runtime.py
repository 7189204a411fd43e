# SPDX-License-Identifier: Apache-2.0
"""What Kata's Rust runtime leaves on a node: no sandbox-id file, no record of drives.

    pod = RustPod(node, sandbox_id)
    pod.make_directories()
    pod.write_state("qemu")
    pod.run_container(volume.path, guest_name("data-1"))
    shim = RustShim(pod)               # a process in the bundle, and the management socket
"""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))

from node import CONTAINERD, SANDBOXES, TASK  # noqa: E402
from programs import Closing  # noqa: E402
from shim import FakeShim  # noqa: E402

GUEST_MOUNTS = "/run/kata-containers/shared/containers/passthrough"


def guest_name(destination):
    """Of a mount, in the guest and in the host's passthrough directory."""
    return f"{secrets.token_hex(5)}-{secrets.token_hex(4)}-{destination}"


class RustPod:
    """The records of a pod: its containers are bundles beside the sandbox's own."""

    def __init__(self, node, sandbox_id, containerd=CONTAINERD, sandbox_api=False):
        self.node, self.id = node, sandbox_id
        self.containerd, self.sandbox_api = containerd, sandbox_api

    def start(self, test, *arguments, agent_url="", hypervisor="qemu", vmm=True):
        """It runs until the test ends, and has no container yet. Returns its shim; arguments: of its VMM."""
        self.make_directories()
        if vmm:
            self.vmm = self.node.start_vmm(self.id, *arguments)
        self.write_state(hypervisor)
        shim = RustShim(self, agent_url)
        test.addCleanup(shim.close)
        return shim

    @property
    def state(self):
        return self.node.root / "run/kata" / self.id

    @property
    def monitor_path(self):
        """Where crust-qemu has QEMU make a monitor; monitor_arguments: how it has QEMU do that."""
        directory = self.node.root / "run/crustd/qemu"
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        return directory / f"{self.id}.sock"

    @property
    def monitor_arguments(self):
        return ("-qmp", f"unix:/run/crustd/qemu/{self.id}.sock,server=on,wait=off")

    @property
    def passthrough(self):
        return self.node.root / "run/kata-containers/shared/sandboxes" / self.id / "rw/passthrough"

    def bundle(self, container_id):
        is_apart = self.sandbox_api and container_id == self.id
        return self.node.root / self.containerd / (SANDBOXES if is_apart else TASK) / container_id

    def make_directories(self):
        self.state.mkdir(parents=True)
        self.passthrough.mkdir(parents=True)
        if self.sandbox_api:
            (self.bundle(self.id) / "rootfs").mkdir(parents=True)
        else:
            self.write_bundle(self.id, [])

    def write_state(self, hypervisor):
        """Once, when the VMM has started."""
        (self.state / "state.json").write_text(json.dumps(
            {"sandbox_type": "virt_container",
             "hypervisor": {"hypervisor_type": hypervisor, "id": self.id, "pid": None}}))

    def run_container(self, volume_path, name):
        """Mounts a volume where its guest name says. Returns the container's id."""
        container_id = secrets.token_hex(32)
        self.write_bundle(container_id, [(volume_path, f"/srv/{name[20:]}"),
                                         ("/etc/hosts", "/etc/hosts")])
        (self.passthrough / name).mkdir(exist_ok=True)
        os.utime(self.passthrough / name)
        (self.passthrough / f"{container_id[:10]}-{secrets.token_hex(4)}-hosts").touch()
        return container_id

    def write_bundle(self, container_id, mounts):
        """As containerd does: the directory first, then config.json in it."""
        directory = self.bundle(container_id)
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        (directory / "config.json").write_text(json.dumps({
            "ociVersion": "1.1.0", "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}] +
                      [{"destination": to, "type": "bind", "source": path,
                        "options": ["rbind", "rw"]} for path, to in mounts],
            "annotations": {"io.kubernetes.cri.sandbox-id": self.id,
                            "io.kubernetes.cri.sandbox-namespace": "default",
                            "io.kubernetes.cri.sandbox-name": f"pod-{self.id[:6]}"}}))

    def end_container(self, container_id):
        shutil.rmtree(self.bundle(container_id))


class RustShim(Closing):
    """A process that does nothing, where the shim is, and its management socket."""

    def __init__(self, pod, agent_url=""):
        self.server = FakeShim(os.fspath(pod.state / "shim-monitor.sock"), "rust",
                               agent_url=agent_url).start()
        self.process = subprocess.Popen(
            ["containerd-shim-kata-v2", "-c", "read _", "-namespace", "k8s.io", "-address",
             "/run/containerd/containerd.sock", "-id", pod.id],
            executable="/bin/sh", cwd=pod.bundle(pod.id), stdin=subprocess.PIPE)

    def close(self):
        self.server.stop()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
