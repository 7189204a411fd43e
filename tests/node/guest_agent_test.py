"""What the unit tests skip where root lacks a capability: CAP_SYS_RESOURCE, to resize an ext4."""

import unittest

from node_test_case import BUILD, NodeTest

PROGRAM = "tests/unit/guest-agent/serve_test"


class GuestAgentTest(NodeTest):
    INSTALL = False

    def test_nothing_is_skipped(self):
        if not (BUILD / PROGRAM).exists():
            raise unittest.SkipTest(f"needs {BUILD / PROGRAM}: make node builds it")
        self.node.put(BUILD / PROGRAM, "/root/serve_test")
        result = self.node.run("/root/serve_test 2>&1", check=False, seconds=600)
        self.assertEqual(result.status, 0, result.stdout)
        self.assertIn("[       OK ] ext4_grows_or_says_what_it_lacks", result.stdout)
        self.assertNotIn("SKIPPED", result.stdout)
