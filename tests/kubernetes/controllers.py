# SPDX-License-Identifier: Apache-2.0
"""What external-provisioner and external-resizer do with a claim, one step at a time.

A test calls the steps itself, so that it can stand between any two of them.
"""

import json
import sys
import tempfile
import unittest

import csi_client
import csi_driver
import grpc_client
from cluster import CSI_PORT, NODE, PATHS, ClusterTest
from node_test_case import REPOSITORY
from sandboxes import MIB, TOOLS

DRIVER = "volumes.crustd.example"
SOCKET = f"/var/lib/kubelet/plugins/{DRIVER}/csi.sock"
STORAGE = REPOSITORY / "docs/examples/csi-driver/deploy/storage.yaml"


def storage(size):
    """As the API server writes it."""
    return {"storage": f"{size // MIB}Mi"}


class ControllerTest(ClusterTest):
    """csi is a client of the driver in the node, for whatever its controllers ask."""

    @classmethod
    def setUpClass(cls):
        if grpc_client.missing():
            raise unittest.SkipTest(f"needs {grpc_client.missing()}")
        csi_driver.program()
        super().setUpClass()

    @classmethod
    def prepare(cls):
        super().prepare()
        stubs = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="csi-stubs-"))
        csi_driver.make_stubs(stubs)
        sys.path.insert(0, stubs)
        cls.addClassCleanup(sys.path.remove, stubs)
        channel = grpc_client.grpc.insecure_channel(f"127.0.0.1:{cls.csi_port}")
        cls.addClassCleanup(channel.close)
        cls.csi = csi_client.Client(__import__("csi_pb2"), __import__("csi_pb2_grpc"), channel, seconds=300)

    @classmethod
    def furnish(cls):
        super().furnish()
        cls.node.put(csi_driver.program(), f"{TOOLS}/crust-csi")

    @classmethod
    def start_node(cls):
        super().start_node()
        cls.start_driver()
        cls.node.run(["systemd-run", "--quiet", "--unit=csi-proxy",
                      f"--socket-property=ListenStream=0.0.0.0:{CSI_PORT}",
                      "/lib/systemd/systemd-socket-proxyd", SOCKET])

    @classmethod
    def start_driver(cls, *arguments):
        """Its way to the API server is a proxy; in a pod it would have a service account."""
        cls.start_unit(
            "crust-csi", f"{TOOLS}/crust-csi", f"--endpoint=unix://{SOCKET}", f"--node-id={NODE}",
            f"--kubernetes-api=http://10.0.2.2:{cls.control_plane.proxy_port}", *arguments)

    def provision(self, name, size, filesystem="ext4", mode="ReadWriteOncePod"):
        """A claim, its volume, and both bound to each other. filesystem: None for a raw device."""
        volume = self.csi.create(f"pvc-{name}", size, self.csi.capability(filesystem, block=not filesystem))
        self.addCleanup(self.remove_claim, name, volume)
        quantity, kind = storage(size), "Filesystem" if filesystem else "Block"
        self.create(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pvc-{name}"},
             "spec": {"capacity": quantity, "accessModes": [mode], "storageClassName": "crust", "volumeMode": kind,
                      "persistentVolumeReclaimPolicy": "Retain",
                      "claimRef": {"namespace": "default", "name": name},
                      "csi": {"driver": DRIVER, "volumeHandle": volume.volume_id,
                              "fsType": filesystem}}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
             "spec": {"accessModes": [mode], "storageClassName": "crust", "volumeMode": kind,
                      "volumeName": f"pvc-{name}", "resources": {"requests": quantity}}})
        self.wait_for(lambda: self.claim(name)["status"].get("phase") == "Bound", "the claim")
        return volume

    def remove_claim(self, name, volume):
        """As external-provisioner does: the driver deletes what no pod has any more."""
        for path in (f"{PATHS['persistentvolumeclaim']}/{name}", f"{PATHS['persistentvolume']}/pvc-{name}"):
            self.control_plane.request("DELETE", path, check=False)

        def deleted():
            try:
                self.csi.delete(volume)
            except grpc_client.grpc.RpcError as error:
                if error.code().name not in ("FAILED_PRECONDITION", "ABORTED", "UNAVAILABLE"):
                    raise  # other than not unstaged yet, about to be, or a driver that is about to start
                return False
            return True

        self.wait_for(deleted, f"volume {volume.volume_id} to be deleted")

    def claim(self, name):
        return self.get("persistentvolumeclaim", name)

    def edit(self, name, size):
        """What a person does."""
        self.kubectl("patch", "pvc", name, "-p",
                     json.dumps({"spec": {"resources": {"requests": storage(size)}}}))

    def set_status(self, name, **status):
        self.control_plane.request("PATCH", f"{PATHS['persistentvolumeclaim']}/{name}/status",
                                   {"status": status})

    def expand_device(self, name, volume, size):
        """ControllerExpandVolume, and what external-resizer writes before and after it."""
        self.set_status(name, allocatedResources=storage(size),
                        allocatedResourceStatuses={"storage": "ControllerResizeInProgress"})
        self.csi.expand_device(volume.volume_id, size)
        self.ask_the_node(name, size)

    def ask_the_node(self, name, size):
        """The last step: from here it is the kubelet's."""
        self.control_plane.request("PATCH", f"{PATHS['persistentvolume']}/pvc-{name}",
                                   {"spec": {"capacity": storage(size)}})
        self.set_status(name, allocatedResources=storage(size),
                        allocatedResourceStatuses={"storage": "NodeResizePending"},
                        conditions=[{"type": "FileSystemResizePending", "status": "True"}])
