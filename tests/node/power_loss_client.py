#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""power_loss_client.py ROUND - a CSI driver that stages and unstages until its node loses power.

Runs in the node. After each answer it writes a line to /exchange/promised, which lies outside of the
node: "staged PATH" or "unstaged PATH". Three clients side by side, so that calls share a flush. Each has three
disks, because a disk is staged once at a time; what the round before left staged is unstaged first.
"""

import os
import subprocess
import sys
import threading

sys.path.insert(0, "/root/stubs")

import crust_runtime_pb2 as crust  # noqa: E402
import crust_runtime_pb2_grpc  # noqa: E402
import grpc  # noqa: E402

SECONDS = 60
CLIENTS = 3
DISKS = 3  # of each client
STAGED = "SELECT target_path FROM audit_volumes WHERE removed_at IS NULL AND target_path <> ''"


def promised(what, path):
    line = f"{what} {path}\n".encode()
    file = os.open("/exchange/promised", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line)
    os.close(file)


def connect():
    options = [("grpc.use_local_subchannel_pool", 1)]
    return crust_runtime_pb2_grpc.RuntimeStub(
        grpc.insecure_channel("unix:/run/crustd/crust.sock", options))


def unstage(stub, path):
    stub.RuntimeUnstageVolume(crust.RuntimeUnstageVolumeRequest(volume_target_path=path), timeout=SECONDS)
    promised("unstaged", path)


def work(round_name, client):
    stub = connect()
    staged = []
    for number in range(1_000_000):
        path = f"/var/lib/kubelet/pods/{round_name}-{client}/volumes/kubernetes.io~csi/" \
               f"pv-{number}/mount"
        disk = client * DISKS + number % DISKS
        stub.RuntimeStageVolume(crust.RuntimeStageVolumeRequest(
            volume_type=crust.VolumeType(type="BLOCK"), volume_target_path=path,
            volume_backing_path=f"/dev/disk/by-id/virtio-volume-{disk}", fs_type="ext4"), timeout=SECONDS)
        promised("staged", path)
        staged.append(path)
        if len(staged) > 2:
            unstage(stub, staged.pop(0))


if __name__ == "__main__":
    left = subprocess.run(["sqlite3", "-readonly", "/var/lib/crustd/crustd.db", STAGED],
                          stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    for one in left:
        unstage(connect(), one)
    for one in range(CLIENTS):
        threading.Thread(target=work, args=(sys.argv[1], one)).start()
