#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stage_server.py STUBS SOCKET DIRECTORY - RuntimeStageVolume's file work, and nothing else.

What a driver's author would write in an afternoon: a directory that is written aside, synced and
renamed into place, as crustd does it. Requests are not checked, and nothing is kept.
"""

import base64
import concurrent.futures
import json
import os
import sys
import tempfile

sys.path.append("/usr/lib/python3/dist-packages")
sys.path.insert(0, sys.argv[1])

import crust_runtime_pb2 as crust  # noqa: E402
import crust_runtime_pb2_grpc as crust_grpc  # noqa: E402
import grpc  # noqa: E402

WORKERS = 16


def sync(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Runtime(crust_grpc.RuntimeServicer):
    def __init__(self, directory):
        self.volumes, self.workshop = f"{directory}/volumes", f"{directory}/aside"
        os.makedirs(self.volumes)
        os.makedirs(self.workshop)

    def RuntimeStageVolume(self, request, context):
        beside = tempfile.mkdtemp(dir=self.workshop)
        with open(f"{beside}/mountInfo.json", "w", encoding="utf-8") as file:
            json.dump({"volume-type": "directvol", "device": request.volume_backing_path,
                       "fstype": request.fs_type, "metadata": {},
                       "options": list(request.mount_flags)}, file)
            file.flush()
            os.fsync(file.fileno())
        sync(beside)
        name = base64.urlsafe_b64encode(request.volume_target_path.encode()).decode()
        os.rename(beside, f"{self.volumes}/{name}")
        sync(self.volumes)
        return crust.RuntimeStageVolumeResponse()


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(WORKERS))
    crust_grpc.add_RuntimeServicer_to_server(Runtime(sys.argv[3]), server)
    server.add_insecure_port(f"unix:{sys.argv[2]}")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
