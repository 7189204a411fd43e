# SPDX-License-Identifier: Apache-2.0
"""Power loss: QEMU is killed while a CSI driver stages and unstages. What was promised is on record.

CRUST_ROUNDS says how often (5): make node ROUNDS=50. Each round begins where the last one was cut off.
"""

import os
import pathlib
import random
import sys
import tempfile
import time

import grpc_client
from node_test_case import DATABASE, READY_SECONDS, NodeTest

MIB = 1 << 20
ROUNDS = int(os.environ.get("CRUST_ROUNDS") or 5)
FIRST_PROMISES = 5
LONGEST_SECONDS = 4
FILES = {"crustd.db", "crustd.db-wal", "crustd.db-shm"}
HERE = pathlib.Path(__file__).resolve().parent


class PowerLossTest(NodeTest):
    DISKS = {f"volume-{number}": 64 * MIB for number in range(9)}  # three for each client

    @classmethod
    def prepare(cls):
        with tempfile.TemporaryDirectory() as stubs:
            grpc_client.make_stubs(stubs)
            cls.node.put(stubs, "/root/stubs")
        cls.node.put(HERE / "power_loss_client.py", "/root/power_loss_client.py")
        cls.node.run("systemctl enable crustd")
        cls.node.start_crustd()
        cls.node.run("sync")

    def promises(self):
        """Whole lines that the client has written so far, in all rounds."""
        path = self.node.exchange / "promised"
        return path.read_text().splitlines() if path.exists() else []

    def test_what_was_promised_is_on_record(self):
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        for number in range(ROUNDS):
            with self.subTest(f"round {number}", seed=seed):
                self.cut_power(number, moments.uniform(0, LONGEST_SECONDS))
                self.check_record()

    def tearDown(self):
        log = self.node.exchange / "client.log"
        if log.exists():  # what the client said when a call failed
            print(log.read_text()[-4000:], file=sys.stderr)
        super().tearDown()

    def cut_power(self, number, seconds):
        before = len(self.promises())
        self.node.run(f"/root/power_loss_client.py round-{number} >/exchange/client.log 2>&1 &")
        self.node.wait(lambda: len(self.promises()) >= before + FIRST_PROMISES, 120,
                       "answers to the client")
        time.sleep(seconds)  # at any moment, not at one that is waited for
        self.node.kill_power()
        self.node.start()
        self.node.wait(self.node.is_synced, READY_SECONDS, "crustd, started at boot")

    def check_record(self):
        self.assertEqual(self.node.output(["sqlite3", DATABASE, "PRAGMA integrity_check"]), "ok")
        # None was set aside as corrupt.
        self.assertLessEqual(set(self.node.output("ls /var/lib/crustd").split()), FILES)
        rows = self.node.query(
            "SELECT substr(j.kind, 8) AS what, v.target_path FROM audit_journal j"
            " JOIN audit_volumes v USING (volume_id)"
            " WHERE j.kind IN ('volume_staged', 'volume_unstaged')")
        recorded = {f"{row['what']} {row['target_path']}" for row in rows}
        self.assertEqual(set(self.promises()) - recorded, set())
