# SPDX-License-Identifier: Apache-2.0
"""Each way in which a VMM's monitor, a guest's agent or a shim can fail: its state and reason, whether it is tried
again by itself, how it is explained, and that it heals.

One daemon serves all rows of all tables at once, each in a sandbox of its own.
"""


from report_guest import POLICY, UNREACHABLE, AgentSide, Case, SidesTest
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, MIB


def lasting(*arguments, **options):
    return Case(*arguments, retried=False, **options)


LIES = {"drive": {"resize": lambda size: None}}
PERMISSION_CONFLICT = (
    "Permission conflict on node 'n0': permissions 'resize' are both required by an unnamed block "
    "device (uses node 'n0' as 'root' child) and unshared by block device 'v0' (uses node 'n0' as "
    "'root' child).")

CONNECTIONS = {
    "held by another client": Case({"silent": True}, "hypervisor_busy", "gives no greeting: another client holds it",
                                   ("ss -xp", "tries again by itself"), asked=False),
    "hangs up at once": Case({"close_at": 0}, "hypervisor_unreachable", "the monitor: ", UNREACHABLE, asked=False),
    "hangs up after the negotiation": Case({"close_at": 1}, "hypervisor_unreachable", "the monitor: ", asked=False),
    "hangs up instead of resizing": Case({"close_at": 6, **LIES}, "hypervisor_unreachable", "the monitor: "),
    "greets as something else": Case({"garbage": (0, b"SSH-2.0-OpenSSH_9.2\r\n")}, "hypervisor_unreachable",
                                     "is no QEMU monitor", asked=False),
    "is a human monitor": lasting(
        {"garbage": (0, b"QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) ")}, "monitor_missing",
        r"this is a human monitor \(HMP\), which crustd does not use: crust-qemu",
        ("crust-qemu.toml", "which crustd does not use"), asked=False),
    "greets with other JSON": Case({"garbage": (0, b'{"hello": "world"}\r\n')}, "hypervisor_unreachable",
                                   "did not greet", asked=False),
    "answers garbage": Case({"garbage": (2, b"\x00\xff<html>\r\n")}, "hypervisor_unreachable", "no JSON object",
                            asked=False),
    "answers broken JSON": Case({"garbage": (2, b'{"return": tru}\r\n')}, "hypervisor_unreachable", "at byte",
                                asked=False),
    "answers nonsense": Case({"garbage": (2, b'{"return": "none", "id": "2"}\r\n')}, "hypervisor_unreachable",
                             "query-block: the answer is no list", asked=False),
    "answers without an end": Case({"garbage": (2, b'{"x": "' + b"x" * (5 * MIB))}, "hypervisor_unreachable", "beyond",
                                   asked=False),
    "never answers": Case({"silent_at": 2}, "hypervisor_unreachable", "the monitor: ", asked=False),
    "never answers the resize": Case({"silent_at": 6, **LIES}, "hypervisor_unreachable", "the monitor: "),
}

REFUSALS = {
    "cannot grow": Case({"refuse": "Cannot grow device files"}, "hypervisor_refused", "Cannot grow device files",
                        ("answered with an error", "restart the pod")),
    "permission conflict": lasting({"refuse": PERMISSION_CONFLICT}, "hypervisor_unsupported", "Permission conflict",
                                   ("Restart the pod",)),
    "block job": Case({"refuse": "Device '(null)' is in use"}, "hypervisor_busy", "is in use",
                      ("A backup or mirror", "tries again by itself")),
    "fixed size": lasting({"refuse": "Cannot resize fixed-size raw disks"}, "hypervisor_unsupported", "fixed-size"),
    "read-only image": lasting({"refuse": "Image is read-only"}, "read_only", "Image is read-only"),
    "no lock": Case({"refuse": 'Failed to get "resize" lock'}, "hypervisor_refused", "Failed to get"),
    "something new": Case({"refuse": "The moon is not full"}, "hypervisor_refused", "The moon is not full"),
    "no such command": lasting({"_qmp_block_resize": None}, "hypervisor_unsupported", "has not been found"),
    "says yes and does nothing": Case(LIES, "hypervisor_refused", "bytes after the resize"),
    "read-only drive": lasting({"drive": {"read_only": True}}, "read_only", "read-only",
                               ("read-only", "a pod that starts anew"), asked=False),
    "no such drive": Case({"drives": []}, "bypassed", "none of the VMM's 0 drives", ("the VM has lost the drive",),
                          asked=False, known=None),
    "drive behind a file": lasting({"drive": {"driver": "file"}}, "hypervisor_unsupported",
                                   "its protocol driver is not host_device", asked=False),
    "another format": lasting({"drive": {"root_driver": "qcow2"}}, "hypervisor_unsupported",
                              "a format other than raw", asked=False),
    "name that is no word": lasting({"drive": {"node": 'x"y'}}, "hypervisor_unsupported", "cannot|name", asked=False),
}

ANSWERS = {
    "UNIMPLEMENTED": lasting("status:12:resize_volume is not implemented in this agent", "agent_unsupported",
                             "resize_volume is not implemented",
                             ("crust-guest-agent", "agent.companion_port", "resize2fs", "crustctl resync")),
    "NOT_FOUND": lasting("status:5:not found method grpc.AgentService/ResizeVolume", "agent_unsupported", "not found",
                         ("crust-guest-agent",)),
    "no such method in ttrpc-rust": lasting("status:3:/grpc.AgentService/ResizeVolume does not exist",
                                            "agent_unsupported", "does not exist"),
    "INVALID_ARGUMENT": Case("status:3:a path, please", "agent_failed", "a path, please"),
    "INTERNAL of the policy": lasting(f"status:13:{POLICY}", "agent_denied", "policy check",
                                      ("ResizeVolumeRequest", "policy")),
    "INTERNAL": Case("status:13:resize2fs: bad magic", "agent_failed", "bad magic",
                     ("The last error", "bad magic", "kernel log", "tries again")),
    "PERMISSION_DENIED": lasting("status:7:ResizeVolumeRequest is blocked by policy", "agent_denied",
                                 "blocked by policy", ("ResizeVolumeRequest", "VolumeStatsRequest")),
    "FAILED_PRECONDITION": lasting("status:9:dm-0 lies between", "guest_layer_unsupported", "dm-0 lies between",
                                   ("cryptsetup resize",)),
    "the file system's errors": lasting(
        "status:9:the file system cannot be grown: the file system has recorded errors", "file_system_not_growable",
        "recorded errors", ("fsck",)),
    "an error has shut it down": Case(
        "status:9:the file system cannot be grown: the file system was shut down after an error",
        "file_system_shut_down", "was shut down", ("xfs_repair", "tries again")),
    "mounted read-only": Case("status:14:the file system is mounted read-only", "read_only", "mounted read-only",
                              ("remount,rw", "tries again")),
    "UNAVAILABLE": Case("status:14:later", "agent_failed", "later"),
    "a code that nobody knows": Case("status:4711:what", "agent_failed", "what"),
    "a text to print with care": Case("status:13:\x1b[2J\nred", "agent_failed", "red"),
    "silent": Case("silent", "agent_unreachable", "no answer within",
                   ("crustctl sandboxes", "tries again by itself")),
    "closes": Case("close", "agent_unreachable", "closed the connection without an answer"),
    "garbage": Case("garbage", "agent_unreachable", "no answer within|no reply"),
    "half an answer": Case("truncated", "agent_unreachable", "closed the connection"),
    "oversize": Case("oversize", "agent_unreachable", "too long|no answer within|no reply"),
}

EITHER = {
    "full": Case({"full": True}, "agent_unreachable", "the shim answers 503"),
    "never answers": Case({"silent_on": "POST"}, "agent_unreachable", "the shim: no answer in time",
                          ("crustctl sandboxes", "tries again by itself")),
    "answers too late": Case({"delay": 5.0}, "agent_unreachable", "the shim: no answer in time"),
    "hangs up in mid-answer": Case({"close_on": "POST"}, "agent_unreachable",
                                   "the shim: the connection was closed before"),
    "hangs up, in pieces": Case({"close_on": "POST", "split": 1}, "agent_unreachable",
                                "the shim: the connection was closed before"),
    "answers without an end": Case({"padding": 2 * MIB}, "agent_unreachable", "the shim: the answer is too long"),
}

GO = EITHER | {
    "UNIMPLEMENTED": lasting({"status": (12, '"resize_volume is not implemented in kata-agent"')}, "agent_unsupported",
                             "^by the shim: UNIMPLEMENTED: resize_volume is not",
                             ("crust-guest-agent", "crustctl resync")),
    "NOT_FOUND": lasting({"status": (5, "/grpc.AgentService/ResizeVolume is not supported")}, "agent_unsupported",
                         "is not supported"),
    "INVALID_ARGUMENT": lasting({"status": (3, "/grpc.AgentService/ResizeVolume does not exist")}, "agent_unsupported",
                                "does not exist"),
    "PERMISSION_DENIED": lasting({"status": (7, "ResizeVolumeRequest is blocked by policy")}, "agent_denied",
                                 "blocked by policy", ("ResizeVolumeRequest", "VolumeStatsRequest")),
    "INTERNAL of the policy": lasting({"status": (13, f'"{POLICY}"')}, "agent_denied", "policy check"),
    "FAILED_PRECONDITION": lasting({"status": (9, "dm-0 lies between")}, "guest_layer_unsupported",
                                   "dm-0 lies between"),
    "INTERNAL": Case({"status": (13, "resize2fs: bad magic")}, "agent_failed", "bad magic",
                     ("The last error", "bad magic")),
    "a code that nobody knows": Case({"status": (4711, "what")}, "agent_failed", "4711: what"),
    "a text to print with care": Case({"status": (13, "\x1b[2J\nred")}, "agent_failed", "red"),
    "the shim's own deadline": Case({"status": (4, "ResizeVolumeRequest timed out")}, "agent_unreachable",
                                    "timed out"),
    "no connection to the agent": Case(
        {"failure": "Failed to check if grpc server is working: rpc error: code = Unavailable desc = x"},
        "agent_unreachable", "the shim answers 500: Failed to check"),
    "no such volume": Case({"volumes": {}}, "agent_unreachable",
                           "the shim answers 500: mount /dev/.* not found in sandbox"),
    "no such call": lasting({"refuse": (404, "404 page not found\n")}, "agent_unsupported",
                            "the shim answers 404: 404 page not found"),
}

RUST = EITHER | {
    "UNIMPLEMENTED": Case({"status": (12, "no")}, "agent_failed", "closed the connection without a status",
                          ("journalctl -t kata", "crust-guest-agent")),
    "PERMISSION_DENIED": Case({"status": (7, "no")}, "agent_failed", "without a status"),
    "no connection to the agent": Case({"failure": "get client"}, "agent_failed", "without a status"),
    "no such call": lasting({"refuse": (404, "URL NOT FOUND")}, "agent_unsupported",
                            "the shim answers 404: URL NOT FOUND"),
}

# How a side that does what it is asked may answer; and how an agent that resizes may refuse stats.
SUCCESSES = ("ok", "explicit", "split,ok", "stale,ok", "stale,split,ok", "delay=0.2,ok")
SHIMS = ({}, {"delay": 0.2}, {"split": 1})
NO_STATS = ("status:12:no", f"status:13:{POLICY}", "status:5:no", "close", "silent", "garbage")


class FailuresTest(SidesTest):

    def sides(self, node, rows):
        """Of each row's name a side, made by the row's function. All are in sync, and nothing is under way."""
        sides = {name: make(node, number) for number, (name, make) in enumerate(rows.items())}
        self.start(node, [side.volume for side in sides.values()])
        self.settle(node)
        return sides

    def finish(self, node, sides):
        """Grown; whether verified too is not asked where calls are given little time."""
        for side in sides:
            node.wait_for(side.volume.path, "in_sync", seconds=LONGEST_PAUSE, hypervisor_bytes=AFTER,
                          next_attempt_at=None)
            resize = self.resize_row(node, side.volume.path)
            self.assertEqual(resize["state"], "in_sync")
            self.assertIsNotNone(resize["guest_at"])
            self.assertIsNotNone(resize["finished_at"])

    def test_failures(self):
        node = self.node({"resize.call_timeout_seconds": 2})
        cases = {(make.__name__, name): (make, case) for make, table in (
            (self.monitor_side, CONNECTIONS | REFUSALS), (self.agent_side, ANSWERS), (self.go_side, GO),
            (self.rust_side, RUST)) for name, case in table.items()}
        sides = self.sides(node, {name: make for name, (make, _) in cases.items()})
        rows = {name: (side, cases[name][1]) for name, side in sides.items()}
        for side, case in rows.values():
            side.breaks(case.hooks)
        for side, _ in rows.values():
            side.volume.loop.resize(AFTER)
        for name, (side, case) in rows.items():
            with self.subTest(name):
                self.check(side, case, node)
        # A slow machine may tell a shim twice before its answer is known.
        asked = {name: len(side.asked()) for name, side in sides.items()}
        retried = {name: side for name, (side, case) in rows.items() if case.retried}
        waiting = {name: side for name, (side, case) in rows.items() if not case.retried}
        for name, side in retried.items():
            node.wait(lambda path=side.volume.path: self.resize_row(node, path)["attempts"] >= 3, 60,
                      f"{name} to be tried again")
            self.check_requests(side, True)
            side.mend()
        self.settle(node)
        for name, side in waiting.items():
            with self.subTest(name):
                self.check_requests(side, False)
                if side.state == "blocked":
                    self.assertEqual(self.resize_row(node, side.volume.path)["attempts"], 1)
                else:
                    self.assertGreater(asked[name], 0)
                    self.assertEqual(len(side.asked()), asked[name])
            side.mend()
        self.finish(node, retried.values())
        self.settle(node)
        for name, side in waiting.items():
            row = node.volume(side.volume.path)
            self.assertEqual((row["state"], row["reason"]), (side.state, rows[name][1].reason), name)
        node.crustctl("resync")
        self.finish(node, waiting.values())

    def check_requests(self, side, retried):
        """Only an agent is asked for nothing else meanwhile."""
        if isinstance(side, AgentSide):
            self.assertEqual({(one.method, one.size) for one in side.peer.requests}, {("ResizeVolume", AFTER)})
            self.assertEqual(len(side.asked()) > 1, retried)

    def test_once_tries_again(self):
        """Volumes that wait for their next attempt, and volumes that wait for a change."""
        node = self.node({"resize.call_timeout_seconds": 2})
        sides = self.sides(node, {"UNAVAILABLE": self.agent_side, "UNIMPLEMENTED": self.agent_side})
        node.stop()
        for name, side in sides.items():
            side.breaks(ANSWERS[name].hooks)
            side.volume.loop.resize(AFTER)
        self.assertEqual(node.once()["by_state"], {"block_grown": len(sides)})
        for side in sides.values():
            side.mend()
        self.assertEqual(node.once()["by_state"], {"in_sync": len(sides)})

    def test_successes(self):
        node = self.node()
        shims = [(make, hooks) for make in (self.go_side, self.rust_side) for hooks in SHIMS]
        sides = self.sides(node, {name: self.agent_side for name in SUCCESSES} |
                           {number: make for number, (make, _) in enumerate(shims)})
        for name, side in sides.items():
            if name in SUCCESSES:
                side.breaks(name)
                side.peer.behave("GetVolumeStats", name)
            else:
                side.breaks(shims[name][1])
            side.volume.loop.resize(AFTER)
        for name, side in sides.items():
            node.wait_for(side.volume.path, "in_sync", "none", guest_bytes=AFTER, next_attempt_at=None)
            if name in SUCCESSES:
                self.assertEqual([one.method for one in side.peer.requests][-2:], ["ResizeVolume", "GetVolumeStats"])
            else:
                path, = side.peer.volumes.values()
                self.assertEqual(side.peer.calls[-2:], [("ResizeVolume", path, AFTER), ("GetVolumeStats", path, 0)])
        self.finish(node, sides.values())

    def test_grows_but_refuses_stats(self):
        node = self.node({"resize.call_timeout_seconds": 2})
        sides = {name: self.agent_side(node, number) for number, name in enumerate(NO_STATS)}
        shims = {"go": self.go_side(node, len(sides)), "rust": self.rust_side(node, len(sides) + 1)}
        for side in shims.values():
            side.peer.stats_status = (13, POLICY)
        self.start(node, [side.volume for side in sides.values()])
        self.start(node, [side.volume for side in shims.values()], "unverified")
        sides |= shims
        for name, side in sides.items():
            if name in NO_STATS:
                side.peer.behave("GetVolumeStats", name)
            side.volume.loop.resize(AFTER)
        for name, side in sides.items():
            row = node.wait_for(side.volume.path, "in_sync", "unverified", hypervisor_bytes=AFTER, next_attempt_at=None)
            self.assertEqual(row["guest_bytes"], BEFORE if name in NO_STATS else None)
            self.assertIsNotNone(self.resize_row(node, side.volume.path)["finished_at"])
            self.explains(node, side.volume.path, "unverified", "df in the container")
            if name not in NO_STATS:
                self.assertEqual(side.peer.calls[-2][0::2], ("ResizeVolume", AFTER))
