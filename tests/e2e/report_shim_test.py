# SPDX-License-Identifier: Apache-2.0
"""Guests whose way in is the shim, in both dialects: grown by it, and each way in which it says no.

One daemon serves all cases of a test at once, each in a sandbox of its own.
"""

import dataclasses
import secrets
import unittest

from rust_runtime import GUEST_MOUNTS, RustPod, RustShim, guest_name
from scratch_node import AFTER, BEFORE, MIB, SANDBOX, fake_monitor, status
from report_guest import POLICY, Case, GuestTest, HybridVsock

from shim import RESIZE, FakeShim

AGENT_PORT = 1024
NOBODY = "unix:///nobody.sock"
ODD = "data 50%25+\"\u00fc"  # for JSON, and for decoding once or twice

UNREACHABLE = {
    "full": Case({"full": True}, "agent_unreachable", "the shim answers 503"),
    "never answers": Case({"silent_on": "POST"}, "agent_unreachable", "the shim: no answer in time",
                          explained=("crustctl sandboxes", "tries again by itself")),
    "answers too late": Case({"delay": 5.0}, "agent_unreachable", "the shim: no answer in time"),
    "hangs up in mid-answer": Case({"close_on": "POST"}, "agent_unreachable",
                                   "the shim: the connection was closed before"),
    "hangs up, in pieces": Case({"close_on": "POST", "split": 1}, "agent_unreachable",
                                "the shim: the connection was closed before"),
    "answers without an end": Case({"padding": 2 * MIB}, "agent_unreachable",
                                   "the shim: the answer is too long"),
}

GO = UNREACHABLE | {
    "UNIMPLEMENTED": Case({"status": (12, '"resize_volume is not implemented in kata-agent"')},
                          "agent_unsupported", "^by the shim: UNIMPLEMENTED: resize_volume is not",
                          retried=False, explained=("crust-guest-agent", "crustctl resync")),
    "NOT_FOUND": Case({"status": (5, "/grpc.AgentService/ResizeVolume is not supported")},
                      "agent_unsupported", "is not supported", retried=False),
    "INVALID_ARGUMENT": Case({"status": (3, "/grpc.AgentService/ResizeVolume does not exist")},
                             "agent_unsupported", "does not exist", retried=False),
    "PERMISSION_DENIED": Case({"status": (7, "ResizeVolumeRequest is blocked by policy")},
                              "agent_denied", "blocked by policy", retried=False,
                              explained=("ResizeVolumeRequest", "VolumeStatsRequest")),
    "INTERNAL of the policy": Case({"status": (13, f'"{POLICY}"')}, "agent_denied", "policy check",
                                   retried=False),
    "FAILED_PRECONDITION": Case({"status": (9, "dm-0 lies between")}, "guest_layer_unsupported",
                                "dm-0 lies between", retried=False),
    "INTERNAL": Case({"status": (13, "resize2fs: bad magic")}, "agent_failed", "bad magic",
                     explained=("The last error", "bad magic")),
    "a code that nobody knows": Case({"status": (4711, "what")}, "agent_failed", "4711: what"),
    "a text to print with care": Case({"status": (13, "\x1b[2J\nred")}, "agent_failed", "red"),
    "the shim's own deadline": Case({"status": (4, "ResizeVolumeRequest timed out")},
                                    "agent_unreachable", "timed out"),
    "no connection to the agent": Case(
        {"failure": "Failed to check if grpc server is working: rpc error: code = Unavailable "
                    "desc = x"}, "agent_unreachable", "the shim answers 500: Failed to check"),
    "no such volume": Case({"volumes": {}}, "agent_unreachable",
                           "the shim answers 500: mount /dev/.* not found in sandbox"),
    "no such call": Case({"refuse": (404, "404 page not found\n")}, "agent_unsupported",
                         "the shim answers 404: 404 page not found", retried=False),
}

SANDBOXES = secrets.token_hex(24)  # no other test has such processes meanwhile

SECRETIVE = ("journalctl -t kata", "crust-guest-agent")

RUST = UNREACHABLE | {
    "UNIMPLEMENTED": Case({"status": (12, "no")}, "agent_failed",
                          "closed the connection without a status", explained=SECRETIVE),
    "PERMISSION_DENIED": Case({"status": (7, "no")}, "agent_failed", "without a status"),
    "no connection to the agent": Case({"failure": "get client"}, "agent_failed",
                                       "without a status"),
    "no such call": Case({"refuse": (404, "URL NOT FOUND")}, "agent_unsupported",
                         "the shim answers 404: URL NOT FOUND", retried=False),
}

SUCCESSES = {"at once": {}, "slowly": {"delay": 0.2}, "in pieces": {"split": 1}}


@dataclasses.dataclass
class Pod(RustPod):
    node: object
    id: str


def sandbox_id(number):
    return f"{SANDBOXES}{number + 1:016x}"


def resizes(shim):
    return shim.sent("POST", RESIZE)


class ShimTest(GuestTest):
    """Sandboxes of both runtimes, each with one volume and a scripted shim."""

    def serve(self, shim):
        shim.stats.total = BEFORE
        self.addCleanup(shim.stop)
        return shim.start()

    def go(self, node, number=0, agent=NOBODY, **record):
        sandbox = sandbox_id(number)
        volume = self.volume(node, f"pv-{number}")
        self.monitor(node, volume, sandbox_id=sandbox)
        self.sandbox(node, volume, sandbox_id=sandbox, agent=agent,
                     drives=[volume.record(**record)])
        return volume, self.shim_of(node, volume, sandbox_id=sandbox)

    def shim_of(self, node, *volumes, sandbox_id=SANDBOX):
        return self.serve(FakeShim(node.root / "run/vc/sbs" / sandbox_id / "shim-monitor.sock",
                                   "go", {v.loop.device: f"/mnt/{v.drive}" for v in volumes}))

    def pod(self, node, number=0, hypervisor="qemu", vmm=True):
        pod = Pod(node, sandbox_id(number))
        pod.make_directories()
        if vmm:
            node.start_vmm(pod.id, *pod.monitor_arguments)
        pod.write_state(hypervisor)
        shim = RustShim(pod)
        self.addCleanup(shim.close)
        shim.server.stats.total = BEFORE
        return pod, shim

    def mount(self, pod, shim, volume, destination="data"):
        name = guest_name(destination)
        shim.server.volumes[volume.loop.device] = f"{GUEST_MOUNTS}/{name}"
        pod.run_container(volume.path, name)
        return name

    def rust(self, node, number=0, destination="data"):
        volume = self.volume(node, f"pv-{number}")
        pod, shim = self.pod(node, number)
        monitor = fake_monitor.FakeMonitor(pod.monitor_path,
                                           [fake_monitor.Drive(volume.drive, volume.loop.device)])
        self.addCleanup(monitor.stop)
        monitor.start()
        self.mount(pod, shim, volume, destination)
        return volume, shim.server

    def start(self, node, volumes, reason="none"):
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", reason)

    def set(self, shim, **hooks):
        for name, value in hooks.items():
            self.assertTrue(hasattr(shim, name), name)
            setattr(shim, name, value)

    def mend(self, shim, volumes):
        self.set(shim, full=False, silent_on=None, delay=0.0, close_on=None, split=0, padding=0,
                 status=None, failure=None, refuse=None, volumes=volumes)


class AnswersTest(ShimTest):

    def run_cases(self, make, cases):
        node = self.node({"resize.call_timeout_seconds": 2})
        scene = {name: make(node, number) for number, name in enumerate(cases)}
        self.start(node, [volume for volume, _ in scene.values()])
        before, known = {}, {}
        for name, (volume, shim) in scene.items():
            before[name], known[name] = len(resizes(shim)), dict(shim.volumes)
            self.set(shim, **cases[name].behaviour)
            volume.loop.resize(AFTER)
        for name, (volume, _) in scene.items():
            with self.subTest(name):
                self.check(cases[name], node, volume)
        # On a slow machine one may be told twice before it is known what it answers.
        told = {name: len(resizes(shim)) for name, (_, shim) in scene.items()}
        for name, (volume, _) in scene.items():
            if cases[name].retried:
                node.wait(lambda path=volume.path: self.resize_row(node, path)["attempts"] >= 3, 60,
                          f"{name} to be tried again")
        self.settle(node)
        for name, (_, shim) in scene.items():
            if not cases[name].retried:
                self.assertGreater(told[name], before[name], name)
                self.assertEqual(len(resizes(shim)), told[name], name)
            self.mend(shim, known[name])
        retried = [volume for name, (volume, _) in scene.items() if cases[name].retried]
        waiting = [volume for name, (volume, _) in scene.items() if not cases[name].retried]
        self.finish(node, retried)
        self.settle(node)
        for volume in waiting:
            self.assertEqual(node.volume(volume.path)["state"], "block_grown")
        node.crustctl("resync")
        self.finish(node, waiting)

    def test_go(self):
        self.run_cases(self.go, GO)

    def test_rust(self):
        self.run_cases(self.rust, RUST)

    def run_successes(self, make):
        node = self.node()
        scene = {name: make(node, number) for number, name in enumerate(SUCCESSES)}
        for name, (_, shim) in scene.items():
            self.set(shim, **SUCCESSES[name])
        self.start(node, [volume for volume, _ in scene.values()])
        for volume, _ in scene.values():
            volume.loop.resize(AFTER)
        for volume, shim in scene.values():
            node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER, next_attempt_at=None)
            path, = shim.volumes.values()
            self.assertEqual(shim.calls[-2:], [("ResizeVolume", path, AFTER),
                                               ("GetVolumeStats", path, 0)])
        self.finish(node, [volume for volume, _ in scene.values()])

    def test_grown_by_go(self):
        self.run_successes(self.go)

    def test_grown_by_rust(self):
        self.run_successes(self.rust)

    def test_grown_but_refuses_stats(self):
        node = self.node()
        scene = [self.go(node, 0), self.rust(node, 1)]
        for _, shim in scene:
            shim.stats_status = (13, POLICY)
        self.start(node, [volume for volume, _ in scene], "unverified")
        for volume, shim in scene:
            volume.loop.resize(AFTER)
            row = node.wait_for(volume.path, "in_sync", "unverified", hypervisor_bytes=AFTER)
            self.assertIsNone(row["next_attempt_at"])
            self.assertEqual(shim.calls[-2][0::2], ("ResizeVolume", AFTER))
            self.explains(node, volume.path, "unverified", "df in the container")


class NamesTest(ShimTest):
    """What the shim is told that a volume is."""

    def test_device_as_mount_info_has_it(self):
        """Go's shim compares texts."""
        node = self.node()
        volume, shim = self.go(node)
        device = f"/dev/disk/{ODD}"
        node.path("/dev/disk").mkdir()
        node.path(device).symlink_to(volume.loop.device)
        node.stage(volume.path, device)
        self.set(shim, root=str(node.root), volumes={device: "/mnt/x"})
        self.start(node, [volume])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)

    def test_path_in_the_guest(self):
        node = self.node()
        volume, shim = self.rust(node, destination=ODD)
        self.start(node, [volume])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)
        self.assertTrue(shim.calls[-1][1].endswith(ODD))

    def test_go_needs_no_path_in_the_guest(self):
        node = self.node()
        volume, _ = self.go(node, address="")
        self.start(node, [volume])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)

    def test_rust_needs_one(self):
        """Two mounts of that name: which one it is, nothing tells."""
        node = self.node()
        volume, shim = self.rust(node)
        (node.root / "run/kata-containers/shared/sandboxes" / sandbox_id(0) / "rw/passthrough" /
         guest_name("data")).mkdir()
        self.start(node, [volume], "unverified")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "guest_path_unknown")
        self.assertEqual(resizes(shim), [])

    def test_rust_container_restarts(self):
        """The directory of the one that has ended stays; the next one has another device."""
        node = self.node()
        volume, shim = self.rust(node)
        self.start(node, [volume])
        pod = Pod(node, sandbox_id(0))
        ended, = {one.name for one in pod.bundle(pod.id).parent.iterdir()} - {pod.id}
        pod.end_container(ended)
        node.wait_for(volume.path, "unbound", "none")
        pod.write_bundle("c" * 64, [(volume.path, "/srv/data")])
        node.wait_for(volume.path, "in_sync", sandbox_id=pod.id)
        name = guest_name("data")
        (pod.passthrough / name).mkdir()
        shim.volumes = {volume.loop.device: f"{GUEST_MOUNTS}/{name}"}
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertTrue(shim.calls[-1][1].endswith(name))


class RoutesTest(ShimTest):
    """The shim beside the companion and the agent, which share a hybrid vsock."""

    def build(self, companion=None, kata_agent=None, **settings):
        """Two volumes in one sandbox. A behaviour of None: nobody listens on that port."""
        node = self.node({f"agent.{name}": value for name, value in settings.items()})
        volumes = [self.volume(node, f"pv-{number}") for number in range(2)]
        self.monitor(node, *volumes)
        self.agents = {}
        for port, behaviour in ((1030, companion), (AGENT_PORT, kata_agent)):
            if behaviour:
                self.agents[port] = self.agent(node, f"agent{port}.sock")
                self.agents[port].behave("ResizeVolume", behaviour)
        self.vsock = HybridVsock(node.root / "kata.hvsock", self.agents)
        self.addCleanup(self.vsock.close)
        self.sandbox(node, *volumes, agent=f"hvsock:///kata.hvsock:{AGENT_PORT}")
        return node, volumes, self.shim_of(node, *volumes)

    def grow(self, node, volumes, size=AFTER):
        for volume in volumes:
            volume.loop.resize(size)
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=size)

    def test_others_are_not_reached(self):
        node, volumes, shim = self.build()
        self.start(node, volumes)
        self.grow(node, volumes)
        self.assertEqual(set(self.vsock.ports), {1030, AGENT_PORT})
        self.assertEqual(len(resizes(shim)), 4)

    def test_address_of_a_kind_that_nobody_else_knows(self):
        node = self.node()
        volume, _ = self.go(node, agent="remote:///run/peerpod/hypervisor.sock:1024")
        self.start(node, [volume])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)

    def test_others_cannot(self):
        """Each is asked once, in one of the two volumes' behalf."""
        node, volumes, shim = self.build("status:12:no", "status:12:no")
        self.start(node, volumes)
        self.grow(node, volumes)
        for agent in self.agents.values():
            self.assertEqual(len(agent.requests), 1)
        self.assertEqual(len(resizes(shim)), 4)

    def test_another_can(self):
        node, volumes, shim = self.build("status:7:no", "ok")
        self.start(node, volumes)
        self.grow(node, volumes)
        self.assertEqual(shim.requests, [])

    def test_order(self):
        node, volumes, shim = self.build("ok", "ok", routes="shim, agent, companion")
        self.start(node, volumes)
        self.grow(node, volumes)
        self.assertEqual(self.vsock.ports, [])
        self.assertEqual(len(resizes(shim)), 4)

    def test_not_among_the_routes(self):
        node, volumes, shim = self.build(kata_agent="status:12:no", routes="companion, agent")
        self.start(node, volumes, "unverified")
        volumes[0].loop.resize(AFTER)
        node.wait_for(volumes[0].path, "block_grown", "agent_unsupported", next_attempt_at=None)
        self.assertEqual(shim.requests, [])

    def test_missing_abilities_are_remembered(self):
        node, volumes, shim = self.build()
        shim.status = (12, "not implemented")
        self.start(node, volumes, "unverified")
        self.settle(node)
        self.assertEqual(len(resizes(shim)), 1)
        node.stop()
        node.start()
        for volume in volumes:
            volume.loop.resize(AFTER)
            node.wait_for(volume.path, "block_grown", "agent_unsupported", next_attempt_at=None)
            self.assertIn("found unable before", self.resize_row(node, volume.path)["error"])
        self.settle(node)
        self.assertEqual(len(resizes(shim)), 1)
        node.crustctl("resync")
        node.wait(lambda: len(resizes(shim)) == 2, 60, "the shim to be asked again")
        self.settle(node)
        self.assertEqual(len(resizes(shim)), 2)

        # Another agent: what the one before could not says nothing about it.
        shim.status = None
        vmm = node.query("SELECT vmm_pid FROM audit_sandboxes")[0]["vmm_pid"]
        node.add_sandbox(SANDBOX, vmm, agent=NOBODY, drives=[v.record() for v in volumes])
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)

    def test_status_of_the_agent_outweighs_a_closed_connection(self):
        node = self.node()
        volume, shim = self.rust(node)
        shim.status = (12, "no")
        agent = self.agent(node)
        agent.behave("ResizeVolume", "status:12:not implemented")
        shim.agent_url = "unix:///agent.sock"
        self.start(node, [volume], "unverified")
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "block_grown", "agent_unsupported", next_attempt_at=None)
        self.assertEqual(row["hypervisor_bytes"], AFTER)

    def test_silent_agent_leaves_time_for_the_shim(self):
        node = self.node({"resize.call_timeout_seconds": 6})
        volume, shim = self.go(node, agent="unix:///agent.sock")
        self.agent(node).behave("ResizeVolume", "silent")
        self.start(node, [volume])
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertGreaterEqual(len(resizes(shim)), 2)

    def test_a_hung_shim_holds_up_no_other(self):
        """64 guests grow at once, half of them by each dialect; the others are through while one
        shim still does not answer."""
        node = self.node({"resize.call_timeout_seconds": 600})
        scene = [(self.go, self.rust)[number % 2](node, number) for number in range(64)]
        self.start(node, [volume for volume, _ in scene])
        (hung, hung_shim), others = scene[0], scene[1:]
        hung_shim.silent_on = "POST"
        hung.loop.resize(AFTER)
        node.wait(lambda: len(resizes(hung_shim)) == 2, 60, "the one to be asked")
        for volume, _ in others:
            volume.loop.resize(AFTER)
        for volume, _ in others:
            node.wait_for(volume.path, "in_sync", "none", guest_bytes=AFTER)
        node.wait(lambda: status(node)["acts_in_flight"] == 1, 60, "all acts but the hung one to end")
        node.wait_for(hung.path, "block_grown", "none", hypervisor_bytes=AFTER)


class UnsupportedVmmTest(ShimTest):
    """VMMs that are recognised, and that nothing can tell of a resize: said, and not tried. Their
    guests are not asked either, because they cannot have the new size."""

    def check_kind(self, node, volume, kind, error):
        node.wait_for(volume.path, "unknown", "hypervisor_unsupported", next_attempt_at=None)
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "blocked", "hypervisor_unsupported", next_attempt_at=None)
        sandbox = node.query("SELECT hypervisor, status FROM audit_sandboxes"
                             f" WHERE sandbox_id = '{row['sandbox_id']}'")[0]
        self.assertEqual(sandbox, {"hypervisor": kind, "status": "alive"})
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        self.assertIn(error, resize["error"])
        self.explains(node, volume.path, "hypervisor_unsupported", "Restart the pod")

    def test_rust_runtime(self):
        kinds = {"dragonball": "no control socket", "openvmm": "no known call",
                 "remote": "on another machine"}
        node = self.node()
        scene = {}
        for number, kind in enumerate(kinds):
            volume = self.volume(node, f"pv-{number}")
            pod, shim = self.pod(node, number, kind, vmm=kind == "openvmm")
            self.mount(pod, shim, volume)
            scene[kind] = (volume, shim.server)
        node.start()
        for kind, (volume, shim) in scene.items():
            self.check_kind(node, volume, kind, kinds[kind])
            self.assertEqual(resizes(shim), [])

    def test_go_runtime(self):
        kinds = {"stratovirt": "which the shim holds", "remote": "on another machine"}
        node = self.node()
        scene = {}
        for number, kind in enumerate(kinds):
            volume = self.volume(node, f"pv-{number}")
            vmm = node.start_vmm(sandbox_id(number))
            node.add_sandbox(sandbox_id(number), vmm.pid, hypervisor=kind, agent=NOBODY,
                             drives=[volume.record()])
            node.record(volume.path, sandbox_id(number))
            scene[kind] = (volume, self.shim_of(node, volume, sandbox_id=sandbox_id(number)))
        node.start()
        for kind, (volume, shim) in scene.items():
            self.check_kind(node, volume, kind, kinds[kind])
            self.assertEqual(resizes(shim), [])


if __name__ == "__main__":
    unittest.main()
