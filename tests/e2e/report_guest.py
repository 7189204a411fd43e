# SPDX-License-Identifier: Apache-2.0
"""The sides of a sandbox that crustd asks, scripted: its VMM's monitor, the agent in the guest, and the shims of both
runtimes. Many sandboxes share one node, and each has one volume and one side that a test is about.

    class Something(SidesTest):
        def test_it(self):
            node = self.node()
            side = self.go_side(node, 0)
            self.start(node, [side])
            side.breaks({"full": True})
"""

import dataclasses
import re
import secrets
import socket
import threading

from rust_runtime import GUEST_MOUNTS, RustPod, guest_name
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, SANDBOX, ScratchNodeTest, fake_agent

from shim import RESIZE, FakeShim

POLICY = ("ResizeVolumeRequest: internal error policy check: unexpected eval_query result len 0, expected 1")
UNREACHABLE = ("the control socket", "tries again by itself", "resize.call_timeout_seconds")
NOBODY = "unix:///nobody.sock"
SANDBOXES = secrets.token_hex(24)  # no other test has such processes meanwhile


class HybridVsock(fake_agent.UnixServer):
    """One socket for all ports of a guest, as Cloud Hypervisor and Firecracker have it: hands a
    connection on to the agent that listens on the port, and closes it where none does."""

    def __init__(self, path, agents):
        super().__init__(path)
        self.ports = []  # every port that was asked for
        self.agents = agents
        self.start()

    def _talk(self, client):
        port = int(fake_agent.read_line(client).split()[1])
        self.ports.append(port)
        if port in self.agents:
            client.sendall(b"OK 1073741824\n")
            self.agents[port]._talk(client)


class GuestPort:
    """crust-guest-agent of a guest, behind a port of HybridVsock. QEMU serves one client at a time."""

    def __init__(self, path):
        self.path, self.turn = str(path), threading.Lock()

    def _talk(self, client):
        with self.turn, socket.socket(socket.AF_UNIX) as guest:
            guest.connect(self.path)
            back = threading.Thread(target=self.copy, args=(guest, client), daemon=True)
            back.start()
            self.copy(client, guest)
            guest.shutdown(socket.SHUT_RDWR)
            back.join()

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass  # either side has gone


def sandbox_id(number):
    return f"{SANDBOXES}{number + 1:016x}"


def resizes(shim):
    return shim.sent("POST", RESIZE)


@dataclasses.dataclass
class Case:
    """What breaks a side before the device is resized (hooks of the fake, or an agent's behaviour), and what crustd
    reports then."""

    hooks: object
    reason: str
    error: str  # a pattern of it
    explained: tuple = ()
    retried: bool = True  # by itself; another one waits for a resync
    # Of a monitor: what the VMM is still known to have, and whether a resize was asked for at all.
    known: int | None = BEFORE
    asked: bool = True


@dataclasses.dataclass
class Side:
    """A volume, and the side of its sandbox that a test is about: here a shim, asked in its dialect."""

    volume: object
    peer: object
    undo: list = dataclasses.field(default_factory=list)
    state = "block_grown"  # of a volume whose resize this side holds up

    def set(self, target, hooks):
        for name, value in hooks.items():
            self.undo.append((target, name, getattr(target, name)))
            setattr(target, name, value)

    def breaks(self, hooks):
        self.peer.requests.clear()
        self.set(self.peer, hooks)

    def mend(self):
        while self.undo:
            setattr(*self.undo.pop())

    def asked(self):
        """The resizes that it was asked for since it broke."""
        return resizes(self.peer)


class AgentSide(Side):
    def breaks(self, hooks):
        self.peer.requests.clear()
        self.peer.behave("ResizeVolume", hooks)

    def mend(self):
        self.peer.behave("ResizeVolume", "ok")

    def asked(self):
        return [one for one in self.peer.requests if one.method == "ResizeVolume"]


class MonitorSide(Side):
    state = "blocked"

    def breaks(self, hooks):
        drive = hooks.get("drive", {})
        self.set(self.peer.drives[0], drive)
        super().breaks({name: value for name, value in hooks.items() if name != "drive"})

    def asked(self):
        return self.peer.sent("block_resize")


class SidesTest(ScratchNodeTest):

    def monitor_side(self, node, number):
        if not (node.root / "agent.sock").exists():
            self.agent(node).stats.total = BEFORE
        volume = self.volume(node, f"pv-{number}")
        monitor = self.monitor(node, volume, sandbox_id=sandbox_id(number))
        self.sandbox(node, volume, sandbox_id=sandbox_id(number))
        return MonitorSide(volume, monitor)

    def agent_side(self, node, number, name=None):
        volume = self.volume(node, name or f"pv-{number}")
        self.monitor(node, volume, sandbox_id=sandbox_id(number))
        agent = self.agent(node, f"agent{number}.sock")
        agent.stats.total = BEFORE
        self.sandbox(node, volume, sandbox_id=sandbox_id(number), agent=f"unix:///agent{number}.sock")
        return AgentSide(volume, agent)

    def go_side(self, node, number=0, agent=NOBODY, **record):
        volume = self.volume(node, f"pv-{number}")
        self.monitor(node, volume, sandbox_id=sandbox_id(number))
        self.sandbox(node, volume, sandbox_id=sandbox_id(number), agent=agent, drives=[volume.record(**record)])
        return Side(volume, self.shim_of(node, volume, sandbox_id=sandbox_id(number)))

    def shim_of(self, node, *volumes, sandbox_id=SANDBOX):
        shim = FakeShim(node.root / "run/vc/sbs" / sandbox_id / "shim-monitor.sock",
                        "go", {v.loop.device: f"/mnt/{v.drive}" for v in volumes})
        shim.stats.total = BEFORE
        self.addCleanup(shim.stop)
        return shim.start()

    def pod(self, node, number=0, hypervisor="qemu", vmm=True):
        pod = RustPod(node, sandbox_id(number))
        shim = pod.start(self, *pod.monitor_arguments, hypervisor=hypervisor, vmm=vmm)
        shim.server.stats.total = BEFORE
        return pod, shim

    def mount(self, pod, shim, volume, destination="data"):
        name = guest_name(destination)
        shim.server.volumes[volume.loop.device] = f"{GUEST_MOUNTS}/{name}"
        pod.run_container(volume.path, name)

    def rust_side(self, node, number=0, destination="data"):
        volume = self.volume(node, f"pv-{number}")
        pod, shim = self.pod(node, number)
        self.monitor(node, volume, path=pod.monitor_path)
        self.mount(pod, shim, volume, destination)
        return Side(volume, shim.server)

    def start(self, node, volumes, reason="none"):
        if not node.process:
            node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", reason)

    def check(self, side, case, node):
        path = side.volume.path
        row = node.wait_for(path, side.state, case.reason, device_bytes=AFTER,
                            hypervisor_bytes=case.known if side.state == "blocked" else AFTER)
        if case.retried:  # a busy machine may take longer than a call may the first time
            node.wait(lambda: re.search(case.error, self.resize_row(node, path)["error"] or ""), LONGEST_PAUSE, case.error)
        resize = self.resize_row(node, path)
        self.assertEqual((resize["state"], resize["reason"]), (side.state, case.reason))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        self.assertEqual(resize["hypervisor_at"] is None, side.state == "blocked")
        self.assertEqual((resize["guest_at"], resize["finished_at"]), (None, None))
        self.assertRegex(resize["error"], case.error)
        self.assertNotRegex(resize["error"], r"[\x00-\x1f\x7f-\x9f]")
        if side.state == "blocked":
            self.assertEqual(side.asked() != [], case.asked)
        if not case.retried:
            self.assertIsNone(row["next_attempt_at"])
        self.explains(node, path, side.state, case.reason, *case.explained)
