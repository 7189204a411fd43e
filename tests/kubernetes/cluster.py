# SPDX-License-Identifier: Apache-2.0
"""A cluster: a control plane on this machine, and one node, the whole Debian of tests/node with a kubelet.

    class SomethingTest(ClusterTest):
        def test_it(self):
            self.create({"apiVersion": "v1", "kind": "Pod", ...})
            self.wait_for(lambda: self.get("pod", "web")["status"]["phase"] == "Running", "the pod")

The node's network is QEMU's own: 10.0.2.2 is this machine, and ports of this machine lead to the node's.
"""

import json

import cluster_disk
from channel import NodeError
from control_plane import ControlPlane, free_ports, kubeconfig
from programs import wait_until
from sandboxes import TOOLS, SandboxTest

NODE = "node"
KUBELET_PORT, CSI_PORT = 10250, 10251
START_SECONDS = 900  # emulated, on a machine that does other things too
WAIT_SECONDS = 600
PAUSE = 1  # between two looks: a command in an emulated node is dear
BIN = "/programs/bin"

IN_NAMESPACE = "/api/v1/namespaces/default"
PATHS = {
    "node": "/api/v1/nodes",
    "pod": f"{IN_NAMESPACE}/pods",
    "event": f"{IN_NAMESPACE}/events",
    "persistentvolume": "/api/v1/persistentvolumes",
    "persistentvolumeclaim": f"{IN_NAMESPACE}/persistentvolumeclaims",
    "csidriver": "/apis/storage.k8s.io/v1/csidrivers",
    "csinode": "/apis/storage.k8s.io/v1/csinodes",
    "storageclass": "/apis/storage.k8s.io/v1/storageclasses",
    "runtimeclass": "/apis/node.k8s.io/v1/runtimeclasses",
}

NETWORK = """
set -e
modprobe -a virtio_net overlay bridge veth vhost_vsock
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2 dev eth0
sysctl -q net.ipv4.ip_forward=1
mkdir -p /programs
mount -o ro /dev/disk/by-id/virtio-programs /programs
"""
RUNTIME = """  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{0}.options]
    SystemdCgroup = true
"""
CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{cluster_disk.IMAGE}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/programs/cni"
""" + "".join(f'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]\n{RUNTIME.format(name)}'
              for name in ("runc", "kata"))
PODS_NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.99.1.0/24"}}]}


class ClusterTest(SandboxTest):
    MEMORY = 4096

    @classmethod
    def setUpClass(cls):
        disk = json.dumps({"driver": "raw", "node-name": "programs", "read-only": True,
                           "file": {"driver": "file", "filename": str(cluster_disk.disk())}})
        cls.kubelet_port, cls.csi_port = free_ports(2)
        ports = {cls.kubelet_port: KUBELET_PORT, cls.csi_port: CSI_PORT}
        cls.ARGUMENTS = (
            "-blockdev", disk, "-device", "virtio-blk-pci,drive=programs,serial=programs", "-netdev",
            ",".join(["user,id=net0", *(f"hostfwd=tcp:127.0.0.1:{here}-:{there}"
                                        for here, there in ports.items())]),
            "-device", "virtio-net-pci,netdev=net0,romfile=")
        cls.control_plane = cls.enterClassContext(ControlPlane(cluster_disk.programs(), cls.kubelet_port))
        cls.control_plane.begin()
        super().setUpClass()

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.control_plane.start()
        cls.furnish()
        cls.start_node()
        cls.import_image("/programs/image.tar")
        cls.wait_for(cls.is_ready, "the node to be ready", START_SECONDS)

    @classmethod
    def furnish(cls):
        """What the node's disk has, and keeps."""
        for path, text in cls.files().items():
            cls.node.write(path, text)

    @classmethod
    def start_node(cls):
        """What every boot of the node starts."""
        cls.node.run(NETWORK, seconds=300)
        cls.start_unit("containerd", f"{BIN}/containerd", "--config=/etc/containerd/config.toml")
        cls.start_unit("kubelet", f"{BIN}/kubelet", "--config=/etc/kubernetes/kubelet",
                       "--kubeconfig=/etc/kubernetes/config", "--node-ip=10.0.2.15",
                       f"--hostname-override={NODE}", "--housekeeping-interval=1m")

    @classmethod
    def import_image(cls, path):
        cls.node.wait(f"{BIN}/ctr -n k8s.io images import {path}", START_SECONDS,
                      f"containerd to take {path}")

    @classmethod
    def files(cls):
        return {
            "/etc/kubernetes/config": kubeconfig(f"https://10.0.2.2:{cls.control_plane.port}"),
            "/etc/cni/net.d/10-pods.conflist": json.dumps(PODS_NETWORK),
            "/etc/containerd/config.toml": CONTAINERD,
            "/etc/kubernetes/kubelet": json.dumps({
                "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "systemd", "failSwapOn": False,
                "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
                "port": KUBELET_PORT, "volumeStatsAggPeriod": "10s", "syncFrequency": "10s",
                "featureGates": {"CSIVolumeHealth": True},
                "evictionHard": {"imagefs.available": "1%", "nodefs.available": "1%"}}),
        }

    @classmethod
    def start_unit(cls, name, *command):
        """A service that is started again when it ends; what it has started stays, as shims do."""
        cls.node.run(["systemd-run", "--quiet", f"--unit={name}", "--property=Delegate=yes",
                      "--property=KillMode=process", "--property=Restart=always",
                      "--property=RestartSec=1", "--setenv=GOGC=400",  # processors are dearer than memory
                      f"--setenv=PATH={BIN}:{TOOLS}/bin:/usr/sbin:/usr/bin:/sbin:/bin", *command])

    def run(self, result=None):
        before = self._failures(result)
        super().run(result)
        if self._failures(result) > before:
            print(self.control_plane.report(), flush=True)
        return result

    # -- objects

    @classmethod
    def kubectl(cls, *arguments, **options):
        return cls.control_plane.kubectl(*arguments, **options)

    @classmethod
    def get(cls, kind, name):
        """An object, or None."""
        return cls.control_plane.request("GET", f"{PATHS[kind]}/{name}", check=False)[1]

    @classmethod
    def list(cls, kind, selector=""):
        return cls.control_plane.request("GET", PATHS[kind] + selector)[1]["items"]

    @classmethod
    def create(cls, *objects):
        for one in objects:
            cls.control_plane.request("POST", PATHS[one["kind"].lower()], one)

    @classmethod
    def is_ready(cls):
        node = cls.get("node", NODE)
        return node and any(one["type"] == "Ready" and one["status"] == "True"
                            for one in node["status"].get("conditions", []))

    @classmethod
    def wait_for(cls, condition, what, seconds=WAIT_SECONDS):
        """Returns the first true value."""
        def look():
            cls.node.check()
            return condition()

        return wait_until(look, seconds, what, NodeError, PAUSE)
