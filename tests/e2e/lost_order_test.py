# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order, and however often crustd is killed meanwhile: what it has on
record in the end is what a daemon without any history finds there.

The scenarios are random. Each prints its seed; CRUST_SEED=N runs that one again.
"""

import json
import os
import pathlib
import random
import tempfile
import threading
import time
import unittest

from lost import SECONDS, LostTest, rows, wait
from scratch_node import BEFORE, MIB, fake_monitor, publish_path, status

DEVICES, VOLUMES, SANDBOXES = 4, 6, 3
SCENARIOS, ACTS, KILLS = 6, 80, 50
HALF = '{"volume-type":"blo'


class World:
    """Devices, volumes and sandboxes of a node, changed one act at a time."""

    def __init__(self, test, seed):
        self.test, self.random = test, random.Random(seed)
        self.node = test.node({"resize.sweep_seconds": 3600, "resize.call_timeout_seconds": 10})
        self.aside = pathlib.Path(tempfile.mkdtemp(dir=self.node.root))
        self.loops = [test.loop() for _ in range(DEVICES)]
        for loop in self.loops:
            self.node.add_device(loop.device)
        self.volumes = [publish_path(f"pv-{number}") for number in range(VOLUMES)]
        self.ids = [f"{number:064x}" for number in range(1, SANDBOXES + 1)]
        self.alive = {}  # id: (vmm, monitor)
        self.agent = test.agent(self.node)
        self.agent.each = True
        self.history = []
        self.sizes_sent = []

    def act(self):
        act = self.random.choice([self.stage, self.stage, self.move_in, self.write_half,
                                  self.unstage, self.record, self.record, self.record,
                                  self.forget, self.start, self.start, self.end, self.grow,
                                  self.grow, self.pause])
        self.history.append(act.__name__)
        act()

    def staged(self):
        return [path for path in self.volumes if self.node.directory(path).is_dir()]

    def token(self):
        return f"token-{self.random.random()}"

    # -- what a CSI driver does

    def stage(self):
        self.node.stage(self.random.choice(self.volumes), self.random.choice(self.loops).device,
                        options=[self.token()])

    def move_in(self):
        """A directory that appears as a whole."""
        path = self.random.choice(self.volumes)
        if self.node.directory(path).exists():
            return
        made = self.aside / "made"
        made.mkdir()
        (made / "mountInfo.json").write_text(json.dumps(
            {"volume-type": "block", "device": self.random.choice(self.loops).device,
             "fstype": "xfs", "options": [self.token()]}))
        os.chmod(made / "mountInfo.json", 0o600)
        made.rename(self.node.directory(path))

    def write_half(self):
        """A writer that is slow, and comes to its end by finish() at the latest."""
        if self.random.random() < 0.3:
            self.node.stage(self.random.choice(self.volumes), "", text=HALF)

    def finish(self):
        """What was valid once counts as it was until it can be read again, and so is no matter of
        the present state alone: nothing is left half written."""
        for path in self.staged():
            if (self.node.directory(path) / "mountInfo.json").read_text() == HALF:
                self.node.stage(path, self.random.choice(self.loops).device,
                                options=[self.token()])

    def unstage(self):
        self.node.unstage(self.random.choice(self.volumes))

    def grow(self):
        loop = self.random.choice(self.loops)
        loop.resize(loop.size + MIB)

    # -- what a runtime does

    def record(self):
        for path in self.staged()[:1]:
            path = self.random.choice(self.staged())
            self.node.record(path, self.random.choice(self.ids))

    def forget(self):
        for path in self.staged():
            for sandbox_id in self.ids:
                if self.random.random() < 0.3:
                    (self.node.directory(path) / sandbox_id).unlink(missing_ok=True)

    def start(self):
        sandbox_id = self.random.choice(self.ids)
        if sandbox_id in self.alive:
            return
        vmm = self.node.start_vmm(sandbox_id)
        drives = [fake_monitor.Drive(f"drive-{number:016x}", loop.device)
                  for number, loop in enumerate(self.loops)]
        monitor = fake_monitor.FakeMonitor(
            self.node.vm_dir(sandbox_id) / "extra-monitor.sock", drives).start()
        self.test.addCleanup(monitor.stop)
        self.alive[sandbox_id] = vmm, monitor
        self.node.add_sandbox(sandbox_id, vmm.pid, agent="unix:///agent.sock", drives=[
            {"device": loop.device, "id": drive.node, "address": f"02/{number:02x}"}
            for number, (loop, drive) in enumerate(zip(self.loops, drives), 1)])

    def end(self):
        """In either order, and at times without the runtime's tidying up."""
        sandbox_id = self.random.choice(self.ids)
        if sandbox_id not in self.alive:
            return
        vmm, monitor = self.alive.pop(sandbox_id)
        tidies_up = self.random.choice(["before", "after", "never"])
        if tidies_up == "before":
            self.node.end_sandbox(sandbox_id)
        vmm.stop()
        monitor.stop()
        if tidies_up == "after":
            self.node.end_sandbox(sandbox_id)
        self.note_sizes(monitor)

    def pause(self):
        """So that the daemon gets to some of it, and not to all at once."""
        time.sleep(self.random.uniform(0, 0.02))

    # -- what must hold

    def note_sizes(self, monitor):
        for drive in monitor.drives:
            self.sizes_sent.append([command.arguments["size"]
                                    for command in monitor.sent("block_resize")
                                    if command.arguments["node-name"] == drive.node])

    def check_resized(self):
        """No drive was ever told a smaller size."""
        for _, monitor in self.alive.values():
            self.note_sizes(monitor)
        for sizes in self.sizes_sent:
            self.test.assertEqual(sizes, sorted(sizes))
            self.test.assertGreater(min(sizes, default=BEFORE + 1), BEFORE)

    def check_drives(self, found):
        """Volumes that are reported in sync really are."""
        for row in found.values():
            if row["state"] != "in_sync":
                continue
            drive, = [drive for drive in self.alive[row["sandbox_id"]][1].drives
                      if drive.file == row["device"]]
            self.test.assertEqual((row["device_bytes"], row["hypervisor_bytes"]),
                                  (drive.real_size(), drive.size), row)


class Order(LostTest):
    """One world, two daemons: one that saw it all, one that saw only the end."""

    def seeds(self):
        if "CRUST_SEED" in os.environ:
            return [int(os.environ["CRUST_SEED"])]
        return [random.SystemRandom().randrange(1 << 32) for _ in range(SCENARIOS)]

    def live_rows(self, database):
        """What is there now, by path; without ids and times, and without what nobody asks for while
        a volume is blocked."""
        columns = ["status", "state", "reason", "problem", "device", "volume_type", "fs_type",
                   "options", "metadata", "sandbox_id", "device_bytes", "layout", "key", "pv",
                   "pod_uid"]
        live = {}
        for row in rows(database, "SELECT * FROM audit_volumes WHERE status <> 'removed'"):
            wanted = columns + (["hypervisor_bytes"] if row["state"] == "in_sync" else [])
            self.assertNotIn(row["target_path"], live)
            live[row["target_path"]] = {name: row[name] for name in wanted}
        return live

    def found_afresh(self, world):
        """By a daemon with a database of its own, beside the other one."""
        node = world.node
        config = node.root / "etc/crustd/afresh.conf"
        config.write_text((node.root / "etc/crustd/crustd.conf").read_text()
                          + "[paths]\ndatabase = /var/lib/afresh/crustd.db\n")
        node.once("--config", str(config))
        return self.live_rows(node.path("/var/lib/afresh/crustd.db"))

    def same_as_afresh(self, world):
        node = world.node
        database = node.path("/var/lib/crustd/crustd.db")
        world.finish()
        afresh = self.found_afresh(world)
        try:
            wait(lambda: self.live_rows(database) == afresh, "the same state")
        except AssertionError:
            self.assertEqual(self.live_rows(database), afresh,
                             f"{' '.join(world.history)}\n{node.log_tail()}")
        node.wait(lambda: status(node)["acts_in_flight"] == 0, SECONDS, "acts in flight to end")
        self.assertEqual(rows(database, "PRAGMA integrity_check"), [{"integrity_check": "ok"}])
        world.check_drives(afresh)
        world.check_resized()

    def test_any_order_is_as_a_rescan(self):
        for seed in self.seeds():
            print(f"CRUST_SEED={seed}", flush=True)
            with self.subTest(seed=seed):
                world = World(self, seed)
                world.node.start()
                for number in range(ACTS):
                    world.act()
                    if number % (ACTS // 3) == ACTS // 3 - 1:
                        world.node.stop()
                        world.act()
                        world.node.start(ready=False)
                self.same_as_afresh(world)
                world.node.stop()

    def test_killed_at_random_moments(self):
        seed = self.seeds()[0]
        print(f"CRUST_SEED={seed}", flush=True)
        world = World(self, seed)
        moments = random.Random(seed)
        ended, problems = threading.Event(), []

        def churn():
            try:
                while not ended.is_set():
                    world.act()
            except Exception as error:  # pylint: disable=broad-except
                problems.append(error)

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(KILLS):
                world.node.start(ready=False)
                time.sleep(moments.uniform(0, 0.15))
                world.node.kill()
                self.check_opens(world.node)
        finally:
            ended.set()
            thread.join()
        self.assertEqual(problems, [])
        print(f"{KILLS} kills during {len(world.history)} acts", flush=True)
        world.node.start()
        self.same_as_afresh(world)

    def check_opens(self, node):
        database = node.path("/var/lib/crustd/crustd.db")
        if database.exists():
            self.assertEqual(rows(database, "PRAGMA integrity_check"), [{"integrity_check": "ok"}])


if __name__ == "__main__":
    unittest.main()
