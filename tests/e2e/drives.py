# SPDX-License-Identifier: Apache-2.0
"""What the drives_*_test.py modules share: a sandbox whose VMM is a real QEMU without a guest, and
whose agent is scripted; and clients of crust.drive.v1.

    class Something(DrivesTest):
        def test_it(self):
            node = self.drive_node()
            loop = self.disk(node)
            self.attach(node, "data-1", loop)
"""

import pathlib
import sys
import types

from bare_qemu import QEMU, Qemu
from grpc_client import SECONDS, GrpcTest, grpc
from programs import needs, run
from scratch_node import BEFORE, SANDBOX

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))

import drive_agent  # noqa: E402


class DrivesTest(GrpcTest):
    """Drives on a node, through gRPC."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        needs(QEMU)

    def setUp(self):
        super().setUp()
        self.drive = self.messages("crust_drive_v1")

    def drive_node(self, settings=None, sandbox_id=SANDBOX, wrapper=()):
        node = self.node({"drives.enabled": "on", "drives.host_prefixes": "/dev",
                          "resize.call_timeout_seconds": 10} | (settings or {}), wrapper)
        node.qemu = self.add_vm(node, sandbox_id)
        return node

    def add_vm(self, node, sandbox_id):
        qemu = Qemu(node.vm_dir(sandbox_id) / "extra-monitor.sock", sandbox_id)
        self.addCleanup(qemu.stop)
        name = f"agent-{sandbox_id[:8]}.sock"
        qemu.agent = drive_agent.DriveAgent(node.root / name, hybrid_vsock=1030)
        self.addCleanup(qemu.agent.close)
        node.add_sandbox(sandbox_id, qemu.pid, agent=f"hvsock:///{name}:1024")
        return qemu

    def disk(self, node, size=BEFORE):
        loop = self.loop(size)
        node.add_device(loop.device)
        return loop

    def loop_on(self, node, path):
        """A loop device on a file or a device that has one already."""
        device = run("losetup", "--find", "--show", path)
        self.addCleanup(run, "losetup", "--detach", device)
        node.add_device(device)
        return types.SimpleNamespace(device=device)

    def stub_of(self, node):
        return self.stub(node, "crust_drive_v1", "Drives")

    def attach(self, node, drive_id, loop, seconds=SECONDS, later=False, **fields):
        request = self.drive.AttachDriveRequest(**({
            "drive_id": drive_id, "sandbox_id": SANDBOX, "host_path": loop.device,
            "vm_path": f"/{drive_id}", "filesystem_type": "ext4", "options": ["noatime"],
            "is_writable": True} | fields))
        call = self.stub_of(node).AttachDrive
        if later:
            return call.future(request, timeout=seconds)
        while True:
            try:
                return call(request, timeout=seconds).drive
            except grpc.RpcError as error:  # another test's losetup tries this loop device, too
                if "(losetup) has the disk open" not in error.details():
                    raise

    def detach(self, node, drive_id, seconds=SECONDS):
        self.stub_of(node).DetachDrive(self.drive.DetachDriveRequest(drive_id=drive_id),
                                       timeout=seconds)

    def row(self, node, drive_id):
        rows = node.query(f"SELECT * FROM audit_drives WHERE drive_id = '{drive_id}'")
        return rows[-1]
