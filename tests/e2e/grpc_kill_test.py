# SPDX-License-Identifier: Apache-2.0
"""Killed before any one of its syscalls while it stages or unstages, crustd leaves a volume's metadata
whole or not there at all, keeps what it has answered, and does it when asked again."""

import json
import os

from grpc_client import GrpcTest, Runtime, grpc, has_ended
from lost import Attached, LostTest, points, sweep
from scratch_node import SANDBOX, publish_path

PATH = publish_path("pv-killed")
DEVICE = "/dev/some-device"
WORKSHOP = "run/kata-containers/shared/.crust-stage"


class Killed(GrpcTest, LostTest):
    def setUp(self):
        super().setUp()
        self.need_strace()
        self.host = self.running_node({"resize.sweep_seconds": 3600})

    def stage(self, fs_type):
        Runtime(self, self.host).stage(PATH, DEVICE, fs_type)

    def unstage(self):
        Runtime(self, self.host).unstage(PATH)

    def found(self):
        """The fs_type that a runtime would find; None: no metadata. Nothing else may stand there."""
        directory = self.host.directory(PATH)
        if not directory.exists():
            return None
        self.assertLessEqual(set(os.listdir(directory)), {"mountInfo.json", SANDBOX})
        return json.loads((directory / "mountInfo.json").read_text())["fstype"]

    def check(self, fs_type):
        """All of it is as it was asked for."""
        self.assertEqual(self.found(), fs_type)
        row = self.host.volume(PATH)
        self.assertEqual((row["status"], row["fs_type"]) if fs_type else row["status"],
                         ("present", fs_type) if fs_type else "removed")
        self.assertEqual(os.listdir(self.host.root / WORKSHOP), [])

    def trace(self, act):
        output = self.scratch / "trace"
        with Attached(self.host.process.pid, ["-e", "trace=all"], output):
            act()
        return points(output)

    def sweep(self, title, before, act, outcomes):
        """outcomes: what may be found after a kill; the last one is what was asked for."""
        before()
        found = self.trace(act)

        def kill(_, point):
            before()
            answered = True
            with Attached(self.host.process.pid, point.inject("signal=SIGKILL")):
                try:
                    act()
                except grpc.RpcError as error:
                    self.assertEqual(error.code().name, "UNAVAILABLE", error.details())
                    answered = False
            self.assertIn(self.found(), outcomes)
            if answered:
                self.assertEqual(self.found(), outcomes[-1])
            killed = has_ended(self.host)
            if killed:
                self.host.start()
            act()
            self.check(outcomes[-1])
            return "killed" if killed else "not reached"

        ends = self.at_each(title, sweep(found), kill)
        self.assertGreater(ends.count("killed"), len(ends) // 2)

    def test_stage(self):
        self.stage("ext4")
        self.sweep("killed while staging", self.unstage, lambda: self.stage("ext4"), (None, "ext4"))

    def test_stage_with_another_content(self):
        def before():
            self.stage("ext4")
            self.host.record(PATH, SANDBOX)

        self.sweep("killed while staging anew", before, lambda: self.stage("xfs"), ("ext4", "xfs"))
        self.assertIn(SANDBOX, os.listdir(self.host.directory(PATH)))

    def test_unstage(self):
        self.sweep("killed while unstaging", lambda: self.stage("ext4"), self.unstage, ("ext4", None))
