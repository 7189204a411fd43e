# SPDX-License-Identifier: Apache-2.0
"""The ways into a guest: which of them is taken, what is remembered of one that cannot, and what persist.json does not
tell of it. What each way can answer is in report_failures_test.py.
"""

import dataclasses

from report_guest import NOBODY, HybridVsock, SidesTest, resizes
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, SANDBOX, ScratchNodeTest

COMPANION, AGENT = 1030, 1024  # ports


class AgentTest(ScratchNodeTest):

    def test_a_file_system_that_is_larger_than_its_device(self):
        scene = self.scenery()
        scene.wait("in_sync", "none", guest_bytes=BEFORE)
        scene.agent.stats.total = AFTER + 1
        scene.resize(AFTER)
        scene.wait("block_grown", "agent_failed", guest_bytes=BEFORE)
        self.assertIn(f"has {AFTER + 1} bytes, and its device has {AFTER}", scene.row()["error"])
        scene.agent.stats.total = AFTER
        scene.wait("in_sync", "none", LONGEST_PAUSE, guest_bytes=AFTER)

    def test_nobody_listens(self):
        scene = self.scenery({"resize.call_timeout_seconds": 2})
        scene.agent.close()
        scene.resize(AFTER)
        scene.wait("block_grown", "agent_unreachable")
        scene.node.wait(lambda: scene.row()["attempts"] >= 3, 60, "more attempts")
        self.agent(scene.node).stats.total = BEFORE
        scene.wait("in_sync", None, LONGEST_PAUSE, hypervisor_bytes=AFTER, next_attempt_at=None)
        self.assertIsNotNone(scene.row()["guest_at"])

    def test_growing_again_does_not_wait_for_the_pause(self):
        """A fresh resize is a fresh reason to try."""
        scene = self.scenery()
        scene.agent.behave("ResizeVolume", "status:9:a layer")
        scene.resize(AFTER)
        scene.wait("block_grown", "guest_layer_unsupported", next_attempt_at=None)
        scene.agent.behave("ResizeVolume", "ok")
        scene.grows(2 * AFTER, guest_bytes=2 * AFTER)
        self.assertEqual((scene.row()["from_bytes"], scene.row()["to_bytes"]), (BEFORE, 2 * AFTER))

    def test_device_that_grows_while_the_guest_is_asked(self):
        """Whatever comes of that call, the VMM hears of the resize."""
        for behaviour, reason in (("delay=2,status:12:not implemented", "agent_unsupported"),
                                  ("delay=2,status:9:it cannot", "guest_layer_unsupported"),
                                  ("delay=2,close", "agent_unreachable")):
            with self.subTest(reason):
                scene = self.scenery({"resize.call_timeout_seconds": 20}, start=False)
                scene.agent.behave("ResizeVolume", behaviour)
                scene.node.start()
                scene.agent.wait_for_requests(1)
                scene.resize(AFTER)
                scene.wait("block_grown", reason, LONGEST_PAUSE, hypervisor_bytes=AFTER)
                scene.node.close()


class UnknownTest(ScratchNodeTest):
    """What persist.json does not tell, and tells later."""

    def grown(self, **records):
        scene = self.scenery(start=False)
        scene.write_records(**records)
        scene.node.start()
        scene.wait("in_sync", "unverified")
        scene.resize(AFTER)
        return scene

    def test_address(self):
        for address, error in (("", "no agent address is known"),
                               ("tcp://127.0.0.1:1024", "none of vsock://CID:PORT"),
                               ("unix://relative", "none of vsock"),
                               ("hvsock:///x", "none of vsock"),
                               ("vsock://2:1024", "none of vsock")):
            with self.subTest(address):
                scene = self.grown(agent=address)
                scene.wait("block_grown", "agent_unreachable")
                self.assertIn(error, scene.row()["error"])
                scene.explains("agent_unreachable", "agent's address")
                scene.write_records()
                scene.wait("in_sync", "none", LONGEST_PAUSE, guest_bytes=AFTER)
                scene.node.close()

    def test_guest_path(self):
        scene = self.scenery(start=False)
        scene.write_records(drives=[scene.volume.record(address="")])
        scene.node.start()
        scene.wait("in_sync", "unverified")
        scene.resize(AFTER)
        scene.wait("block_grown", "guest_path_unknown")
        self.assertGreaterEqual(scene.row()["attempts"], 2)  # and again
        scene.explains("persist.json", "paths.kata_go_sandboxes", "crust-guest-agent --auto")
        # What it waits for is an address, and nobody has to say that there is one now.
        scene.write_records()
        scene.wait("in_sync", "none", guest_bytes=AFTER)


@dataclasses.dataclass
class Route:
    """How the companion and the agent answer (None: nobody listens), whether there is a shim, and what becomes of a
    resize of both volumes. asked: how often each was asked for one since the start."""

    companion: str | None
    agent: str | None
    shim: bool
    asked: dict
    reason: str = "none"
    settings: dict = dataclasses.field(default_factory=dict)
    ports: set | None = None  # of the hybrid vsock that were tried


CANNOT = "status:12:no"
ROUTES = {
    "able companion": Route("ok", CANNOT, False, {AGENT: 0}, ports={COMPANION}),
    "companion that cannot and an agent that can": Route(CANNOT, "ok", False, {COMPANION: 1, AGENT: 4}),
    "most specific reason is kept": Route("status:7:no", CANNOT, False, {}, "agent_denied"),
    "agent only": Route("ok", "ok", False, {COMPANION: 0}, settings={"agent.routes": "agent"}),
    "others are not reached": Route(None, None, True, {"shim": 4}, ports={COMPANION, AGENT}),
    "others cannot": Route(CANNOT, CANNOT, True, {COMPANION: 1, AGENT: 1, "shim": 4}),
    "another can": Route("status:7:no", "ok", True, {"shim": 0}),
    "order": Route("ok", "ok", True, {"shim": 4}, settings={"agent.routes": "shim, agent, companion"}, ports=set()),
    "not among the routes": Route(None, CANNOT, True, {"shim": 0}, "agent_unsupported",
                                  {"agent.routes": "companion, agent"}),
}


class RoutesTest(SidesTest):
    """Two volumes in one sandbox, and all ways into its guest: two ports of one hybrid vsock, and the shim."""

    def build(self, companion=None, agent=None, shim=False, settings=None):
        node = self.node(settings)
        volumes = [self.volume(node, f"pv-{number}") for number in range(2)]
        self.monitor(node, *volumes)
        self.agents = {port: self.agent(node, f"agent{port}.sock")
                       for port, behaviour in ((COMPANION, companion), (AGENT, agent)) if behaviour}
        self.vsock = HybridVsock(node.root / "kata.hvsock", self.agents)
        self.addCleanup(self.vsock.close)
        self.sandbox(node, *volumes, agent=f"hvsock:///kata.hvsock:{AGENT}")
        for port, one in self.agents.items():
            one.behave("ResizeVolume", companion if port == COMPANION else agent)
        self.shim = self.shim_of(node, *volumes) if shim else None
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync")
        self.settle(node)
        return node, volumes

    def asked(self, port):
        requests = resizes(self.shim) if port == "shim" else self.agents[port].requests
        return len([one for one in requests if port == "shim" or one.method == "ResizeVolume"])

    def grow(self, node, volumes, reason):
        for volume in volumes:
            volume.loop.resize(AFTER)
        for volume in volumes:
            node.wait_for(volume.path, "in_sync" if reason == "none" else "block_grown", reason,
                          hypervisor_bytes=AFTER, next_attempt_at=None)

    def test_routes(self):
        for name, route in ROUTES.items():
            with self.subTest(name):
                node, volumes = self.build(route.companion, route.agent, route.shim, route.settings)
                self.grow(node, volumes, route.reason)
                for port, count in route.asked.items():
                    self.assertEqual(self.asked(port), count, port)
                    peer = self.shim if port == "shim" else self.agents[port]
                    if count < 2:  # one that cannot is asked for nothing else either
                        self.assertEqual(len(peer.requests), count, port)
                if route.ports is not None:
                    self.assertEqual(set(self.vsock.ports), route.ports)
                node.close()

    def test_inability_is_remembered(self):
        """Of an agent beside a companion that nobody has started, asked once for both volumes. A resync forgets it."""
        node, volumes = self.build(agent="status:12:not implemented")
        agent = self.agents[AGENT]
        self.assertEqual(self.asked(AGENT), 1)
        self.grow(node, volumes, "agent_unsupported")
        for volume in volumes:
            self.assertIn("found unable before", self.resize_row(node, volume.path)["error"])
            self.explains(node, volume.path, "agent_unsupported", "crust-guest-agent")
        self.assertEqual(self.asked(AGENT), 1)
        self.assertIn(COMPANION, self.vsock.ports)
        node.crustctl("resync")
        agent.wait_for_requests(2, method="ResizeVolume")
        self.settle(node)
        self.assertEqual(self.asked(AGENT), 2)
        agent.behave("ResizeVolume", "ok")
        node.crustctl("resync")
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_inability_is_remembered_across_a_restart(self):
        node, volumes = self.build(agent="status:7:blocked by policy")
        node.stop()
        node.start()
        self.grow(node, volumes, "agent_denied")
        self.assertEqual(self.asked(AGENT), 1)

    def test_inability_of_a_shim_is_remembered(self):
        """Across a restart, until a resync, and of this agent only."""
        node = self.node()
        volumes = [self.volume(node, f"pv-{number}") for number in range(2)]
        self.monitor(node, *volumes)
        vmm = self.sandbox(node, *volumes, agent=NOBODY)
        self.shim = self.shim_of(node, *volumes)
        self.shim.status = (12, "not implemented")
        self.start(node, volumes, "unverified")
        self.settle(node)
        self.assertEqual(self.asked("shim"), 1)
        node.stop()
        node.start()
        self.grow(node, volumes, "agent_unsupported")
        for volume in volumes:
            self.assertIn("found unable before", self.resize_row(node, volume.path)["error"])
        self.settle(node)
        self.assertEqual(self.asked("shim"), 1)
        node.crustctl("resync")
        node.wait(lambda: self.asked("shim") == 2, 60, "the shim to be asked again")
        self.settle(node)
        self.assertEqual(self.asked("shim"), 2)
        self.shim.status = None
        node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///another.sock", drives=[v.record() for v in volumes])
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_a_silent_one_leaves_time_for_the_next(self):
        """A silent companion for the agent, and a silent agent for the shim."""
        for silent, then in (("companion", "agent"), ("agent", "shim")):
            with self.subTest(silent):
                node, volumes = self.build(**{silent: "silent", then: "ok"},
                                           settings={"resize.call_timeout_seconds": 6})
                volumes[0].loop.resize(AFTER)
                node.wait_for(volumes[0].path, "in_sync", "none" if then == "shim" else None, LONGEST_PAUSE,
                              hypervisor_bytes=AFTER)
                self.assertGreaterEqual(self.asked({"companion": COMPANION, "agent": AGENT}[silent]), 1)
                if then == "shim":
                    self.assertGreaterEqual(self.asked("shim"), 2)
                node.close()
