# SPDX-License-Identifier: Apache-2.0
"""crustd as a service: what it tells the service manager, and whether the unit lets it work."""

import ctypes
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from node import BUILD, REPOSITORY
from programs import needs
from scratch_node import AFTER, ScratchNodeTest

UNIT = REPOSITORY / "config/deploy/crustd.service"
EXPOSURE = "30"  # tenths, by systemd-analyze; "OK" ends at 50
SECONDS = 60


def settings(name):
    """The values of a setting of the unit, line by line."""
    return [line.partition("=")[2] for line in UNIT.read_text().splitlines()
            if line.startswith(f"{name}=")]


def with_capabilities(names):
    """Runs a program with these capabilities and no others."""
    kept = [f"+{name.removeprefix('CAP_').lower()}" for name in names]
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set",
            ",".join(["-all", *kept]), "--"]


class ManagerTest(ScratchNodeTest):
    """A service manager's socket, and what comes out of it."""

    def setUp(self):
        super().setUp()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.bind(str(self.scratch / "notify"))
        self.manager.settimeout(SECONDS)

    def managed(self, **environment):
        return ["env", f"NOTIFY_SOCKET={self.scratch}/notify",
                *(f"{name}={value}" for name, value in environment.items())]

    def next(self, *but):
        """The next message that does not begin with one of these."""
        while True:
            message = self.manager.recv(4096).decode()
            if not message.startswith(but):
                return message

    def test_life(self):
        node = self.node(wrapper=self.managed())
        node.start(ready=False)
        self.assertEqual(self.next(), "READY=1")
        self.assertIn("the first scan is complete", node.log_tail())
        self.assertEqual(self.next(), "STATUS=up")
        node.process.send_signal(signal.SIGHUP)
        self.assertRegex(self.next(), r"\ARELOADING=1\nMONOTONIC_USEC=\d+\Z")
        self.assertEqual(self.next("STATUS="), "READY=1")
        self.assertEqual(node.stop(), 0)
        self.assertEqual(self.next("STATUS="), "STOPPING=1")

    def test_watchdog(self):
        node = self.node(wrapper=self.managed(WATCHDOG_USEC=20000))
        node.start(ready=False)
        for _ in range(3):
            self.assertEqual(self.next("STATUS=", "READY="), "WATCHDOG=1")
        node.process.send_signal(signal.SIGSTOP)  # a loop that hangs
        self.addCleanup(node.process.send_signal, signal.SIGCONT)
        self.manager.settimeout(0.2)
        with self.assertRaises(TimeoutError):
            while True:
                self.manager.recv(4096)

    def test_once_is_no_service(self):
        self.node(wrapper=self.managed(WATCHDOG_USEC=20000)).once()
        self.manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.manager.recv(4096)


class UnitTest(ScratchNodeTest):

    def grow(self, wrapper):
        """A resize, seen by the kernel's event alone."""
        node = self.node({"resize.sweep_seconds": 3600}, wrapper)
        volume = self.volume(node)
        self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        node.grow(volume, AFTER, device_bytes=AFTER)
        return node

    def test_grows_with_the_unit_capabilities(self):
        needs("setpriv")
        self.grow(with_capabilities(" ".join(settings("CapabilityBoundingSet")).split()))

    def test_calls_only_what_the_unit_allows(self):
        needs("strace", "systemd-analyze")
        trace = self.scratch / "calls"
        self.grow(["strace", "-D", "-f", "-qq", "-o", str(trace)]).stop()
        called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))
        self.assertIn("openat2", called)
        self.assertEqual(called - self.allowed(), set())

    def allowed(self):
        """The unit's system calls: its lines add to each other, those with ~ take away."""
        allowed = set()
        for line in settings("SystemCallFilter"):
            calls = set().union(*(self.calls(name) for name in line.lstrip("~").split()))
            allowed = allowed - calls if line.startswith("~") else allowed | calls
        return allowed

    def calls(self, name):
        """What a set contains, those in it too."""
        if not name.startswith("@"):
            return {name}
        listed = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, text=True,
                                capture_output=True).stdout.splitlines()
        words = [line.strip() for line in listed[1:] if not line.strip().startswith("#")]
        return set().union(*(self.calls(word) for word in words if word))

    def test_score(self):
        needs("systemd-analyze")
        done = subprocess.run(
            ["systemd-analyze", "security", "--no-pager", "--offline=true",
             f"--threshold={EXPOSURE}", str(UNIT)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class InstallTest(unittest.TestCase):

    def install(self, prefix, scratch=None):
        needs("make")
        scratch = scratch or pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="crust-service-")))
        subprocess.run(["make", "-C", str(REPOSITORY), "-o", "programs", f"OUT={BUILD}", "install",
                        f"DESTDIR={scratch}", f"PREFIX={prefix}"], check=True, capture_output=True)
        return scratch

    def test_everything_has_its_place(self):
        for prefix in ("/usr", "/usr/local"):
            with self.subTest(prefix):
                root = self.install(prefix)
                found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
                below = prefix.lstrip("/")
                self.assertEqual(found, {
                    "etc/crustd/crustd.conf", f"{below}/sbin/crustd", f"{below}/bin/crustctl",
                    f"{below}/bin/crust-guest-agent", f"{below}/libexec/crustd/crust-guest-agent",
                    f"{below}/libexec/crustd/crust-qemu-system-{platform.machine()}",
                    f"{below}/lib/tmpfiles.d/crustd.conf",
                    f"{below}/lib/systemd/system/crustd.service"} | {
                        f"{below}/share/crustd/proto/{path.name}"
                        for path in (REPOSITORY / "api/proto").iterdir()} | {
                        f"{below}/share/crustd/kata/{path.name}"
                        for path in (REPOSITORY / "config/deploy/kata").iterdir()} | {
                        f"{below}/share/crustd/alerts/crustd-rules.yaml",
                        f"{below}/share/crustd/crustd-drives.conf", f"{below}/share/crustd/crustd.conf",
                        f"{below}/share/crustd/crustd.conf.example",
                        f"{below}/share/crustd/dashboards/crustd-fleet.json",
                        f"{below}/share/crustd/dashboards/crustd-node.json",
                        f"{below}/share/crustd/node-problem-detector/check-crustd.sh",
                        f"{below}/share/crustd/node-problem-detector/crustd.json",
                        f"{below}/libexec/crustctl/candidates",
                        f"{below}/share/bash-completion/completions/crustctl",
                        f"{below}/share/zsh/site-functions/_crustctl",
                        f"{below}/share/fish/vendor_completions.d/crustctl.fish"})
                unit = (root / below / "lib/systemd/system/crustd.service").read_text()
                self.assertIn(f"ExecStart={prefix}/sbin/crustd\n", unit)
                drop_in = (root / below / "share/crustd/kata/crust-qemu.toml").read_text()
                self.assertIn(f'path = "{prefix}/libexec/crustd/crust-qemu-system-', drop_in)

    def test_the_helper_is_static_and_small(self):
        """It runs in guests that have no library of ours, and travels in pieces of a mebibyte."""
        helper = self.install("/usr") / "usr/libexec/crustd/crust-guest-agent"
        self.assertLess(helper.stat().st_size, 1 << 20)
        headers = subprocess.run(["readelf", "--program-headers", "--wide", helper], check=True,
                                 capture_output=True, text=True).stdout
        self.assertIn("LOAD", headers)
        self.assertNotIn("INTERP", headers)
        self.assertNotIn("DYNAMIC", headers)
        done = subprocess.run([helper, "--once", "--report", "/proc"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["volumes"][0]["error"], "not_a_block_device")

    def test_an_upgrade_never_lacks_what_a_starting_pod_needs(self):
        """Both programs get their names by rename(2): none is removed, or there in part."""
        root = self.install("/usr")
        created, deleted = 0x100, 0x200  # IN_CREATE, IN_DELETE
        libc = ctypes.CDLL(None, use_errno=True)
        events = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self.addCleanup(os.close, events)
        directory = os.fsencode(root / "usr/libexec/crustd")
        self.assertGreater(libc.inotify_add_watch(events, directory, created | deleted), 0)
        self.install("/usr", root)
        data, names = os.read(events, 65536), set()
        while data:
            length, = struct.unpack_from("12xI", data)
            names.add(data[16:16 + length].rstrip(b"\0").decode())
            data = data[16 + length:]
        self.assertEqual(names, {"crust-guest-agent.new",
                                 f"crust-qemu-system-{platform.machine()}.new"})
        self.assertEqual(sorted(os.listdir(directory)), sorted(
            os.fsencode(name.removesuffix(".new")) for name in names))

    def uninstall(self, root, prefix):
        return subprocess.run(["make", "-C", str(REPOSITORY), f"OUT={BUILD}", "uninstall",
                               f"DESTDIR={root}", f"PREFIX={prefix}"], capture_output=True, text=True)

    def files(self, root):
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def test_uninstall_leaves_the_configuration(self):
        for prefix in ("/usr", "/usr/local"):
            with self.subTest(prefix):
                root = self.install(prefix)
                done = self.uninstall(root, prefix)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.files(root), ["etc/crustd/crustd.conf"])

    def test_uninstall_refuses_while_kata_needs_it(self):
        root = self.install("/usr")
        drop_in = root / "etc/kata-containers/config.d/50-crustd.toml"
        drop_in.parent.mkdir(parents=True)
        shutil.copy(root / "usr/share/crustd/kata/crust-qemu.toml", drop_in)
        before = self.files(root)
        done = self.uninstall(root, "/usr")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/etc/kata-containers/config.d/50-crustd.toml", done.stdout)
        self.assertEqual(self.files(root), before)
        drop_in.unlink()
        self.assertEqual(self.uninstall(root, "/usr").returncode, 0)
        self.assertEqual(self.files(root), ["etc/crustd/crustd.conf"])
