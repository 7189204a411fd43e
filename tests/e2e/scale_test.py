# SPDX-License-Identifier: Apache-2.0
"""A thousand sandboxes with four thousand volumes, of which ten pods a second go and as many come for
a minute: what is on record in the end is what a daemon without any history finds, and nothing that
the daemon holds has grown."""

import contextlib
import json
import pathlib
import sqlite3
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

from churn import Churn  # noqa: E402
from programs import GuestError, wait_until  # noqa: E402

VOLUMES = 4000
PODS, PER_SECOND = 600, 10
MAX_ROWS = 3000
HISTORIES = ("audit_journal", "audit_resizes", "audit_mappings")
COLUMNS = ("target_path, layout, key, pv, pod_uid, device, options, metadata, problem, sandbox_id,"
           " device_bytes, hypervisor_bytes, state, reason")


def rows(database, sql):
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True,
                                            timeout=60)) as connection:
        return connection.execute(sql).fetchall()


class ChurnTest(unittest.TestCase):
    """Both runtimes' sandboxes, regular files as devices but for a few loop devices, which grow."""

    @classmethod
    def setUpClass(cls):
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="crust-scale-"))
        cls.crowd = cls.enterClassContext(Churn(scratch, VOLUMES, settings={
            "history.max_rows": MAX_ROWS, "resize.sweep_seconds": 2}))

    def held(self):
        return {"descriptors": self.crowd.descriptors, "watches": self.crowd.watches}

    def settled_held(self):
        """The least of several: descriptors of calls come and go."""
        samples = []
        for _ in range(20):
            samples.append(self.held())
            time.sleep(0.1)
        return {name: min(sample[name] for sample in samples) for name in samples[0]}

    def present(self, database):
        return set(rows(database, f"SELECT {COLUMNS} FROM audit_volumes WHERE status = 'present'"))

    def wait_trimmed(self):
        def is_trimmed():
            return all(self.ended(view) <= MAX_ROWS for view in HISTORIES)

        wait_until(is_trimmed, 120, "the history to be within its bound")

    def ended(self, view):
        """How many rows are history: those of what is present do not count."""
        condition = {"audit_mappings": "until IS NOT NULL",
                     "audit_resizes": "finished_at IS NOT NULL"}.get(view, "1")
        (count,), = rows(self.crowd.database, f"SELECT count(*) FROM {view} WHERE {condition}")
        return count

    def found_afresh(self):
        """By a daemon with a database of its own, beside the other one."""
        node = self.crowd.node
        config = node.root / "etc/crustd/afresh.conf"
        config.write_text((node.root / "etc/crustd/crustd.conf").read_text()
                          + "[paths]\ndatabase = /var/lib/afresh/crustd.db\n")
        summary = node.once("--config", str(config))
        self.assertEqual(summary["volumes"], VOLUMES, json.dumps(summary))
        return self.present(node.path("/var/lib/afresh/crustd.db"))

    def test_pods_come_and_go(self):
        crowd = self.crowd
        crowd.start()
        crowd.wait_settled()
        before = self.settled_held()
        at_first = crowd.status("RssAnon")

        crowd.replace(PODS // 2, PER_SECOND)
        crowd.wait_settled()
        self.wait_trimmed()
        halfway_figures = crowd.status("RssAnon"), crowd.database_bytes

        crowd.replace(PODS // 2, PER_SECOND)
        crowd.grow(rounds=2)
        crowd.wait_settled()
        self.wait_trimmed()
        with contextlib.suppress(GuestError):
            wait_until(lambda: self.held() == before, 60, "crustd to hold what it did")
        self.assertEqual(self.settled_held(), before)
        # The allocator may have given back more halfway than it holds on to otherwise.
        self.assertLess(crowd.status("RssAnon"), 1.1 * max(at_first, halfway_figures[0]))
        self.assertLess(crowd.database_bytes, 1.25 * halfway_figures[1])

        wait_until(lambda: self.present(crowd.database) == self.found_afresh(), 60,
                   "what a daemon without history finds")
