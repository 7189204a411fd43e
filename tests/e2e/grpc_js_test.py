# SPDX-License-Identifier: Apache-2.0
"""@grpc/grpc-js, another gRPC with an HTTP/2 of its own, against crustd: from the same proto files.

The packages come from npm's registry, once per build directory. Without node, npm or the registry
the test skips.
"""

import fcntl
import json
import shutil
import subprocess
import unittest

from grpc_client import PROTO, SECONDS, socket_of
from node import BUILD, REPOSITORY
from programs import needs
from scratch_node import AFTER, BEFORE, ScratchNodeTest, publish_path

PACKAGES = {"@grpc/grpc-js": "1.13.4", "@grpc/proto-loader": "0.7.15"}
HEALTH, RUNTIME = "grpc.health.v1.Health", "crust.v1.Runtime"


def install():
    """The directory with the packages; None: they are not to be had."""
    place = BUILD / "grpc-js"
    place.mkdir(exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "node_modules/.whole").exists():
            return place
        (place / "package.json").write_text(json.dumps({"private": True, "dependencies": PACKAGES}))
        try:
            subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund",
                            "--fetch-retries=0"], cwd=place, check=True, capture_output=True,
                           timeout=300)
        except subprocess.SubprocessError:
            return None
        (place / "node_modules/.whole").touch()
    return place


class JavaScript(ScratchNodeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        needs("node", "npm")
        cls.packages = install()
        if not cls.packages:
            raise unittest.SkipTest("needs @grpc/grpc-js: npm's registry is out of reach")

    def setUp(self):
        super().setUp()
        self.host = self.node()
        self.grown = self.volume(self.host)
        self.equip(self.host, self.grown)
        self.host.start()
        self.host.wait_for(self.grown.path, "in_sync")
        self.host.wait_rest()
        shutil.copy(REPOSITORY / "tests/e2e/grpc_js_client.js", self.packages)
        self.client = subprocess.Popen(
            ["node", "grpc_js_client.js", PROTO, socket_of(self.host)], cwd=self.packages,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end_client)

    def end_client(self):
        self.client.stdin.close()
        self.client.stdout.close()
        self.client.wait(SECONDS)

    def call(self, service, method, /, **request):
        self.client.stdin.write(json.dumps({"service": service, "method": method,
                                            "request": request, "seconds": SECONDS}) + "\n")
        self.client.stdin.flush()
        return json.loads(self.client.stdout.readline())

    def test_calls(self):
        self.assertEqual(self.call(HEALTH, "Check"), {"reply": {"status": "SERVING"}})
        self.assertEqual(self.call(HEALTH, "Check", service="no/ä%")["code"], "NOT_FOUND")

        path = publish_path("pv-js")
        request = {"volume_type": {"type": "BLOCK"}, "volume_target_path": path,
                   "volume_backing_path": "/dev/x", "fs_type": "ext4", "mount_flags": ["ro"]}
        self.assertEqual(self.call(RUNTIME, "RuntimeStageVolume", **request), {"reply": {}})
        self.assertEqual(self.host.volume(path)["status"], "present")
        refused = self.call(RUNTIME, "RuntimeStageVolume", **request | {"fs_type": ""})
        self.assertEqual(refused["code"], "INVALID_ARGUMENT")
        self.assertIn("file system type", refused["details"])
        refused = self.call(RUNTIME, "RuntimeStageVolume", **request | {"mount_flags": ["x" * 4000] * 100})
        self.assertEqual(refused["code"], "RESOURCE_EXHAUSTED")
        self.assertEqual(self.call(RUNTIME, "RuntimeUnstageVolume", volume_target_path=path), {"reply": {}})
        self.assertEqual(self.host.volume(path)["status"], "removed")

        usage = self.call(RUNTIME, "RuntimeGetVolumeStats", volume_target_path=self.grown.path)["reply"]["usage"]
        self.assertEqual((usage[0]["unit"], usage[0]["total"]), ("BYTES", BEFORE))
        self.grown.loop.resize(AFTER)
        self.assertEqual(self.call(RUNTIME, "RuntimeExpandVolume",
                                   volume_target_path=self.grown.path,
                                   capacity_range={"required_bytes": AFTER}),
                         {"reply": {"capacity_bytes": AFTER}})
        self.assertEqual(self.call(RUNTIME, "RuntimeExpandVolume",
                                   volume_target_path=publish_path("none"))["code"], "UNAVAILABLE")

        reply = self.call("crust.management.v1.RuntimeAssistedStorageManagement", "RuntimeGetCapabilities")["reply"]
        self.assertEqual([one["rpc"]["type"] for one in reply["capabilities"]],
                         ["VOLUME_STATS", "VOLUME_RESIZE", "FS_GROUP_CHANGE_POLICY_ALWAYS",
                          "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH"])
