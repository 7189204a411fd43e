# SPDX-License-Identifier: Apache-2.0
"""A node's weeks at an accelerated pace, and what crustd holds meanwhile.

    with Soak(scratch) as soak:
        soak.begin()
        soak.live(batches=56)                # a week
        print(soak.find_faults())            # [] if nothing grew

A simulated week is that of a node with 100 pods of four volumes each, of which 25 end in an hour and
as many begin: 4,200 pods and 16,800 volumes in 56 batches of three hours. Of the pods that end,

    seven in ten   in whatever order: the VMM, the runtime's state, the driver's metadata
    one in ten     by the death of the VMM; what the runtime and the driver do about it comes later
    two in ten     with a driver that leaves the metadata behind, which crustd has to clean up

In each batch the devices of four pods that stay are resized twice: 448 resizes a week. Where there
is a QEMU, a disk stays in one more VM, and 30 come and go in each batch: 1,680 a week. In the first
three days of seven crustd is restarted after each batch, in turn by SIGTERM and by SIGKILL, and pods
end and begin while it is down: 24 restarts. In the other four days it is one process, whose memory,
descriptors, watches and database are judged. Samples are taken when all volumes of a batch are as
they should be and nothing that was left behind is there any more.
"""

import os
import pathlib
import shutil
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
sys.path.insert(0, str(HERE.parent / "e2e"))

import drive_churn  # noqa: E402
from bare_qemu import QEMU  # noqa: E402
from churn import Churn  # noqa: E402
from crowd import PER_SANDBOX, VOLUMES, numbers_of, volume_path  # noqa: E402
from judge import find_difference, find_growth  # noqa: E402
from programs import wait_until  # noqa: E402

PODS = 100
GROWING = 4
BATCH_PODS, BATCH_HOURS, PODS_PER_SECOND = 75, 3, 10
BATCHES_PER_WEEK = 7 * 24 // BATCH_HOURS
RESTARTED = 3 / 7  # of the batches
PODS_WHILE_DOWN = 5
DRIVE_ROUNDS = 10
WARM_UP = 2  # samples of the one process that are not judged
SETTLE_SECONDS, HELD_SECONDS, FIRST_SECONDS = 300, 30, 5
# Memory differs by some hundred kB from sample to sample: what is just answered is in it.
MEMORY_BOUND = {"share": 0.10, "least": 512}
DATABASE_BOUND = {"share": 0.05, "least": 256 * 1024}
SETTINGS = {"resize.sweep_seconds": 2, "guest.stats_seconds": 60, "guest.helper": "off",
            "history.max_rows": 1000, "cleanup.grace_seconds": 1, "cleanup.unbound_grace_seconds": 1,
            "cleanup.max_per_minute": 6000, "cleanup.keep_hours": 0} | drive_churn.SETTINGS
CANARY = "99999999-0000-0000-0000-000000000000"


class Soak(Churn):
    def __init__(self, scratch, pods=PODS, batch_pods=BATCH_PODS):
        self.dying = []  # pods whose VMM has died, and nobody has cleaned up
        self.batch_pods = batch_pods
        self.counts = dict.fromkeys(("pods", "vmm_deaths", "left_behind", "resizes", "drives",
                                     "terminated", "killed"), 0)
        self.samples = []  # of all lives: dictionaries
        self.life = 0
        super().__init__(scratch, pods * PER_SANDBOX, growing=GROWING, settings=SETTINGS)
        (self.kubelet_pods / CANARY).mkdir(parents=True)
        self.drives = None
        if shutil.which(QEMU):
            self.drives = drive_churn.DriveChurn(self.node, scratch)
            self.stack.callback(self.drives.close)

    # -- the kubelet's side

    @property
    def kubelet_pods(self):
        return self.node.root / "var/lib/kubelet/pods"

    def _stage(self, number):
        self.node.path(volume_path(number)).mkdir(parents=True, exist_ok=True)
        super()._stage(number)

    def _remove_pod_directory(self, sandbox):
        uid = volume_path(sandbox * PER_SANDBOX).split("/")[5]
        shutil.rmtree(self.kubelet_pods / uid)

    # -- a pod goes

    def _end_pod(self, sandbox):
        kind = self.random.choices(("ordinary", "vmm_deaths", "left_behind"), (7, 1, 2))[0]
        if kind == "ordinary":
            self._remove_pod_directory(sandbox)
            self._remove_pod(sandbox)
            return
        self.counts[kind] += 1
        self._end_vmm(sandbox)
        if kind == "vmm_deaths":
            self.dying.append(sandbox)
        else:
            self._clear_away(sandbox)

    def _clear_away(self, sandbox):
        """All but the metadata."""
        self._remove_state(sandbox)
        self._remove_pod_directory(sandbox)
        for number in numbers_of(sandbox):
            self.node.path(self._device(number)).unlink()

    def _bury(self):
        """What died by itself is cleaned up by those whose it is."""
        while self.dying:
            sandbox = self.dying.pop()
            self._unstage(sandbox)
            self._clear_away(sandbox)

    def _replace(self, pods):
        following = max(self.pods) + 1
        for number in range(pods):
            self._end_pod(self.pods.pop(0))
            self._add_pod(following + number)
        self.counts["pods"] += pods

    # -- settled

    def _staged(self):
        return len(os.listdir(self.node.root / VOLUMES))

    def wait_settled(self):
        """Also that nothing is left of what was left behind."""
        wait_until(lambda: self._staged() == self.volumes, SETTLE_SECONDS,
                   "the metadata that was left behind to be cleaned up")
        super().wait_settled()
        trash = self.node.root / "run/kata-containers/shared/.crust-trash"
        wait_until(lambda: not trash.exists() or not any(trash.glob("*/*")), SETTLE_SECONDS,
                   "the trash to be empty")

    def _held(self):
        return {"descriptors": self.descriptors, "watches": self.watches,
                "vmm_descriptors": self.drives.descriptors if self.drives else 0}

    def _wait_held(self):
        """Descriptors of calls come and go: what the first sample had is waited for, for a while. The
        first is the least of a few seconds."""
        first = self.samples[0] if self.samples else None
        deadline = time.monotonic() + (HELD_SECONDS if first else FIRST_SECONDS)
        held = self._held()
        while time.monotonic() < deadline and (not first or held.items() - first.items()):
            time.sleep(0.1)
            again = self._held()
            held = again if first else {name: min(held[name], again[name]) for name in held}
        return held

    def _sample(self):
        wal = self.database.with_name(self.database.name + "-wal")
        self.samples.append(self._wait_held() | {
            "life": self.life, "pods": self.counts["pods"], "rss_anon_kb": self.status("RssAnon"),
            "database_bytes": self.database_bytes, "wal_bytes": wal.stat().st_size})

    # -- life

    def begin(self):
        self.start()
        if self.drives:
            self.drives.begin()
        self.wait_settled()

    def _restart(self, number):
        if number == signal.SIGKILL:
            self.process.kill()
            self.process.wait()
        self.stop()
        self.counts["killed" if number == signal.SIGKILL else "terminated"] += 1
        self._replace(PODS_WHILE_DOWN)
        self.life += 1
        self.start()

    def _live_batch(self):
        for begun in range(0, self.batch_pods, PODS_PER_SECOND):
            until = time.monotonic() + 1
            self._replace(min(PODS_PER_SECOND, self.batch_pods - begun))
            time.sleep(max(0.0, until - time.monotonic()))
        self._bury()
        if self.drives:
            self.counts["drives"] += self.drives.turn(DRIVE_ROUNDS)
        self.grow(rounds=2)
        self.counts["resizes"] += 2 * GROWING
        self.wait_settled()
        self._sample()

    def live(self, batches, say=lambda sample: None):
        """So many batches, of which the first are of a daemon that is restarted."""
        restarted = round(RESTARTED * batches)
        for batch in range(batches):
            if batch < restarted:
                self._restart((signal.SIGTERM, signal.SIGKILL)[batch % 2])
            elif batch == restarted:
                self._restart(signal.SIGTERM)
            self._live_batch()
            say(self.samples[-1])

    # -- judged

    def _of_last_life(self, name):
        return [sample[name] for sample in self.samples if sample["life"] == self.life]

    def find_faults(self):
        """[(what, how it grew)]."""
        restarts = [sample["rss_anon_kb"] for sample in self.samples if sample["life"] < self.life]
        found = {
            "descriptors": find_difference([sample["descriptors"] for sample in self.samples]),
            "watches": find_difference([sample["watches"] for sample in self.samples]),
            "descriptors of a VMM": find_difference([sample["vmm_descriptors"]
                                                     for sample in self.samples]),
            "RssAnon of one process, kB": find_growth(self._of_last_life("rss_anon_kb")[WARM_UP:],
                                                      **MEMORY_BOUND),
            "RssAnon after restarts, kB": find_growth(restarts, **MEMORY_BOUND),
            "database, bytes": find_growth(self._of_last_life("database_bytes")[WARM_UP:],
                                           **DATABASE_BOUND),
        }
        return [(what, how) for what, how in found.items() if how]
