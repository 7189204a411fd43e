# SPDX-License-Identifier: Apache-2.0
"""A test case with a scratch node and loop devices, and ways to ask what crustd reports.

    class Something(ScratchNodeTest):
        def test_it(self):
            loop = self.loop()
            node = self.node()
            ...
            self.explains(path, "extra_monitor_socket", "restart")

Everything made through self is undone at the end of the test, by the object that made it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))

import agent as fake_agent  # noqa: E402
import monitor as fake_monitor  # noqa: E402
from browser import Browser  # noqa: E402
from containers import Containers  # noqa: E402
from disks import LoopDevice  # noqa: E402
from node import BUILD, Node, NodeError  # noqa: E402
from programs import GuestError, needs, run# noqa: E402

MIB = 1 << 20
BEFORE, AFTER = 32 * MIB, 64 * MIB
# No other test has such processes meanwhile: of two that claim one sandbox, neither is believed.
SANDBOX = f"a{secrets.token_hex(31)}a"
LONGEST_PAUSE = 420  # seconds: the longest between two attempts, and some more


POD_UID = "11111111-2222-3333-4444-555555555555"


def publish_path(name, pod=POD_UID):
    """A path as the kubelet gives it to NodePublishVolume."""
    return f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~csi/{name}/mount"


@dataclasses.dataclass
class Volume:
    """A staged volume on a loop device, and what its sandbox's VMM calls it."""

    path: str
    loop: LoopDevice
    drive: str
    address: str = "02/01"

    def record(self, **changes):
        """Its drive as Kata's records have it, for Node.add_sandbox()."""
        return {"device": self.loop.device, "id": self.drive, "address": self.address} | changes


@dataclasses.dataclass
class Scene:
    """A volume that a sandbox uses, and the two sides that crustd asks about it."""

    test: "ScratchNodeTest"
    node: Node
    volume: Volume
    vmm: object = None
    monitor: object = None
    agent: object = None

    @property
    def path(self):
        return self.volume.path

    def wait(self, state, reason=None, seconds=60, **columns):
        return self.node.wait_for(self.path, state, reason, seconds, **columns)

    def resize(self, size):
        self.volume.loop.resize(size)

    def grown(self, size, seconds=60, **columns):
        """Waits until the resize to this size is finished; returns the volume's row."""
        row = self.wait("in_sync", "none", seconds, hypervisor_bytes=size, next_attempt_at=None, **columns)
        resize = self.row()
        self.test.assertEqual((resize["state"], resize["reason"]), ("in_sync", "none"))
        self.test.assertIsNotNone(resize["finished_at"])
        return row

    def grows(self, size, seconds=60, **columns):
        self.resize(size)
        return self.grown(size, seconds, **columns)

    def row(self):
        """The newest resize, or None."""
        return self.test.resize_row(self.node, self.path)

    def explains(self, *words):
        return self.test.explains(self.node, self.path, *words)

    def sent(self):
        """How often the monitor was told to resize the drive."""
        return len(self.monitor.sent("block_resize"))

    def write_records(self, **changes):
        """Kata's records of the sandbox, written again: agent, drives."""
        self.node.add_sandbox(SANDBOX, self.vmm.pid, **{"agent": "unix:///agent.sock",
                                                       "drives": [self.volume.record()]} | changes)


class ScratchNodeTest(unittest.TestCase):
    """A test with a scratch directory, whose nodes and devices end with it."""

    maxDiff = None
    # True: the node's files are in memory, where there is room. Kata's and crustd's directories below /run are as well,
    # and in ext4 without a journal a directory costs a millisecond of processor time if many were removed before.
    in_memory = False
    hostile = False  # True: whatever the test does, no pass of a daemon's loop may take long

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root: device nodes, other owners, mounts")
        needs("curl", "losetup", "sqlite3")
        if not (BUILD / "crustd").exists():
            raise NodeError(f"there is no crustd in {BUILD} (make, or CRUST_BUILD=DIR)")

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="crust-e2e-", dir=self.in_memory and memory() or None))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)
        self.nodes = 0
        self.loops = 0

    def node(self, settings=None, wrapper=()):
        self.nodes += 1
        scratch = self.scratch / f"host{self.nodes}"
        scratch.mkdir()
        node = Node(scratch, settings, wrapper)
        self.addCleanup(self.end, node)
        return node

    def running_node(self, *arguments, **options):
        node = self.node(*arguments, **options)
        node.start()
        return node

    def end(self, node):
        """A daemon that is still there stops when it is told to, in good order."""
        try:
            running = node.process and node.process.poll() is None
            if running and self.hostile:
                self.assert_served(node)
            if running and not node.wrapper:
                self.assertEqual(node.stop(), 0, node.log_tail())
        finally:
            node.close()

    def mount_for_the_test(self, *arguments):
        """mount with these words, of which the last is where."""
        pathlib.Path(arguments[-1]).mkdir(exist_ok=True)
        run("mount", *arguments)
        self.addCleanup(subprocess.run, ["umount", "--lazy", arguments[-1]], capture_output=True)

    def loop(self, size=BEFORE):
        self.loops += 1
        try:
            loop = LoopDevice(self.scratch / f"disk{self.loops}", size)
        except GuestError as error:
            self.skipTest(f"needs a loop device: {error}")
        self.addCleanup(loop.close)
        return loop

    # the parts of a resize

    def volume(self, node, name="pv", size=BEFORE, pod=POD_UID, **stage):
        loop = self.loop(size)
        node.add_device(loop.device)
        path = publish_path(name, pod)
        node.stage(path, loop.device, **stage)
        return Volume(path, loop, f"drive-{self.loops:016x}", f"02/{self.loops:02x}")

    def node_with_volume(self, settings=None, **volume):
        """(node, volume), before the daemon starts."""
        node = self.node(settings)
        return node, self.volume(node, **volume)

    def sandbox(self, node, *volumes, sandbox_id=SANDBOX, agent="unix:///agent.sock", drives=None):
        """A live VMM with Kata's records of it, used by these volumes; returns the VMM."""
        vmm = node.start_vmm(sandbox_id)
        if drives is None:
            drives = [volume.record() for volume in volumes]
        node.add_sandbox(sandbox_id, vmm.pid, agent=agent, drives=drives)
        for volume in volumes:
            node.record(volume.path, sandbox_id)
        return vmm

    def containers(self, node, sandbox_id=SANDBOX, *arguments, **options):
        """The sandbox's containers, which end with the test."""
        containers = Containers(node, sandbox_id, *arguments, **options)
        self.addCleanup(containers.close)
        return containers

    def monitor(self, node, *volumes, sandbox_id=SANDBOX, name="extra-monitor.sock", path=None,
                kind=fake_monitor.FakeMonitor):
        """A VMM's monitor with the drives of these volumes; path: where it is in no directory of the Go runtime's."""
        drives = [fake_monitor.Drive(volume.drive, volume.loop.device) for volume in volumes]
        monitor = kind(path or node.vm_dir(sandbox_id) / name, drives)
        self.addCleanup(monitor.stop)
        return monitor.start()

    def agent(self, node, name="agent.sock", **options):
        agent = fake_agent.FakeAgent(node.root / name, **options)
        agent.grows = True
        self.addCleanup(agent.close)
        return agent

    def equip(self, node, *volumes, sandbox_id=SANDBOX):
        """A sandbox that uses these volumes, whose monitor and agent answer; returns (VMM, monitor, agent)."""
        monitor, agent = self.monitor(node, *volumes, sandbox_id=sandbox_id), self.agent(node)
        agent.stats.total = volumes[0].loop.size
        return self.sandbox(node, *volumes, sandbox_id=sandbox_id), monitor, agent

    def scenery(self, settings=None, monitor="extra-monitor.sock", agent=True, start=True, **stage):
        """A volume in a sandbox whose monitor and agent answer (None, False: nobody listens). start: the daemon is up, and
        the volume is in sync."""
        node = self.node(settings)
        scene = Scene(self, node, self.volume(node, **stage))
        scene.monitor = monitor and self.monitor(node, scene.volume, name=monitor)
        if agent:
            scene.agent = self.agent(node)
            scene.agent.stats.total = BEFORE
        scene.vmm = self.sandbox(node, scene.volume)
        if start:
            node.start()
            scene.wait("in_sync", **({"hypervisor_bytes": BEFORE} if monitor else {}))
        return scene

    # what crustd says

    def page_text(self, node):
        """What the status page says in a browser. The node has http.listen."""
        if not Browser.is_there():
            self.skipTest("needs the program chromium")
        page, reports = Browser(tempfile.mkdtemp(dir=self.scratch)).read(f"http://{node.settings['http.listen']}/")
        self.assertEqual(reports, [])
        return page.text

    def explains(self, node, volume_path, *words):
        """crustctl explain says all of these words; returns its text without line breaks."""
        text = " ".join(node.crustctl("explain", volume_path).stdout.split())
        for word in words:
            self.assertIn(word, text)
        return text

    def resize_row(self, node, volume_path):
        """The newest resize of a volume, or None."""
        rows = node.query("SELECT r.* FROM audit_resizes r JOIN audit_volumes v USING (volume_id)"
                          f" WHERE v.target_path = '{volume_path}' ORDER BY resize_id DESC LIMIT 1")
        return rows[0] if rows else None

    def acts(self, node, kind):
        """How often an act ("resize_hypervisor", …) was begun, by the journal."""
        rows = node.query(f"SELECT count(*) AS n FROM audit_journal WHERE kind = '{kind}_intended'")
        return rows[0]["n"]

    def settle(self, node):
        """Has the daemon look at everything once more, and waits until it has nothing to do. Unlike
        a resync this forgets nothing, so what waits for a change goes on waiting."""
        before = self.turns(node)
        marker = publish_path(f"marker{before}")
        node.stage(marker, "/dev/marker")
        node.wait(lambda: node.volume(marker), 60, "the marker to be seen")
        node.unstage(marker)
        node.wait(lambda: node.volume(marker)["status"] == "removed", 60, "the marker to go")
        node.wait_rest()

    def assert_served(self, node, seconds=0.05):
        """No pass of the daemon's loop has taken longer since its start. Processor time: how busy
        the machine and its disk are beside it is not the daemon's doing. But what a virtual
        machine's host takes away counts as processor time of whatever ran, and may all have been
        taken from one pass. A machine that has lost a tenth of its time shows nothing."""
        stolen, share = node.stolen()
        if share < 0.1:
            self.assertLess(longest_pass(node), seconds + min(stolen, 0.25), node.log_tail())

    def turns(self, node):
        return node.query("SELECT coalesce(max(seq), 0) AS n FROM audit_journal")[0]["n"]


def memory():
    """A directory in memory with a gigabyte of room, or None."""
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        return "/dev/shm" if room.f_bavail * room.f_frsize > 1 << 30 else None


def status(node):
    """What the daemon says, or without it the database; {} if neither can be read, as in the moment in which crustd
    executes itself anew because its database fails."""
    return json.loads(node.crustctl("status", "-o", "json", check=False).stdout or "{}")


def longest_pass(node):
    """Seconds of processor time that the longest pass of the daemon's loop has taken."""
    return float(metrics_of(node)["crustd_loop_longest_pass_cpu_seconds"])


def metrics_of(node):
    """{name and labels: value}"""
    code, body = curl(node, "/metrics")
    assert code == 200
    return dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))


def counted(node, name):
    """{value of its label: number} of a metric that has one label."""
    return {line.split('"')[1]: int(value) for line, value in metrics_of(node).items() if line.startswith(f"{name}{{")}


def findings(node):
    """What the doctor says."""
    return json.loads(node.crustctl("doctor", "-o", "json", check=False).stdout)


def rss_anon(node):
    """Bytes of the daemon's own memory."""
    status_text = pathlib.Path(f"/proc/{node.process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status_text)[1]) << 10


def free_address():
    return f"127.0.0.1:{free_port()}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def curl(node, path, *arguments):
    """(HTTP status, body) of a request to the daemon's socket."""
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "60", "--unix-socket",
         str(node.path("/run/crustd/http.sock")), "--write-out", "\n%{http_code}", *arguments,
         f"http://localhost{path}"], capture_output=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"curl {path}: {done.stderr.decode(errors='replace')}")
    body, _, code = done.stdout.rpartition(b"\n")
    return int(code), body
