# SPDX-License-Identifier: Apache-2.0
"""Resizes that crustd does not live through, or does not live to see: stopped, killed at random,
told to end, run once, configured anew."""

import os
import random
import signal
import time

from resize_case import MIB, PATTERN_BYTES, ResizeCase, auditor, check_filesystem


class RestartTest(ResizeCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.add_sandbox(relayed=True)
        cls.volumes = [cls.sandbox.add_volume(name) for name in ("ext4", "xfs", "btrfs")]
        cls.boot(cls.sandbox)

    def grow_while(self, end):
        """Devices grow after end() has ended the daemon; returns the resizes."""
        for volume in self.volumes:
            self.settle(volume)
        end()
        return [self.begin(volume, settled=None) for volume in self.volumes]

    def test_resize_while_stopped(self):
        resizes = self.grow_while(self.node.stop)
        self.node.start()
        for resize in resizes:
            self.finish(resize)

    def test_resize_while_killed(self):
        resizes = self.grow_while(self.node.kill)
        self.node.start()
        for resize in resizes:
            self.finish(resize)

    def test_resize_before_the_first_start(self):
        """Without a database nothing is known but what the hypervisor says."""
        resizes = self.grow_while(self.node.stop)
        for file in (self.node.root / "var/lib/crustd").iterdir():
            file.unlink()
        self.node.start()
        for resize in resizes:
            resize.resizes = 0
            self.finish(resize)

    def test_once(self):
        resizes = self.grow_while(self.node.stop)
        summary = self.node.once()
        self.assertEqual(summary["volumes"], len(self.volumes))
        self.assertEqual(summary["by_state"], {"in_sync": len(self.volumes)})
        self.assertEqual((summary["open_resizes"], summary["waiting"]), (0, 0))
        for resize in resizes:
            self.finish(resize)
        shown = self.node.crustctl("volumes").stdout  # from the database, nobody answers
        self.assertEqual(shown.count("in_sync"), len(self.volumes))

    def test_terminate_waits_for_the_step_in_flight(self):
        relay, volume = self.sandbox.relay, self.volumes[0]
        resize = self.begin_held(volume)
        answered = len(self.journal(volume, "kind = 'guest_answered'"))
        self.node.process.send_signal(signal.SIGTERM)
        self.wait(lambda: "stopping after the step in flight" in self.node.log_tail(), "the signal")
        self.assertIsNone(self.node.process.poll())
        relay.release()
        self.assertEqual(self.node.process.wait(60), 0)
        self.node.process = None
        self.assertEqual(len(self.journal(volume, "kind = 'guest_answered'")), answered + 1)
        self.node.start()
        self.finish(resize)


class KillTest(ResizeCase):
    """Killed at random moments of resizes, and at random moments of starting again."""

    KILLS = 20
    STEP = 16 * MIB

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandboxes = [cls.add_sandbox(), cls.add_sandbox(bus="scsi")]
        cls.volumes = [sandbox.add_volume(name)
                       for sandbox in cls.sandboxes for name in ("ext4", "xfs", "btrfs")]
        cls.boot(*cls.sandboxes)

    def test_twenty_kills(self):
        seed = int(os.environ.get("CRUST_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"CRUST_TEST_SEED={seed}", flush=True)
        choose = random.Random(seed)
        firsts = {volume: volume.loop.size for volume in self.volumes}
        seconds = self.measure_resize()
        with auditor(self.node) as problems:
            for _ in range(self.KILLS):
                for volume in choose.sample(self.volumes, choose.randint(1, 3)):
                    volume.loop.resize(volume.loop.size + self.STEP)
                time.sleep(choose.uniform(0, seconds))  # the random moment, not a wait
                self.node.kill()
                self.node.start(ready=choose.random() < 0.5)
            self.node.wait_ready()
            last = [self.begin(volume, volume.loop.size + self.STEP, settled=None)
                    for volume in self.volumes]
            for resize in last:
                self.check_converged(resize, firsts[resize.volume])
        self.assertEqual(problems, [])
        self.check_database()
        self.check_disks()

    def measure_resize(self):
        """How long all volumes need here; kills fall into as long a time."""
        started = time.monotonic()
        self.grow(*self.volumes)
        return time.monotonic() - started

    def check_converged(self, resize, first_bytes):
        volume = resize.volume
        self.node.wait_for(volume.path, "in_sync", "none", device_bytes=resize.to_bytes,
                           hypervisor_bytes=resize.to_bytes)
        self.assertEqual(volume.sandbox.vm.guest_blocksize(volume.disk), resize.to_bytes)
        self.assertEqual(self.node.volume(volume.path)["guest_bytes"],
                         volume.sandbox.vm.guest_size(volume.disk.mount_point))
        self.check_intents(volume)
        self.check_binding(volume)
        bytes_reached = first_bytes
        for row in self.resizes(volume):
            self.assertEqual(row["from_bytes"], bytes_reached, row)
            self.assertGreater(row["to_bytes"], row["from_bytes"], row)
            self.assertEqual((row["state"], row["reason"]), ("in_sync", "none"))
            self.assertNotIn(None, (row["hypervisor_at"], row["guest_at"], row["finished_at"]))
            bytes_reached = row["to_bytes"]
        self.assertEqual(bytes_reached, resize.to_bytes)

    def check_database(self):
        self.assertEqual(self.node.query("PRAGMA integrity_check"), [{"integrity_check": "ok"}])
        self.assertEqual(self.node.query("PRAGMA foreign_key_check"), [])

    def check_disks(self):
        """What the guests wrote first is still there, and no file system was harmed."""
        for volume in self.volumes:
            volume.sandbox.vm.guest_verify(volume.pattern, PATTERN_BYTES)
        for sandbox in self.sandboxes:
            sandbox.vm.power_off()
        for volume in self.volumes:
            check_filesystem(volume)
