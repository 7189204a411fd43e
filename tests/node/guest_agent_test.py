# SPDX-License-Identifier: Apache-2.0
"""What the unit tests skip where root lacks a capability (CAP_SYS_RESOURCE, to resize an ext4) or there is no vsock."""

import unittest

from node_test_case import BUILD, NodeTest

PROGRAMS = {"serve_test": "ext4_grows_or_names_the_missing_right",
            "serve_protocol_test": "only_the_host_is_served_on_vsock",
            "oneshot_test": "ext4_grows_or_its_capability_is_named"}


class GuestAgentTest(NodeTest):
    INSTALL = False

    def test_nothing_is_skipped(self):
        self.node.run("modprobe vsock_loopback")
        for name, test in PROGRAMS.items():
            with self.subTest(name):
                program = BUILD / "tests/unit/guest-agent" / name
                if not program.exists():
                    raise unittest.SkipTest(f"needs {program}: make node builds it")
                self.node.put(program, f"/root/{name}")
                result = self.node.run(f"/root/{name} 2>&1", check=False, seconds=600)
                self.assertEqual(result.status, 0, result.stdout)
                self.assertIn(f"[       OK ] {test}", result.stdout)
                self.assertNotIn("SKIPPED", result.stdout)
