# SPDX-License-Identifier: Apache-2.0
"""Killed before a syscall of an attach or a detach and started again, crustd leaves the drive where
its row says, or gone, and no claim behind.

Most syscalls of an attach look at other processes' descriptors below /proc: the search for users of
the disk, which a worker makes, and which changes nothing. They are no points, nor are those of the
daemon that look whether the VMM has the disk. How many there are depends on the machine, so a
syscall of a kind that the search uses, too, may be hit a little earlier or later than it was traced;
those that hit the search are reported. The process that opens the disk is not crustd itself: what its
end means is claim_call_test.c's.
"""

import concurrent.futures
import contextlib
import re
import time

from disks import is_free
from drives import DrivesTest
from grpc_client import SECONDS, grpc
from lost import Attached, LostTest, points, spread, sweep
from scratch_node import status
from workers_test import attached_to_workers, points_of_busiest

TRIES, HELD_SECONDS = 5, 3
WITHOUT_A_TRACE = {"brk", "clock_gettime", "getpid"}  # nobody can tell what came before from after
SEARCH = re.compile(r'/proc(/\d+/(fd|fdinfo|stat|cmdline)\b|[>"])')


class Killed(DrivesTest):
    """One node and one QEMU for all kill points."""

    def setUp(self):
        super().setUp()
        LostTest.need_strace(self)
        self.host = self.drive_node({"resize.sweep_seconds": 3600})
        self.loop_1 = self.disk(self.host)
        self.start()

    def start(self):
        if self.host.process:
            self.host.kill()
        self.host.start()
        self.host.wait_alive()

    def trace(self, action):
        """The points, and how many other syscalls there are in the search for users of the disk."""
        file = self.scratch / "trace"
        with Attached(self.host.process.pid, ["-y"], file, children=False):
            action()
        found = [point for point in points(file) if point.syscall not in WITHOUT_A_TRACE]
        outside = [point for point in found if not self.is_in_search(point.line)]
        return outside, len(found) - len(outside)

    def is_in_search(self, line):
        """Whether a syscall is about another process, or about /proc itself."""
        return any(pid != str(self.host.process.pid)
                   for pid in re.findall(r'[<"]/proc(?:/(\d+)[^>"]*)?[>"]', line))

    def kill_at(self, point, action):
        """Where the daemon was killed: point, search, or nowhere, because it did not come so far."""
        process = self.host.process
        file = self.scratch / "killed"
        with Attached(process.pid, ["-y", *point.inject("signal=SIGKILL")], file, children=False):
            try:
                action()
            except grpc.RpcError:
                process.wait(60)
        if process.poll() is None:
            return "nowhere"
        calls = [line for line in file.read_text(errors="replace").splitlines() if "(" in line]
        return "search" if self.is_in_search(calls[-1]) else "point"

    def bring_in(self):
        self.assertEqual(self.attach(self.host, "data-1", self.loop_1).state, self.drive.Drive.READY)

    def take_out(self):
        self.detach(self.host, "data-1")

    def check_there(self):
        self.assertTrue(self.host.qemu.has_open(self.loop_1.device))
        self.assertFalse(is_free(self.loop_1.device))
        self.assertEqual(len(self.host.qemu.agent.mounted), 1)

    def check_gone(self):
        self.assertFalse(self.host.qemu.has_open(self.loop_1.device))
        self.assertTrue(is_free(self.loop_1.device))
        self.assertEqual(self.host.qemu.agent.mounted, {})

    def kill_at_each(self, title, traced, action, check):
        found, left_out = traced

        def kill(_, point):
            where = self.kill_at(point, action)
            self.start()
            check()
            return where

        where = LostTest.at_each(self, f"{title} ({left_out} left out in the search)", sweep(found), kill)
        self.assertGreater(where.count("point"), len(where) // 3)

    def test_attach(self):
        found = self.trace(self.bring_in)
        self.take_out()

        def check():
            self.bring_in()  # the client repeats its call
            self.check_there()
            self.take_out()
            self.check_gone()

        self.kill_at_each("killed, drive attached", found, self.bring_in, check)

    def test_detach(self):
        self.bring_in()
        found = self.trace(self.take_out)
        self.bring_in()

        def check():
            self.take_out()
            self.check_gone()
            self.bring_in()
            self.check_there()

        self.kill_at_each("killed, drive detached", found, self.take_out, check)

    # -- workers, which talk to QEMU and to the guest

    def trace_worker(self, action):
        """The points of the worker that has the most to do with it, but not those of the search."""
        file = self.scratch / "trace"
        with attached_to_workers(self.host, ["-y"], file):
            action()
        return [point for point in points_of_busiest(file) if not SEARCH.search(point.line)]

    def kill_workers_at_each(self, title, action, back, check):
        found = self.trace_worker(action)
        back()

        def kill(_, point):
            before = status(self.host)["workers"]["died"]
            with attached_to_workers(self.host, point.inject("signal=SIGKILL")), \
                    contextlib.suppress(grpc.RpcError):
                action()
            died = status(self.host)["workers"]["died"] > before
            action()  # the client repeats its call
            check()
            back()
            return "died" if died else "not reached"

        ends = LostTest.at_each(self, title, spread(found), kill)
        self.assertGreater(ends.count("died"), len(ends) // 3)

    def test_workers_of_an_attach(self):
        self.kill_workers_at_each("killed, workers of an attach", self.bring_in, self.take_out, self.check_there)

    def test_workers_of_a_detach(self):
        self.bring_in()
        self.kill_workers_at_each("killed, workers of a detach", self.take_out, self.bring_in, self.check_gone)

    def is_held_at(self, point):
        """Kills the daemon while a worker is about to make this call; false: the attach came to its end before."""
        with attached_to_workers(self.host, point.inject(f"delay_enter={SECONDS * 1_000_000}")), \
                concurrent.futures.ThreadPoolExecutor(1) as pool:
            attach = pool.submit(self.bring_in)
            time.sleep(HELD_SECONDS)
            is_held = not attach.done()
            self.host.process.kill()
            self.host.process.wait()
            with contextlib.suppress(grpc.RpcError):
                attach.result()
        return is_held

    def test_before_the_nodes(self):
        """QEMU's last monitor client goes with crustd, and QEMU then closes the descriptor that no node is on."""
        found = self.trace_worker(self.bring_in)
        self.take_out()
        point = next(point for point in found if "blockdev-add" in point.line)
        for _ in range(TRIES):  # not always the same worker has all of an attach
            is_held = self.is_held_at(point)
            if is_held:
                break
            self.start()
            self.take_out()
        self.assertTrue(is_held)
        killed = self.row(self.host, "data-1")
        self.start()
        self.host.wait(lambda: self.row(self.host, "data-1")["state"] == "ready", SECONDS, "the drive to be ready")
        self.assertEqual(self.row(self.host, "data-1")["requested_at"], killed["requested_at"])
        self.check_there()
        self.take_out()
        self.check_gone()
