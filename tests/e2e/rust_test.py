#!/usr/bin/python3
"""A real guest under Kata's Rust runtime, which records neither sandboxes, drives nor mount points.

QEMU's working directory is the bundle, its disks are descriptors in fd sets, its debug monitor
speaks HMP. The shim is a process with the right arguments, in the right directory, and with a
management socket that says where the agent is: this test's guest has no vsock."""

import http.server
import json
import os
import secrets
import shutil
import socketserver
import subprocess
import threading
import unittest

from growth import MIB, GrowthCase, Sandbox
from guest_channels import SocketDirectory
from guestvm import GuestVM

TASKS = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
GUEST_MOUNTS = "/run/kata-containers/shared/containers/passthrough"


class Shim:
    """A process that does nothing, and its management socket."""

    def __init__(self, sandbox_id, bundle, state, agent_url):
        self.requests = []
        directory = SocketDirectory(state)
        listener = directory.listen("shim-monitor.sock")
        directory.close()
        self.server = socketserver.ThreadingUnixStreamServer("", self._handler(agent_url),
                                                             bind_and_activate=False)
        self.server.daemon_threads = True
        self.server.socket.close()
        self.server.socket = listener
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.process = subprocess.Popen(
            ["containerd-shim-kata-v2", "-c", "read _", "-namespace", "k8s.io", "-address",
             "/run/containerd/containerd.sock", "-id", sandbox_id],
            executable="/bin/sh", cwd=bundle, stdin=subprocess.PIPE)

    def _handler(self, agent_url):
        requests = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            """GET /agent-url, with nothing else in the answer."""

            def do_GET(self):  # pylint: disable=invalid-name
                requests.append(self.path)
                body = agent_url.encode()
                self.send_response(200 if self.path == "/agent-url" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "crustd"

            def log_message(self, *_):
                pass

        return Handler

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class RustSandbox(Sandbox):
    """A pod of Kata's Rust runtime: its containers are bundles beside the sandbox's own."""

    def __init__(self, case, **options):
        super().__init__(case, monitor="hmp", **options)
        self.drives = 0
        self.shim = None

    @property
    def state(self):
        return self.node.root / "run/kata" / self.id

    @property
    def passthrough(self):
        return self.node.root / "run/kata-containers/shared/sandboxes" / self.id / "rw/passthrough"

    @property
    def agent_url(self):
        return "unix://" + str(self.vm.agent_socket).removeprefix(str(self.node.root))

    def bundle(self, container_id):
        return self.node.root / TASKS / container_id

    def make_volume(self, filesystem, **options):
        """Mounted where the runtime would have it mounted for a destination /srv/data-N."""
        device_id, self.drives = secrets.token_hex(8), self.drives + 1
        name = f"{device_id[:10]}-{secrets.token_hex(4)}-data-{self.drives}"
        options = {"fdset": True, "node_name": f"drive-{self.drives}",
                   "device_id": f"drive-{self.drives}",
                   "mount_point": f"{GUEST_MOUNTS}/{name}"} | options
        return super().make_volume(filesystem, **options)

    def boot(self):
        self.write_bundle(self.id, [])
        self.vm = self.case.enterClassContext(GuestVM(
            self.node.root, self.case.image, [volume.disk for volume in self.volumes],
            sandbox_id=self.id, vm_dir=self.bundle(self.id), layout="rust",
            extra_monitor=self.monitor, agents=self.agents))
        self.state.mkdir(parents=True)
        self.passthrough.mkdir(parents=True)
        self.shim = self.case.enterClassContext(
            Shim(self.id, self.bundle(self.id), self.state, self.agent_url))
        (self.state / "state.json").write_text(json.dumps(
            {"sandbox_type": "virt_container",
             "hypervisor": {"hypervisor_type": "qemu", "id": self.id, "pid": None}}))

    def publish(self):
        self.vm.wait_ready()
        for volume in self.volumes:
            self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
            self.vm.guest_write(volume.pattern, MIB)
            self.run_container(volume)

    def plug(self, volume):
        """A container of the running pod brings a disk."""
        self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
        self.vm.hotplug(volume.disk)
        self.volumes.append(volume)
        self.vm.guest_write(volume.pattern, MIB)
        return self.run_container(volume)

    def run_container(self, volume, guest_name=None):
        """Returns its id. The name in the guest is the host's as well."""
        container_id = secrets.token_hex(32)
        name = guest_name or os.path.basename(volume.disk.mount_point)
        (self.passthrough / name).mkdir(exist_ok=True)
        (self.passthrough / f"{container_id[:10]}-{secrets.token_hex(4)}-hosts").touch()
        self.write_bundle(container_id, [(volume.path, f"/srv/{name[20:]}"),
                                         ("/etc/hosts", "/etc/hosts")])
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


class RustCase(GrowthCase):
    """Growths under the Rust runtime."""

    @classmethod
    def add_sandbox(cls, **options):
        return RustSandbox(cls, **options)

    def sandbox_row(self, sandbox):
        return self.node.query(f"SELECT * FROM audit_sandboxes WHERE sandbox_id = '{sandbox.id}'")[0]


class RustTest(RustCase):
    """Each test has a pod of its own with one volume: HMP does not tell which of several descriptors
    is which drive."""

    def start_pod(self):
        sandbox = self.add_sandbox()
        self.boot(sandbox)
        return sandbox

    def plug(self):
        """A running pod, the container in it that brought a volume, and the volume."""
        sandbox = self.start_pod()
        volume = sandbox.make_volume("ext4")
        return sandbox, sandbox.plug(volume), volume

    def test_pod_lives_and_ends(self):
        sandbox = self.add_sandbox()
        volume = sandbox.add_volume("ext4", node_name="abcdef0123456789",
                                    device_id="abcdef0123456789")
        self.boot(sandbox)
        self.grow(volume)
        row = self.sandbox_row(sandbox)
        self.assertEqual((row["runtime"], row["hypervisor"], row["vmm_pid"], row["status"]),
                         ("kata-rs", "qemu", sandbox.vm.pid, "alive"))
        self.assertEqual((row["pod_namespace"], row["pod_name"]),
                         ("default", f"pod-{sandbox.id[:6]}"))
        self.assertEqual(row["control_socket"], f"/{TASKS}/{sandbox.id}/debug-monitor.sock")
        self.assertEqual(row["agent_address"], sandbox.agent_url)
        self.assertEqual(sandbox.shim.requests, ["/agent-url"])
        self.assertEqual([mapping["source"] for mapping in self.mappings(volume)], ["hypervisor"])

        sandbox.vm.power_off()
        row = self.node.wait_for(volume.path, "unbound", "none")
        self.assertIsNone(row["sandbox_id"])
        self.assertEqual(self.sandbox_row(sandbox)["status"], "gone")

    def test_containers_come_and_go(self):
        sandbox, container, volume = self.plug()
        self.grow(volume)
        sandbox.end_container(container)
        self.node.wait_for(volume.path, "unbound", "none", sandbox_id=None)
        self.assertNotIn(None, [row["until"] for row in self.mappings(volume)])
        sandbox.run_container(volume)
        self.settle(volume)
        self.grow(volume)

    def test_guest_path_that_could_be_anothers(self):
        sandbox = self.start_pod()
        volume = sandbox.make_volume("ext4")
        name = os.path.basename(volume.disk.mount_point)
        other = sandbox.passthrough / f"{secrets.token_hex(5)}{name[10:]}"
        other.mkdir()
        sandbox.plug(volume)
        self.node.wait_for(volume.path, "in_sync", "unverified")
        volume.loop.resize(128 * MIB)
        self.node.wait_for(volume.path, "block_grown", "guest_path_unknown",
                           hypervisor_bytes=128 * MIB)
        other.rmdir()
        self.node.wait_for(volume.path, "in_sync", "none")
        self.assertEqual(self.mappings(volume)[-1]["guest_path"], volume.disk.mount_point)

    def test_two_sandboxes_claim_one_volume(self):
        _, _, volume = self.plug()
        self.settle(volume)
        other = self.add_sandbox()
        other.write_bundle(other.id, [])
        os.makedirs(other.passthrough)
        self.node.start_vmm(other.id)
        os.makedirs(other.state)
        self.enterContext(Shim(other.id, other.bundle(other.id), other.state, ""))
        container = other.run_container(volume)
        self.node.wait_for(volume.path, "blocked", "multiple_sandboxes", sandbox_id=None)
        other.end_container(container)
        self.settle(volume)

    def test_sandbox_file_names_another(self):
        """Records that disagree are a reason, not a guess."""
        _, _, volume = self.plug()
        self.settle(volume)
        other = secrets.token_hex(32)
        vmm = self.node.start_vmm(other)
        self.node.add_sandbox(other, vmm.pid)
        self.node.record(volume.path, other)
        self.node.wait_for(volume.path, "blocked", "multiple_sandboxes")
        vmm.stop()
        self.settle(volume)


if __name__ == "__main__":
    unittest.main()
