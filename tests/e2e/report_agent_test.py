# SPDX-License-Identifier: Apache-2.0
"""What can go wrong on the way into the guest: each has its reason, is tried again or not as fits, is
explained, and heals when the guest does.

One daemon serves all cases of a test at once, each in a sandbox of its own.
"""

import unittest

from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, SANDBOX, ScratchNodeTest
from report_guest import POLICY, Case, GuestTest, HybridVsock

COMPANION_PORT, AGENT_PORT = 1030, 1024


ANSWERS = {
    "UNIMPLEMENTED": Case("status:12:resize_volume is not implemented in this agent",
                          "agent_unsupported", "resize_volume is not implemented", retried=False,
                          explained=("crust-guest-agent", "agent.companion_port", "resize2fs",
                                     "crustctl resync")),
    "NOT_FOUND": Case("status:5:not found method grpc.AgentService/ResizeVolume",
                      "agent_unsupported", "not found", retried=False,
                      explained=("crust-guest-agent",)),
    "no such method in ttrpc-rust": Case(
        "status:3:/grpc.AgentService/ResizeVolume does not exist", "agent_unsupported",
        "does not exist", retried=False),
    "INVALID_ARGUMENT": Case("status:3:a path, please", "agent_failed", "a path, please"),
    "INTERNAL of the policy": Case(f"status:13:{POLICY}", "agent_denied", "policy check",
                                   retried=False, explained=("ResizeVolumeRequest", "policy")),
    "INTERNAL": Case("status:13:resize2fs: bad magic", "agent_failed", "bad magic",
                     explained=("The last error", "bad magic", "kernel log",
                                "tries again")),
    "PERMISSION_DENIED": Case("status:7:ResizeVolumeRequest is blocked by policy", "agent_denied",
                              "blocked by policy", retried=False,
                              explained=("ResizeVolumeRequest", "VolumeStatsRequest")),
    "FAILED_PRECONDITION": Case("status:9:dm-0 lies between", "guest_layer_unsupported",
                                "dm-0 lies between", retried=False,
                                explained=("cryptsetup resize",)),
    "the file system's errors": Case(
        "status:9:the file system cannot be grown: the file system has recorded errors",
        "file_system_not_growable", "recorded errors", retried=False, explained=("fsck",)),
    "an error has shut it down": Case(
        "status:9:the file system cannot be grown: the file system was shut down after an error",
        "file_system_shut_down", "was shut down", explained=("xfs_repair", "tries again")),
    "mounted read-only": Case("status:14:the file system is mounted read-only", "read_only",
                              "mounted read-only", explained=("remount,rw", "tries again")),
    "UNAVAILABLE": Case("status:14:later", "agent_failed", "later"),
    "a code that nobody knows": Case("status:4711:what", "agent_failed", "what"),
    "a text to print with care": Case("status:13:\x1b[2J\nred", "agent_failed", "red"),
    "silent": Case("silent", "agent_unreachable", "no answer within",
                   explained=("crustctl sandboxes", "tries again by itself")),
    "closes": Case("close", "agent_unreachable", "closed the connection without an answer"),
    "garbage": Case("garbage", "agent_unreachable", "no answer within|no reply"),
    "half an answer": Case("truncated", "agent_unreachable", "closed the connection"),
    "oversize": Case("oversize", "agent_unreachable", "too long|no answer within|no reply"),
}

SUCCESSES = ("ok", "explicit", "split,ok", "stale,ok", "stale,split,ok", "delay=0.2,ok")


class AgentTest(GuestTest):

    def build(self, names, seconds=2):
        node = self.node({"resize.call_timeout_seconds": seconds})
        scene = {}
        for number, name in enumerate(names):
            sandbox_id = f"{number + 1:064x}"
            volume = self.volume(node, f"pv-{number}")
            self.monitor(node, volume, sandbox_id=sandbox_id)
            agent = self.agent(node, f"agent{number}.sock")
            agent.stats.total = BEFORE
            self.sandbox(node, volume, sandbox_id=sandbox_id, agent=f"unix:///agent{number}.sock")
            scene[name] = (volume, agent)
        node.start()
        for volume, _ in scene.values():
            node.wait_for(volume.path, "in_sync", "none", guest_bytes=BEFORE)
        return node, scene

    def test_answers(self):
        node, scene = self.build(ANSWERS)
        calls = {}
        for name, (volume, agent) in scene.items():
            agent.behave("ResizeVolume", ANSWERS[name].behaviour)
            calls[name] = len(agent.requests)
        for volume, _ in scene.values():
            volume.loop.resize(AFTER)
        for name, (volume, _) in scene.items():
            with self.subTest(name):
                self.check(ANSWERS[name], node, volume)
        retried = [name for name in scene if ANSWERS[name].retried]
        waiting = [name for name in scene if not ANSWERS[name].retried]
        for name in retried:
            with self.subTest(name):
                scene[name][1].wait_for_requests(calls[name] + 2, LONGEST_PAUSE)
        self.settle(node)
        for name in scene:
            with self.subTest(name):
                requests = scene[name][1].requests[calls[name]:]
                self.assertEqual({one.method for one in requests}, {"ResizeVolume"})
                self.assertEqual({one.size for one in requests}, {AFTER})
                if name in waiting:
                    self.assertEqual(len(requests), 1)
        for _, agent in scene.values():
            agent.behave("ResizeVolume", "ok")
        self.finish(node, [scene[name][0] for name in retried])
        self.settle(node)
        for name in waiting:
            self.assertEqual(node.volume(scene[name][0].path)["reason"], ANSWERS[name].reason)
        node.crustctl("resync")
        self.finish(node, [scene[name][0] for name in waiting])

    def test_once_tries_again(self):
        """Volumes that wait for their next attempt, and volumes that wait for a change."""
        node, scene = self.build(("UNAVAILABLE", "UNIMPLEMENTED"))
        node.stop()
        for name, (volume, agent) in scene.items():
            agent.behave("ResizeVolume", ANSWERS[name].behaviour)
            volume.loop.resize(AFTER)
        self.assertEqual(node.once()["by_state"], {"block_grown": len(scene)})
        for volume, agent in scene.values():
            agent.behave("ResizeVolume", "ok")
        self.assertEqual(node.once()["by_state"], {"in_sync": len(scene)})

    def test_successes(self):
        node, scene = self.build(SUCCESSES, seconds=60)
        for name, (volume, agent) in scene.items():
            agent.behave("ResizeVolume", name)
            agent.behave("GetVolumeStats", name)
            volume.loop.resize(AFTER)
        for volume, _ in scene.values():
            node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER, next_attempt_at=None)
        self.finish(node, [volume for volume, _ in scene.values()])
        for _, agent in scene.values():
            self.assertEqual([one.method for one in agent.requests][-2:],
                             ["ResizeVolume", "GetVolumeStats"])

    def test_a_file_system_that_is_larger_than_its_device(self):
        node, scene = self.build(("ok",))
        volume, agent = scene["ok"]
        agent.stats.total = AFTER + 1
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "agent_failed", guest_bytes=BEFORE)
        self.assertIn(f"has {AFTER + 1} bytes, and its device has {AFTER}",
                      self.resize_row(node, volume.path)["error"])
        agent.stats.total = AFTER
        node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, guest_bytes=AFTER)

    def test_grows_but_refuses_stats(self):
        answers = ("status:12:no", f"status:13:{POLICY}", "status:5:no", "close", "silent",
                   "garbage")
        node, scene = self.build(answers)
        for name, (volume, agent) in scene.items():
            agent.behave("GetVolumeStats", name)
            volume.loop.resize(AFTER)
        for volume, _ in scene.values():
            row = node.wait_for(volume.path, "in_sync", "unverified", hypervisor_bytes=AFTER)
            self.assertIsNone(row["next_attempt_at"])
            self.assertIsNotNone(self.resize_row(node, volume.path)["finished_at"])
            self.explains(node, volume.path, "unverified", "df in the container")

    def test_nobody_listens(self):
        node, scene = self.build(["gone"])
        (volume, agent), = scene.values()
        agent.close()
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "agent_unreachable")
        node.wait(lambda: self.resize_row(node, volume.path)["attempts"] >= 3, 60, "more attempts")
        again = self.agent(node, "agent0.sock")
        again.stats.total = BEFORE
        self.finish(node, [volume])

    def test_growing_again_does_not_wait_for_the_pause(self):
        """A fresh resize is a fresh reason to try."""
        node, scene = self.build(["a layer"], seconds=60)
        (volume, agent), = scene.values()
        agent.behave("ResizeVolume", "status:9:a layer", "ok")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "guest_layer_unsupported", next_attempt_at=None)
        volume.loop.resize(2 * AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=2 * AFTER)
        row = self.resize_row(node, volume.path)
        self.assertEqual((row["from_bytes"], row["to_bytes"]), (BEFORE, 2 * AFTER))


class UnknownTest(ScratchNodeTest):
    """What persist.json does not tell, and tells later."""

    def build(self, **changes):
        node = self.node()
        volume = self.volume(node)
        self.agent(node).stats.total = BEFORE
        self.monitor(node, volume)
        drives = [volume.record(**changes.pop("drive", {}))]
        vmm = self.sandbox(node, volume, drives=drives, **changes)
        node.start()
        node.wait_for(volume.path, "in_sync", "unverified")
        volume.loop.resize(AFTER)
        return node, volume, vmm

    def test_address(self):
        for address, error in (("", "no agent address is known"),
                               ("tcp://127.0.0.1:1024", "none of vsock://CID:PORT"),
                               ("unix://relative", "none of vsock"),
                               ("hvsock:///x", "none of vsock"),
                               ("vsock://2:1024", "none of vsock")):
            with self.subTest(address):
                node, volume, vmm = self.build(agent=address)
                node.wait_for(volume.path, "block_grown", "agent_unreachable")
                self.assertIn(error, self.resize_row(node, volume.path)["error"])
                self.explains(node, volume.path, "agent_unreachable", "agent's address")
                node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock",
                                 drives=[volume.record()])
                node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, guest_bytes=AFTER)
                node.close()

    def test_device_that_grows_while_the_guest_is_asked(self):
        """Whatever comes of that call, the VMM hears of the resize."""
        for behaviour, reason in (("delay=2,status:12:not implemented", "agent_unsupported"),
                                  ("delay=2,status:9:it cannot", "guest_layer_unsupported"),
                                  ("delay=2,close", "agent_unreachable")):
            with self.subTest(reason):
                node = self.node({"resize.call_timeout_seconds": 20})
                volume = self.volume(node)
                self.monitor(node, volume)
                agent = self.agent(node)
                agent.behave("ResizeVolume", behaviour)
                self.sandbox(node, volume)
                node.start()
                agent.wait_for_requests(1)
                volume.loop.resize(AFTER)
                node.wait_for(volume.path, "block_grown", reason, LONGEST_PAUSE,
                              hypervisor_bytes=AFTER)
                node.close()

    def test_guest_path(self):
        node, volume, vmm = self.build(drive={"address": ""})
        node.wait_for(volume.path, "block_grown", "guest_path_unknown")
        self.assertGreaterEqual(self.resize_row(node, volume.path)["attempts"], 2)  # and again
        self.explains(node, volume.path, "persist.json", "paths.kata_go_sandboxes",
                      "crust-guest-agent --auto")
        # What it waits for is an address, and nobody has to say that there is one now.
        node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock", drives=[volume.record()])
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)


class RoutesTest(ScratchNodeTest):
    """Two ways into one guest, on one hybrid vsock; what they cannot do is remembered."""

    def build(self, companion=None, kata_agent=None, routes=None, seconds=60):
        """Two volumes in one sandbox. A behaviour of None: nobody listens on that port."""
        node = self.node({"resize.call_timeout_seconds": seconds} |
                         ({"agent.routes": routes} if routes else {}))
        volumes = [self.volume(node, f"pv-{number}") for number in range(2)]
        self.monitor(node, *volumes)
        agents = {}
        for port, behaviour in ((COMPANION_PORT, companion), (AGENT_PORT, kata_agent)):
            if behaviour is not None:
                agents[port] = self.agent(node, f"agent{port}.sock")
        self.vsock = HybridVsock(node.root / "kata.hvsock", agents)
        self.addCleanup(self.vsock.close)
        self.sandbox(node, *volumes, agent=f"hvsock:///kata.hvsock:{AGENT_PORT}")
        for port, behaviour in ((COMPANION_PORT, companion), (AGENT_PORT, kata_agent)):
            if behaviour is not None:
                agents[port].behave("ResizeVolume", behaviour)
        node.start()
        for volume in volumes:
            node.wait(lambda path=volume.path: (node.volume(path) or {}).get("state") == "in_sync",
                      60, "the first synchronisation")
        self.settle(node)
        return node, volumes, agents

    def asked(self, agent):
        return [one for one in agent.requests if one.method == "ResizeVolume"]

    def test_no_companion_and_an_agent_that_cannot(self):
        node, (first, second), agents = self.build(kata_agent="status:12:not implemented")
        agent = agents[AGENT_PORT]
        # Asked once for one of the two volumes, and remembered for the other.
        self.assertEqual(len(self.asked(agent)), 1)
        for volume in (first, second):
            volume.loop.resize(AFTER)
            row = node.wait_for(volume.path, "block_grown", "agent_unsupported",
                                next_attempt_at=None)
            self.assertEqual(row["hypervisor_bytes"], AFTER)
            self.assertIn("found unable before", self.resize_row(node, volume.path)["error"])
            self.explains(node, volume.path, "agent_unsupported", "crust-guest-agent")
        self.assertEqual(len(self.asked(agent)), 1)
        self.assertIn(COMPANION_PORT, self.vsock.ports)
        # Forgotten by a resync, asked again, and remembered again.
        node.crustctl("resync")
        agent.wait_for_requests(2, method="ResizeVolume")
        self.settle(node)
        self.assertEqual(len(self.asked(agent)), 2)
        agent.behave("ResizeVolume", "ok")
        node.crustctl("resync")
        for volume in (first, second):
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_abilities_survive_a_restart_of_the_daemon(self):
        node, (first, second), agents = self.build(kata_agent="status:7:blocked by policy")
        node.stop()
        node.start()
        for volume in (first, second):
            volume.loop.resize(AFTER)
            node.wait_for(volume.path, "block_grown", "agent_denied", next_attempt_at=None)
        self.assertEqual(len(self.asked(agents[AGENT_PORT])), 1)

    def test_able_companion(self):
        node, volumes, agents = self.build(companion="ok", kata_agent="status:12:no")
        for volume in volumes:
            volume.loop.resize(AFTER)
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(agents[AGENT_PORT].requests, [])
        self.assertEqual(set(self.vsock.ports), {COMPANION_PORT})

    def test_companion_that_cannot_and_an_agent_that_can(self):
        node, volumes, agents = self.build(companion="status:12:no", kata_agent="ok")
        for volume in volumes:
            volume.loop.resize(AFTER)
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(len(self.asked(agents[COMPANION_PORT])), 1)
        self.assertEqual(len(self.asked(agents[AGENT_PORT])), 4)

    def test_most_specific_reason_is_kept(self):
        node, (volume, _), _ = self.build(companion="status:7:no", kata_agent="status:12:no")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "agent_denied")

    def test_agent_only(self):
        node, (volume, _), agents = self.build(companion="ok", kata_agent="ok", routes="agent")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(agents[COMPANION_PORT].requests, [])

    def test_silent_companion_leaves_time_for_the_agent(self):
        node, (volume, _), agents = self.build(companion="silent", kata_agent="ok", seconds=6)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", seconds=LONGEST_PAUSE, hypervisor_bytes=AFTER)
        self.assertNotEqual(self.asked(agents[COMPANION_PORT]), [])


if __name__ == "__main__":
    unittest.main()
