# SPDX-License-Identifier: Apache-2.0
"""File systems that reach the end of their own numbers, and ones that grow for longer than a call."""

import pathlib
import re
import signal
import subprocess
import tempfile

from disks import LoopDevice, make_filesystem
from kata_agent_test import KataAgentCase
from resize_case import (MIB, PATTERN_BYTES, SECONDS, SERIAL_AGENT, ResizeCase,
                         check_filesystem)

GIB, TIB = 1 << 30, 1 << 40
MOST_BLOCKS = 2 ** 32 - 1  # of ext4 without 64bit
NEAR_BLOCKS = MOST_BLOCKS - 40000  # some groups less
GROWTH_SECONDS = 600  # of one on a disk that others use
DENSE_INODES = 32768  # as many in a group of 32768 blocks: 2^32 are reached at the same size


class LimitCase(ResizeCase):
    """Volumes with sparse files of many TiB, which only a tmpfs takes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tmpfs = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="crust-huge-", dir="/dev/shm")))

    def boot_volume(self, block_bytes, blocks, *features, memory=768):
        sandbox = self.add_sandbox(memory=memory)
        volume = sandbox.add_volume(
            "ext4", directory=self.tmpfs, size=block_bytes * blocks,
            features=("-b", str(block_bytes), "-T", "largefile4", *features))
        self.boot(sandbox)
        self.settle(volume)
        return volume

    def blocks_of(self, volume):
        text = subprocess.run(["dumpe2fs", "-h", volume.loop.device], check=True, capture_output=True,
                              text=True).stdout
        return int(re.search(r"^Block count: +(\d+)", text, re.MULTILINE).group(1))

    def check_stopped(self, volume, blocks):
        """What is on the disk once the guest has unmounted it."""
        vm = volume.sandbox.vm
        vm.guest_verify(volume.pattern, PATTERN_BYTES)
        vm.guest_write(f"{volume.disk.mount_point}/later", PATTERN_BYTES)
        self.assertNotRegex(vm.console(), "BUG|EXT4-fs error")
        vm.power_off()
        check_filesystem(volume)
        self.assertEqual(self.blocks_of(volume), blocks)

    def check_limit(self, volume, most_bytes):
        row = self.node.wait_for(volume.path, "block_grown", "file_system_limit", SECONDS)
        self.assertIsNone(row["next_attempt_at"])
        error = self.resizes(volume)[-1]["error"]
        self.assertIn(f"at most {most_bytes} bytes", error)
        self.assertIn(f"its device has {volume.loop.size}", error)
        said = self.node.crustctl("explain", str(row["volume_id"])).stdout
        self.assertIn("Make a new one", said)


class LimitTest(LimitCase):
    """One block below the limit of 2^32 - 1 blocks, then one block above it."""

    def check(self, block_bytes, feature):
        volume = self.boot_volume(block_bytes, NEAR_BLOCKS, "-O", feature)
        self.finish(self.begin(volume, block_bytes * (MOST_BLOCKS - 1)))
        volume.loop.resize(block_bytes * (MOST_BLOCKS + 1))
        if feature == "64bit":
            self.settle(volume)
            self.check_stopped(volume, MOST_BLOCKS + 1)
        else:
            self.check_limit(volume, block_bytes * MOST_BLOCKS)
            self.check_stopped(volume, MOST_BLOCKS)

    def test_blocks_of_1_kib(self):
        self.check(1024, "^64bit")

    def test_blocks_of_2_kib(self):
        self.check(2048, "^64bit")

    def test_blocks_of_4_kib(self):
        self.check(4096, "^64bit")

    def test_blocks_of_1_kib_with_64bit(self):
        self.check(1024, "64bit")

    def test_blocks_of_2_kib_with_64bit(self):
        self.check(2048, "64bit")

    def test_blocks_of_4_kib_with_64bit(self):
        self.check(4096, "64bit")

    def test_inodes_run_out_before_blocks(self):
        """2^32 - 1 inodes are 131071 groups of 32768."""
        groups = MOST_BLOCKS // DENSE_INODES
        volume = self.boot_volume(4096, (groups - 4) * 32768, "-O", "64bit", "-i", "4096", "-I", "128")
        volume.loop.resize(17 * TIB)
        self.check_limit(volume, groups * 32768 * 4096)
        self.check_stopped(volume, groups * 32768)


class GrowingTest(LimitCase):
    """A growth that takes several calls, in a small guest."""

    settings = {"resize.call_timeout_seconds": 4}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.add_sandbox()
        cls.large = cls.sandbox.add_volume("xfs", size=320 * MIB, directory=cls.tmpfs)
        cls.small_blocks = cls.sandbox.add_volume("ext4", size=200 * MIB, directory=cls.tmpfs,
                                                  features=("-b", "1024"))
        cls.killed = cls.sandbox.add_volume("xfs", size=320 * MIB, directory=cls.tmpfs)
        cls.other = cls.sandbox.add_volume("ext4")
        cls.boot(cls.sandbox)
        cls.node.start()

    def check(self, volume, to_bytes):
        self.settle(self.other)
        resize = self.begin(volume, to_bytes)
        row = self.node.wait_for(volume.path, "block_grown", "growing", SECONDS)
        self.assertEqual(row["stalled"], 0)
        self.assertEqual(row["resizable"], "yes")
        self.grow(self.other)
        self.assertEqual(self.node.volume(volume.path)["reason"], "growing")
        self.node.wait_for(volume.path, "in_sync", "none", GROWTH_SECONDS, device_bytes=to_bytes)
        self.finish(resize)
        answers = [line["detail"] for line in self.journal(volume, "kind = 'guest_answered'")]
        self.assertTrue(any(re.search(r"is growing: \d+ of \d+ bytes", text) for text in answers), answers)
        self.assertFalse(any("agent_failed" in text for text in answers), answers)
        self.assertNotRegex(self.sandbox.vm.console(), "(?i)out of memory|oom")

    def test_xfs_of_many_groups(self):
        self.check(self.large, TIB)

    def test_ext4_of_many_groups(self):
        self.check(self.small_blocks, 64 * GIB)

    def test_agent_that_is_killed_goes_on(self):
        """Its child goes on as well: one of them finds the other busy, or ahead."""
        self.settle(self.killed)
        resize = self.begin(self.killed, TIB // 4)
        self.node.wait_for(self.killed.path, "block_grown", "growing", SECONDS)
        self.sandbox.vm.signal_agents(signal.SIGKILL)
        self.sandbox.vm.start_agent(*SERIAL_AGENT)
        self.node.wait_for(self.killed.path, "in_sync", "none", GROWTH_SECONDS, device_bytes=resize.to_bytes)
        self.finish(resize)


class HelperTest(KataAgentCase):
    """The same in a helper."""

    file_systems = ("ext4", "xfs")
    guest_options = {"memory": 768}

    @classmethod
    def make_loop(cls, name):
        if name == "xfs":
            return super().make_loop(name)
        tmpfs = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="crust-huge-", dir="/dev/shm")))
        loop = cls.enterClassContext(LoopDevice(tmpfs / name, 4096 * NEAR_BLOCKS))
        make_filesystem(name, loop.device, "-O", "^64bit", "-T", "largefile4")
        return loop

    def run_once(self, name, *options):
        container = self.container("--once", *options, *self.mount_points(name))
        _, (entry,) = self.run_helper(container)
        return entry

    def test_limit_is_read_from_the_superblock(self):
        size = self.resize("ext4", 17 * TIB)
        entry = self.run_once("ext4")
        self.assertEqual(entry["error"], "limit")
        self.assertRegex(entry["error_text"], f"at most {4096 * MOST_BLOCKS} bytes, .* has {size}")
        path, = self.mount_points("ext4")
        self.vm.guest_verify(f"{path}/pattern", PATTERN_BYTES)
        self.assertNotRegex(self.vm.console(), "BUG|EXT4-fs error")

    def test_next_one_goes_on(self):
        size = self.resize("xfs", TIB)
        totals, entry = [], {"error": "growing"}
        while entry["error"] in ("growing", "timed_out"):  # the latter where the machine is busy
            entry = self.run_once("xfs", "--timeout", "2")
            totals += [entry["total"]] if entry["total"] else []
        self.assertEqual(entry["error"], "", entry)
        self.assertGreater(len(totals), 1)
        self.assertEqual(totals, sorted(totals))
        self.assertGreater(entry["total"], size * 9 // 10)
