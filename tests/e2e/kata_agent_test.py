# SPDX-License-Identifier: Apache-2.0
"""The guest helper in a container of a stock guest, run by hand: no crustd. What is shown here of the stand-in for
kata-agent (tests/guest/kata_agent) is what the tests of crustd's own route to the guest rely on.
"""

import concurrent.futures
import contextlib
import json
import pathlib
import signal
import tempfile
import unittest

from disks import Disk, LoopDevice, make_filesystem
from resize_case import FIRST_BYTES, MIB, SECONDS, skip_without_parts
from guest_image import build_kata_image, build_program
from guestvm import KATA_SHARED
from kata_guest import (INTERNAL, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED,
                        AgentError, Container, KataGuest, missing_parts, place)
from node import BUILD
from programs import wait_until

HELPER = BUILD / "crust-guest-agent"
PATTERN_BYTES = MIB
CAPABILITIES = f"{1 << 24 | 1 << 21:016x}"  # SYS_RESOURCE, SYS_ADMIN
BUNDLES, CGROUPS = "/run/kata-containers", "/sys/fs/cgroup"


class KataAgentCase(unittest.TestCase):
    """A guest for all tests of a class, with one volume of each file system in it."""

    file_systems = ("ext4",)
    guest_options = {}

    @classmethod
    def setUpClass(cls):
        skip_without_parts()
        if missing_parts():
            raise unittest.SkipTest(f"not installed here: {', '.join(missing_parts())}")
        scratch = tempfile.TemporaryDirectory(prefix="crust-kata-")
        cls.scratch = pathlib.Path(cls.enterClassContext(scratch)).resolve()
        cls.loops, cls.disks = {}, {}
        for name in cls.file_systems:
            cls.loops[name] = cls.make_loop(name)
            cls.disks[name] = Disk(cls.loops[name].device, filesystem=name)
        image = build_kata_image(BUILD / "guest")
        cls.guest = cls.enterClassContext(KataGuest(
            cls.scratch, image, **{"share": cls.scratch / "share"} | cls.guest_options,
            disks=list(cls.disks.values())))
        cls.vm = cls.guest.vm
        cls.vm.wait_ready()
        cls.numbers = iter(range(1, 1000))
        for disk in cls.disks.values():
            cls.vm.guest_write(f"{disk.mount_point}/pattern", PATTERN_BYTES)

    @classmethod
    def make_loop(cls, name):
        loop = cls.enterClassContext(LoopDevice(cls.scratch / name, FIRST_BYTES[name]))
        make_filesystem(name, loop.device)
        return loop

    def setUp(self):
        self.client = self.enterContext(contextlib.closing(self.guest.client()))

    def container(self, *arguments, program=HELPER, **options):
        """One whose root is on the share. A test that fails leaves none in the guest."""
        name = f"crust-{next(self.numbers):04}"
        place(self.guest.share / name, program)
        self.addCleanup(self.remove_leftover, name)
        return Container(name, list(arguments), **options)

    def remove_leftover(self, name):
        with self.guest.client() as client:
            try:
                client.remove(name)
            except AgentError as error:
                if "Invalid container id" not in error.text:
                    raise

    def mount_points(self, *names):
        return [self.disks[name].mount_point for name in names]

    def resize(self, name, to_bytes=0):
        """The device grows, and its disk in the guest; returns its new size."""
        loop, disk = self.loops[name], self.disks[name]
        loop.resize(to_bytes or loop.size + 64 * MIB)
        self.vm.block_resize(disk, loop.size)
        wait_until(lambda: self.vm.guest_blocksize(disk) == loop.size, SECONDS, "the guest's disk")
        return loop.size

    def run_helper(self, container):
        """(exit status, the report's volumes)"""
        status, output, errors = self.client.run(container)
        self.assertEqual(errors, "")
        self.assertEqual(output.count("\n"), 1)
        return status, json.loads(output)["volumes"]

    def assert_nothing_left(self):
        self.assertEqual(self.vm.guest_count(BUNDLES, "crust-"), 0)
        self.assertEqual(self.vm.guest_count(CGROUPS, "crust-"), 0)


class StandInTest(KataAgentCase):
    """The container really is a container, and the agent's answers are Kata's."""

    def refused(self, method, *arguments):
        with self.assertRaises(AgentError) as refusal:
            getattr(self.client, method)(*arguments)
        return refusal.exception.code, refusal.exception.text

    def probe(self, **options):
        """A container that tells what it is made of."""
        return self.container("one", "two", program=build_program(BUILD / "guest", "probe"), **options)

    def found(self, container):
        """What one that was created says."""
        self.client.start(container.id)
        output = self.client.read_all(container.id)
        self.assertEqual(self.client.read_all(container.id, "ReadStderr"), "said on standard error\n")
        self.assertEqual(self.client.wait(container.id), 7)
        self.client.remove(container.id)
        found = {}
        for line in output.splitlines():
            name, _, value = line.partition(" ")
            found.setdefault(name, []).append(value)
        return found

    def test_container_has_what_was_asked_for_and_no_more(self):
        """It sees all of the guest: the mounts and the processes."""
        containers = self.probe(), self.probe()
        for container in containers:
            self.client.create(container)
        found, other = map(self.found, containers)
        for kind in ("Inh", "Prm", "Eff", "Bnd"):
            self.assertEqual(found[f"Cap{kind}"], [CAPABILITIES])
        self.assertEqual((found["CapAmb"], found["NoNewPrivs"]), (["0" * 16], ["1"]))
        self.assertEqual((found["uid"], found["where"], found["input"]), (["0"], ["/"], ["open"]))
        self.assertGreater(int(found["pid"][0]), 1)
        self.assertEqual(found["argument"], ["one", "two"])
        mounts = [line.split()[0] for line in found["mount"]]
        self.assertIn(self.disks["ext4"].mount_point, mounts)
        self.assertIn(KATA_SHARED, mounts)
        for name in ("ipc", "uts"):
            self.assertNotEqual(found[f"ns-{name}"], other[f"ns-{name}"])
        for name in ("mnt", "pid", "net"):
            self.assertEqual(found[f"ns-{name}"], other[f"ns-{name}"])
        self.assert_nothing_left()

    def test_container_with_no_capability(self):
        container = self.probe(capabilities=())
        self.client.create(container)
        self.assertEqual(self.found(container)["CapBnd"], ["0" * 16])

    def test_containers_created_while_others_end(self):
        """The agent has threads that begin and end while it clones a container's process."""
        def run_one_by_one(containers):
            with self.guest.client() as client:
                return [client.run(one)[0] for one in containers]

        rows = [[self.container("--version") for _ in range(10)] for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
            self.assertEqual(list(pool.map(run_one_by_one, rows)), [[0] * 10] * len(rows))
        self.assert_nothing_left()

    def test_what_creating_refuses(self):
        for what, (text, options) in {
                "no root": (r"failed to mount .*/nowhere to .*ENOENT", {"root": "/nowhere"}),
                "no program": (r"^the file /nothing was not found$", {"path": "/nothing"}),
                "no capabilities": (r"^missing process capabilities$", {"capabilities": None}),
                "no pids": (r"^cannot find the pid ns$", {"namespaces": ("ipc", "uts")}),
                "no process": (r"EINVAL", {"process": False})}.items():
            with self.subTest(what):
                code, found = self.refused("create", self.container(**options))
                self.assertEqual(code, INTERNAL)
                self.assertRegex(found, text)
        self.assertRegex(self.refused("create", Container("a/b"))[1], "^invalid container ID a/b$")
        self.assert_nothing_left()

    def test_calls_out_of_order(self):
        for method, code, text in (("start", INTERNAL, "Invalid container id"),
                                   ("remove", INTERNAL, "Invalid container id"),
                                   ("read", INVALID_ARGUMENT, "InvalidContainerId"),
                                   ("wait", INVALID_ARGUMENT, "InvalidContainerId")):
            found = self.refused(method, "crust-nobody")
            self.assertEqual((found[0], found[1].split("\n")[0]), (code, text))
        container = self.container("--version")
        self.client.create(container)
        self.client.start(container.id)
        self.assertEqual(self.client.wait(container.id), 0)
        self.assertEqual(self.refused("read", container.id), (NOT_FOUND, "InvalidExecId"))
        self.assertEqual(self.refused("wait", container.id), (NOT_FOUND, "InvalidExecId"))
        self.client.remove(container.id)
        self.assert_nothing_left()

    def test_policy_of_the_stock_images(self):
        for method, request in (("GetVolumeStats", "VolumeStatsRequest"),
                                ("ResizeVolume", "ResizeVolumeRequest")):
            code, text = self.refused("call", method, b"")
            self.assertEqual(code, INTERNAL)
            self.assertIn(f"{request}: internal error policy check: unexpected eval_query", text)
        self.assertEqual(self.refused("call", "NoSuchCall", b"")[0], UNIMPLEMENTED)

    def test_program_that_cannot_run(self):
        text = self.scratch / "text"
        text.write_text("not a program\n")
        for mode, status in ((0o755, 8), (0o644, 13)):
            text.chmod(mode)
            self.assertEqual(self.client.run(self.container(program=text)), (status, "", ""))

    def test_program_that_hangs(self):
        """Its output comes while it runs; another connection kills it."""
        container = self.container(program=build_program(BUILD / "guest", "hang"))
        self.client.create(container)
        self.client.start(container.id)
        self.assertEqual(self.client.read(container.id), b"half an answer\n")
        with self.guest.client() as other:
            other.signal(container.id, signal.SIGKILL)
            self.assertEqual(self.client.read(container.id), b"")
            self.assertEqual(other.wait(container.id), 128 + signal.SIGKILL)
            other.remove(container.id)
        self.assert_nothing_left()

    def test_one_that_runs_is_removed(self):
        container = self.container(program=build_program(BUILD / "guest", "hang"))
        self.client.create(container)
        self.client.start(container.id)
        self.client.remove(container.id)
        self.assertEqual(self.refused("wait", container.id)[0], INVALID_ARGUMENT)
        self.assert_nothing_left()


class HelperTest(KataAgentCase):
    """The helper itself, in the container that it is made for."""

    file_systems = ("ext4", "xfs", "btrfs")

    def check_grown(self, name, entry, before):
        disk, size = self.disks[name], self.loops[name].size
        self.assertEqual((entry["error"], entry["error_text"]), ("", ""))
        self.assertEqual((entry["file_system"], entry["device_bytes"]), (name, size))
        self.assertEqual(entry["device_name"], self.vm.guest_device(disk))
        self.assertEqual(entry["total"], self.vm.guest_size(disk.mount_point))
        self.assertGreater(entry["total"] - before, 48 * MIB)
        self.vm.guest_verify(f"{disk.mount_point}/pattern", PATTERN_BYTES)

    def test_all_grow_in_one_container(self):
        """Two paths may lead to one file system, and one to none."""
        names = ("ext4", "xfs", "btrfs", "ext4")
        before = {name: self.vm.guest_size(self.disks[name].mount_point) for name in names}
        for name in self.file_systems:
            self.resize(name)
        paths = self.mount_points(*names) + ["/run/nothing", KATA_SHARED]
        status, volumes = self.run_helper(self.container("--once", *paths))
        self.assertEqual(status, 1)
        self.assertEqual([entry["path"] for entry in volumes], paths)
        for name, entry in zip(names, volumes):
            self.check_grown(name, entry, before[name])
        self.assertEqual([entry["error"] for entry in volumes[len(names):]],
                         ["not_mounted", "not_a_block_device"])
        self.assert_nothing_left()

    def test_report_changes_nothing_and_needs_no_capability(self):
        sizes = {name: self.resize(name) for name in self.file_systems}
        before = {name: self.vm.guest_size(self.disks[name].mount_point) for name in sizes}
        status, volumes = self.run_helper(self.container(
            "--once", "--report", *self.mount_points(*sizes), capabilities=()))
        self.assertEqual(status, 0)
        for name, entry in zip(sizes, volumes):
            self.assertEqual((entry["error"], entry["condition"]), ("", "normal"))
            self.assertEqual((entry["device_bytes"], entry["total"]), (sizes[name], before[name]))
            self.assertEqual(self.vm.guest_size(self.disks[name].mount_point), before[name])

    def test_capability_that_is_missing_is_named(self):
        for given, left in (("CAP_SYS_RESOURCE", {"xfs", "btrfs"}), ("CAP_SYS_ADMIN", {"ext4"})):
            for name in self.file_systems:
                self.resize(name)
            status, volumes = self.run_helper(self.container(
                "--once", *self.mount_points(*self.file_systems), capabilities=(given,)))
            self.assertEqual(status, 1)
            for name, entry in zip(self.file_systems, volumes):
                self.assertEqual(entry["error"], "no_capability" if name in left else "", entry)

    def test_frozen_file_system_keeps_no_other_back(self):
        """The report is there in time, and so is the container's end."""
        before = self.vm.guest_size(self.disks["ext4"].mount_point)
        for name in ("ext4", "xfs"):
            self.resize(name)
        frozen, = self.mount_points("xfs")
        container = self.container("--once", "--timeout", "20", *self.mount_points("xfs", "ext4"))
        self.vm.freeze(frozen)
        try:
            self.client.create(container)
            self.client.start(container.id)
            volumes = json.loads(self.client.read_all(container.id))["volumes"]
            self.assertEqual(self.client.wait(container.id), 1)
        finally:
            self.vm.thaw(frozen)
        self.assertEqual(volumes[0]["error"], "timed_out")
        self.check_grown("ext4", volumes[1], before)
        self.client.remove(container.id)
        self.assert_nothing_left()

    def test_resize_that_hangs_is_killed(self):
        """Without a timeout it waits as long as the kernel. It can be killed and removed."""
        self.resize("xfs")
        path, = self.mount_points("xfs")
        container = self.container("--once", path)
        self.vm.freeze(path)
        try:
            self.client.create(container)
            self.client.start(container.id)
            self.client.signal(container.id, signal.SIGKILL)
            self.assertEqual(self.client.read_all(container.id), "")
            self.client.remove(container.id)
        finally:
            self.vm.thaw(path)
        self.assert_nothing_left()
        status, volumes = self.run_helper(self.container("--once", path))
        self.assertEqual((status, volumes[0]["error"]), (0, ""))
        self.vm.guest_verify(f"{path}/pattern", PATTERN_BYTES)


class NoShareTest(KataAgentCase):
    """shared_fs = "none": the helper travels by CopyFile."""

    guest_options = {"share": None}

    def test_helper_is_copied_and_grows(self):
        self.resize("ext4")
        self.client.copy(f"{KATA_SHARED}/crust-1/agent", HELPER.read_bytes())
        status, volumes = self.run_helper(Container("crust-1", ["--once", *self.mount_points("ext4")]))
        self.assertEqual((status, volumes[0]["error"]), (0, ""))
        self.assertEqual(volumes[0]["total"], self.vm.guest_size(self.disks["ext4"].mount_point))
        with self.assertRaises(AgentError) as refusal:
            self.client.copy("/etc/passwd", b"")
        self.assertIn("prefix not found", refusal.exception.text)
        self.assert_nothing_left()


class NoSysfsTest(KataAgentCase):
    guest_options = {"agent_options": ("without-sysfs",)}

    def test_helper_reports_what_it_needs(self):
        self.resize("ext4")
        status, output, errors = self.client.run(self.container("--once", *self.mount_points("ext4")))
        self.assertEqual((status, output), (2, ""))
        self.assertEqual(errors.count("\n"), 1)
        self.assertIn("/sys is not mounted", errors)
        self.assert_nothing_left()
