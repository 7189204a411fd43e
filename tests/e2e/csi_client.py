# SPDX-License-Identifier: Apache-2.0
"""A client of a CSI driver: the calls as the kubelet and the controllers make them.

    client = Client(csi_pb2, csi_pb2_grpc, grpc.insecure_channel("unix:/csi.sock"))
    volume = client.create("pvc-1", 64 << 20)
    client.stage(volume, staging)
"""

import os

SIZE = 64 << 20


class Client:
    """CSI calls for one volume, as the kubelet and the controllers make them."""

    def __init__(self, csi, csi_grpc, channel, seconds=60):
        self.csi, self.seconds = csi, seconds
        self.controller = csi_grpc.ControllerStub(channel)
        self.node = csi_grpc.NodeStub(channel)

    def capability(self, fs_type="ext4", mode="SINGLE_NODE_SINGLE_WRITER", block=False, **mount):
        mode = self.csi.VolumeCapability.AccessMode(mode=mode)
        if block:
            return self.csi.VolumeCapability(
                block=self.csi.VolumeCapability.BlockVolume(), access_mode=mode)
        mount = self.csi.VolumeCapability.MountVolume(fs_type=fs_type, **mount)
        return self.csi.VolumeCapability(mount=mount, access_mode=mode)

    def create(self, name="pvc-1", size=SIZE, capability=None, **fields):
        return self.controller.CreateVolume(self.csi.CreateVolumeRequest(
            name=name, volume_capabilities=[capability or self.capability()],
            capacity_range=self.csi.CapacityRange(required_bytes=size), **fields),
            timeout=self.seconds).volume

    def delete(self, volume):
        self.controller.DeleteVolume(self.csi.DeleteVolumeRequest(volume_id=volume.volume_id),
                                     timeout=self.seconds)

    def expand_device(self, volume_id, size):
        return self.controller.ControllerExpandVolume(self.csi.ControllerExpandVolumeRequest(
            volume_id=volume_id, capacity_range=self.csi.CapacityRange(required_bytes=size)),
            timeout=self.seconds)

    def stage(self, volume, staging, capability=None, **fields):
        os.makedirs(staging, exist_ok=True)
        self.node.NodeStageVolume(self.csi.NodeStageVolumeRequest(
            volume_id=volume.volume_id, staging_target_path=str(staging),
            volume_capability=capability or self.capability(),
            volume_context=volume.volume_context, **fields), timeout=self.seconds)

    def unstage(self, volume, staging):
        self.node.NodeUnstageVolume(self.csi.NodeUnstageVolumeRequest(
            volume_id=volume.volume_id, staging_target_path=str(staging)), timeout=self.seconds)

    def publish(self, volume, target, staging, capability=None, pod=None, **fields):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        context = {f"csi.storage.k8s.io/pod.{key}": value for key, value in (pod or {}).items()}
        self.node.NodePublishVolume(self.csi.NodePublishVolumeRequest(
            volume_id=volume.volume_id, target_path=str(target), staging_target_path=str(staging),
            volume_capability=capability or self.capability(),
            volume_context=dict(volume.volume_context) | context, **fields), timeout=self.seconds)

    def unpublish(self, volume, target):
        self.node.NodeUnpublishVolume(self.csi.NodeUnpublishVolumeRequest(
            volume_id=volume.volume_id, target_path=str(target)), timeout=self.seconds)

    def expand(self, volume, target, size):
        return self.node.NodeExpandVolume(self.csi.NodeExpandVolumeRequest(
            volume_id=volume.volume_id, volume_path=str(target),
            capacity_range=self.csi.CapacityRange(required_bytes=size)),
            timeout=2 * self.seconds).capacity_bytes

    def stats(self, volume, target):
        return self.node.NodeGetVolumeStats(self.csi.NodeGetVolumeStatsRequest(
            volume_id=volume.volume_id, volume_path=str(target)), timeout=self.seconds)
