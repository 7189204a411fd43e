# SPDX-License-Identifier: Apache-2.0
"""A clock that jumps, under a daemon that keeps history for a day."""

import shutil
import sqlite3
import subprocess

from scratch_node import ScratchNodeTest, publish_path

AHEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int r;

    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    r = real(clock, now);
    if (clock == CLOCK_REALTIME && access(FLAG, F_OK) == 0)
        now->tv_sec += 3650L * 86400;
    return r;
}
"""
KEPT = 1000  # rows, the least that may be configured


class ClockTest(ScratchNodeTest):
    hostile = True

    def setUp(self):
        super().setUp()
        if not shutil.which("cc"):
            self.skipTest("needs a C compiler")
        self.flag = self.scratch / "ahead"
        library = self.scratch / "ahead.so"
        subprocess.run(["cc", "-shared", "-fPIC", f'-DFLAG="{self.flag}"', "-x", "c", "-", "-o",
                        library, "-ldl"], input=AHEAD, text=True, check=True)
        self.host = self.node({"history.keep_days": 1, "history.max_rows": KEPT,
                               "resize.sweep_seconds": 1})
        self.host.wrapper = ["env", f"LD_PRELOAD={library}"]

    def count(self):
        return self.host.query("SELECT count(*) AS n FROM audit_journal WHERE kind = 'line'")[0]["n"]

    def add_lines(self):
        """More than are kept, so that it shows when a sweep has been."""
        with sqlite3.connect(self.host.root / "var/lib/crustd/crustd.db", timeout=60) as database:
            database.executemany("INSERT INTO journal (at, kind) VALUES (unixepoch() * 1000, ?)",
                                 [("line",)] * 3 * KEPT)

    def newest_year(self):
        return int(self.host.query("SELECT max(at) AS at FROM audit_journal")[0]["at"][:4])

    def sweeps_keep_history(self):
        self.add_lines()
        self.host.wait(lambda: self.count() <= KEPT, 60, "the rows beyond the limit to go")
        self.host.crustctl("resync")
        self.host.stage(publish_path("pv-later"), "/dev/none")
        self.host.wait_for(publish_path("pv-later"), "unbound")
        self.assertGreater(self.count(), KEPT * 9 // 10)

    def test_it_jumps_while_crustd_runs(self):
        self.host.start()
        self.assertLess(self.newest_year(), 2036)
        self.flag.touch()
        self.sweeps_keep_history()
        self.assertGreater(self.newest_year(), 2030)

    def test_it_jumps_while_crustd_is_down(self):
        self.host.start()
        self.host.stop()
        self.flag.touch()
        self.host.start()
        self.sweeps_keep_history()
