# SPDX-License-Identifier: Apache-2.0
"""A flood of metadata directories fills crustd up to its bound, is said, and drains again."""

import json
import unittest

from scratch_node import ScratchNodeTest

MOST = 16384  # STORE_VOLUMES
EXTRA = 40


class FloodTest(ScratchNodeTest):
    hostile = True

    def test_further_directories_are_passed_over(self):
        node = self.node({"resize.sweep_seconds": 1})
        paths = [f"/flood/{number}" for number in range(MOST + EXTRA)]
        for path in paths:
            node.stage(path, "/dev/absent")
        node.start()
        health = json.loads(node.crustctl("status", "-o", "json").stdout)
        self.assertTrue(health["degraded"])
        self.assertIn("more volumes than crustd can handle", health["problem"])
        self.assertEqual(self.present(node), MOST)

        for path in paths[:2 * EXTRA]:
            node.unstage(path)
        node.wait(lambda: self.present(node) == MOST - EXTRA and not self.degraded(node), 120,
                  "the directories passed over to be taken after all")
        self.assertEqual(node.log.read_text().count("further directories are passed over"), 1)
        self.assertEqual(node.stop(), 0)

    @staticmethod
    def present(node):
        return node.query("SELECT count(*) AS n FROM audit_volumes WHERE status = 'present'")[0]["n"]

    @staticmethod
    def degraded(node):
        return json.loads(node.crustctl("status", "-o", "json").stdout)["degraded"]


if __name__ == "__main__":
    unittest.main()
