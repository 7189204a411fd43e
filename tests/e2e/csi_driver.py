# SPDX-License-Identifier: Apache-2.0
"""The example CSI driver on a scratch node, a client of it, and what a kubelet would do around it.

    class Something(CsiTest):
        def test_it(self):
            driver = self.driver(crustd=self.node())
            volume = driver.call("CreateVolume", name="pv", ...)

Messages are CSI's own: csi.proto comes with the Go module that the driver is built with.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import grpc_client
from csi_client import SIZE, Client
from go_programs import build, module_directory
from grpc_client import SECONDS, Clients, grpc
from node import REPOSITORY
from scratch_node import ScratchNodeTest, fake_agent, fake_monitor

SOURCE = REPOSITORY / "docs/examples/csi-driver"
SPECIFICATION = "github.com/container-storage-interface/spec"
NODE, MIB = "node-1", 1 << 20
GROWN = 2 * SIZE


def program():
    return build(SOURCE, ".", "crust-csi")


def make_stubs(directory):
    """Python's, of the csi.proto that the driver is built with."""
    source = module_directory(SOURCE, SPECIFICATION)
    subprocess.run(
        ["protoc", f"--proto_path={source}", "--proto_path=/usr/include", f"--python_out={directory}",
         f"--grpc_python_out={directory}",
         f"--plugin=protoc-gen-grpc_python={shutil.which(grpc_client.PLUGIN)}", "csi.proto"],
        check=True, timeout=SECONDS)


class Driver:
    """A running driver: volumes in files, and crustd's node root as the place of its socket."""

    def __init__(self, scratch, channel_to, socket_directory, arguments=()):
        self.directory = scratch
        self.socket = scratch / "csi.sock"
        self.log = scratch / "log"
        self.files = scratch / "files"
        self.channel_to = channel_to
        self.command = [
            str(program()), f"--endpoint=unix://{self.socket}", f"--node-id={NODE}",
            f"--loop-directory={self.files}", f"--state-directory={scratch}/state",
            f"--crust-socket={socket_directory}/crust.sock", *arguments]
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        grpc.channel_ready_future(self.channel_to(self.socket)).result(SECONDS)
        return self

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(SECONDS)
            self.process = None

    def devices(self):
        """Loop devices of its files, by what losetup says."""
        done = subprocess.run(["losetup", "--json", "--list", "--output", "NAME,BACK-FILE"],
                              capture_output=True, text=True, timeout=SECONDS)
        devices = json.loads(done.stdout or "{}").get("loopdevices", [])
        return [one["name"] for one in devices if one["back-file"].startswith(f"{self.files}/")]

    def mounts(self):
        """(mount point, file system) of what lies in its directory."""
        lines = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        return [(fields[1], fields[2]) for fields in lines if fields[1].startswith(f"{self.directory}/")]

    def clean(self):
        self.stop()
        for target, _ in reversed(self.mounts()):
            subprocess.run(["umount", target], timeout=SECONDS)
        for device in self.devices():
            subprocess.run(["losetup", "--detach", device], timeout=SECONDS)


class CsiTest(Clients, ScratchNodeTest):
    """A test with drivers and CSI clients."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp(prefix="csi-stubs-")
        cls.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
        make_stubs(directory)
        sys.path.insert(0, directory)
        cls.addClassCleanup(sys.path.remove, directory)
        cls.csi, cls.csi_grpc = cls.messages("csi"), __import__("csi_pb2_grpc")

    def channel_to(self, socket):
        channel = grpc.insecure_channel(f"unix:{socket}", [("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return channel

    def driver(self, crustd=None, arguments=()):
        """A driver; crustd: the Node that it is beside, or None for a node that has none."""
        directory = self.scratch / "csi"
        directory.mkdir()
        socket_directory = crustd.path("/run/crustd") if crustd else self.scratch / "no-crustd"
        driver = Driver(directory, self.channel_to, socket_directory, arguments)
        self.addCleanup(driver.clean)
        return driver.start()

    def client(self, driver):
        return Client(self.csi, self.csi_grpc, self.channel_to(driver.socket))


class Pod:
    """A sandbox with one volume: begins once the volume is published, ends before that ends."""

    def __init__(self, node, target, number):
        self.node, self.target = node, str(target)
        self.id = f"{number:064x}"
        mount_info = json.loads((node.directory(self.target) / "mountInfo.json").read_text())
        self.device = mount_info["device"]
        node.add_device(self.device)
        drive = f"drive-{number:016x}"
        self.monitor = fake_monitor.FakeMonitor(
            node.vm_dir(self.id) / "extra-monitor.sock",
            [fake_monitor.Drive(drive, self.device)]).start()
        name = f"agent-{number}.sock"
        self.agent = fake_agent.FakeAgent(node.root / name)
        self.agent.grows = True
        self.agent.stats.total = os.path.getsize(mount_info["device"]) or device_bytes(self.device)
        self.vmm = node.start_vmm(self.id)
        node.add_sandbox(self.id, self.vmm.pid, agent=f"unix:///{name}",
                         drives=[{"device": self.device, "id": drive, "address": "02/01"}])
        node.record(self.target, self.id)
        node.wait_for(self.target, "in_sync", "none", sandbox_id=self.id)

    def end(self):
        self.vmm.stop()
        self.node.end_sandbox(self.id)
        self.monitor.stop()
        self.agent.close()


def device_bytes(device):
    return int(pathlib.Path(f"/sys/class/block/{os.path.basename(device)}/size").read_text()) * 512


class Kubelet:
    """Between a client and the driver: each call is passed on as it is, and the pod of a volume that
    crustd was given begins after NodePublishVolume and ends before NodeUnpublishVolume."""

    def __init__(self, node, driver, socket, begin=Pod):
        self.node, self.begin = node, begin
        self.pods, self.begun = {}, 0
        self.channel = driver.channel_to(driver.socket)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def service(self, details):
        """grpc.GenericRpcHandler: bytes in, bytes out."""
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self.pass_on(details.method, request, context))

    def pass_on(self, method, request, context):
        name = method.rpartition("/")[2]
        target = None
        if name in ("NodePublishVolume", "NodeUnpublishVolume"):
            fields = fake_agent.fields(request)
            target = fake_agent.first(fields, 4 if name == "NodePublishVolume" else 2, b"").decode()
        if name == "NodeUnpublishVolume" and target in self.pods:
            self.pods.pop(target).end()
        try:
            reply = self.channel.unary_unary(method)(request, timeout=120)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        if name == "NodePublishVolume" and target not in self.pods \
                and self.node.directory(target).exists():
            self.begun += 1
            self.pods[target] = self.begin(self.node, target, self.begun)
        return reply

    def end(self):
        self.server.stop(None)
        for pod in self.pods.values():
            pod.end()
