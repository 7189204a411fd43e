# SPDX-License-Identifier: Apache-2.0
"""Worker processes that are killed, stopped or hang: the daemon goes on, and a resize comes to its end."""

import os
import pathlib
import re
import signal
import unittest

from lost import Attached, Interrupted, LostTest, points, spread, wait
from scratch_node import AFTER, BEFORE, ScratchNodeTest, metrics_of, status

HUNG, ALL = 16, 24
KEPT = {1, 2, 19}  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE


def children(pid):
    return [int(child) for child in
            pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def nursery(node):
    found, = [pid for pid in children(node.process.pid) if name(pid) == "crustd-nursery"]
    return found


def workers(node):
    """Those that live: the nursery reaps a dead one before it forks again."""
    return [pid for pid in children(nursery(node))
            if name(pid) == "crustd-worker" and not status_of(pid)["State"].startswith("Z")]


def status_of(pid):
    return dict(line.split(":\t", 1) for line in
                pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def attached_to_workers(node, options, output="/dev/null"):
    """strace on all workers that there are."""
    first, *others = workers(node)
    return Attached(first, [*(option for pid in others for option in ("-p", str(pid))), *options], output)


def points_of_busiest(file):
    """The points of the worker that made the most syscalls of a trace."""
    lines = [line for line in file.read_text(errors="replace").splitlines() if re.match(r"\d+ ", line)]
    pids = [line.split()[0] for line in lines]
    busiest = max(set(pids), key=pids.count)
    file.write_text("\n".join(line for line in lines if line.startswith(f"{busiest} ")))
    return points(file)


class WorkersTest(ScratchNodeTest):
    def hung_volume(self):
        """A volume whose VMM does not answer about its growth."""
        node = self.node()
        volume = self.volume(node)
        _, monitor, _ = self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=BEFORE)
        monitor.silent = True
        volume.loop.resize(AFTER)
        node.wait(lambda: status(node)["workers"]["busy"] == 1, 60, "a worker to ask")
        return node, volume, monitor

    def test_confinement(self):
        """A worker has nothing of the daemon's, and few capabilities; what it may call, unit tests try."""
        node, _, _ = self.hung_volume()
        for pid in [nursery(node), *workers(node)]:
            shown = status_of(pid)
            self.assertEqual((shown["NoNewPrivs"], shown["Seccomp"]), ("1", "2"))
            effective = int(shown["CapEff"], 16)
            self.assertLessEqual({bit for bit in range(64) if effective >> bit & 1}, KEPT)
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(fd)
                self.assertFalse("crustd.db" in target or "inotify" in target or "eventpoll" in target, target)

    def test_a_killed_worker(self):
        """Its act is made again, and the resize comes to its end."""
        node, volume, monitor = self.hung_volume()
        for pid in workers(node):
            os.kill(pid, signal.SIGKILL)
        node.wait(lambda: status(node)["workers"]["died"] >= 1, 60, "the act's end")
        monitor.silent = False
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)
        self.assertGreaterEqual(float(metrics_of(node)['crustd_worker_jobs_total{result="died"}']), 1)
        self.assertIn("died", node.crustctl("status").stdout)

    def test_a_stopped_worker(self):
        """It does not end at its deadline by itself: it is killed then."""
        node = self.node({"resize.call_timeout_seconds": 1})
        volume = self.volume(node)
        self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=BEFORE)
        before = workers(node)
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER, seconds=120)
        self.assertGreaterEqual(status(node)["workers"]["late"], 1)
        for pid in before:
            if pathlib.Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)

    def test_the_nursery_is_killed(self):
        """No worker can be made any more: the daemon ends, and the next one goes on with its rows."""
        node, volume, monitor = self.hung_volume()
        process, old = node.process, workers(node)
        os.kill(nursery(node), signal.SIGKILL)
        self.assertEqual(process.wait(60), 1)
        self.assertIn("workers has died", node.log_tail())
        wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in old), "the workers' end")
        monitor.silent = False
        node.start()
        node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)

    def test_a_killed_daemon_leaves_nobody(self):
        node, _, _ = self.hung_volume()
        left = [nursery(node), *workers(node)]
        node.kill()
        wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in left), "their end")

    def test_a_restart_in_its_place(self):
        """Executed anew, it has workers of its own, and none of those before."""
        node, _, _ = self.hung_volume()
        old = [nursery(node), *workers(node)]
        node.path("/var/lib/crustd/crustd.db").unlink()
        wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in old), "the old ones' end",
             node.log_tail)
        node.wait(lambda: len(workers(node)) >= 8, 60, "the new ones")

    def test_many_hung_vmms(self):
        """More VMMs hang than workers are kept ready: none of the others waits for their deadlines."""
        node = self.node({"resize.call_timeout_seconds": 600})
        volumes = [self.volume(node, f"pv{number}") for number in range(ALL)]
        monitors = []
        for number, volume in enumerate(volumes):
            self.sandbox(node, volume, sandbox_id=f"{number + 1:064x}")
            monitors.append(self.monitor(node, volume, sandbox_id=f"{number + 1:064x}"))
        self.agent(node)
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        for monitor in monitors[:HUNG]:
            monitor.silent = True
        for volume in volumes:
            volume.loop.resize(AFTER)
        for volume in volumes[HUNG:]:
            node.wait_for(volume.path, "in_sync", hypervisor_bytes=AFTER)
        node.wait(lambda: status(node)["workers"]["busy"] == HUNG, 60, "the hung ones alone")


class KilledWorkers(LostTest):
    """A worker is killed before any one of its syscalls: the daemon makes the act again."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def trace_worker(self, scene):
        file = self.scratch / "trace"
        with attached_to_workers(scene.node, [], file):
            scene.grow_more()
            scene.wait_reached()
        return points_of_busiest(file)

    def test_each_syscall_of_a_resize(self):
        scene = Interrupted(self)
        scene.node.start()
        scene.wait_reached()
        scene.grow(AFTER)
        scene.wait_reached()

        def kill(_, point):
            before = status(scene.node)["workers"]["died"]
            with attached_to_workers(scene.node, point.inject("signal=SIGKILL")):
                scene.grow_more()
                scene.wait_reached()
            died = status(scene.node)["workers"]["died"] > before
            self.assertEqual(scene.monitor.drives[0].size, scene.end_bytes)
            return "died" if died else "not reached"

        ends = self.at_each("killed, worker", spread(self.trace_worker(scene)), kill)
        self.assertGreater(ends.count("died"), len(ends) / 2)


if __name__ == "__main__":
    unittest.main()
