# SPDX-License-Identifier: Apache-2.0
"""config/deploy/node-problem-detector: each rule's check, called as node-problem-detector's custom plugin monitor calls it."""

import json
import os
import subprocess

from node import BUILD, REPOSITORY
from scratch_node import AFTER, ScratchNodeTest

FOLDER = REPOSITORY / "config/deploy/node-problem-detector"
OK, PROBLEM, UNKNOWN = 0, 1, 2


class NodeProblemDetectorTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        self.configuration = json.loads((FOLDER / "crustd.json").read_text())

    def check(self, crustctl):
        """What each condition's rule says: (exit code, message)."""
        said = {}
        for rule in self.configuration["rules"]:
            script = FOLDER / os.path.basename(rule["path"])
            done = subprocess.run([script, *rule["args"]], env=os.environ | {"CRUSTCTL": crustctl}, capture_output=True,
                                  text=True, timeout=int(rule["timeout"].rstrip("s")))
            lines = done.stdout.splitlines()
            self.assertEqual(len(lines), 1, done)
            self.assertLessEqual(len(lines[0]), self.configuration["pluginConfig"]["max_output_length"])
            said[rule["condition"]] = done.returncode, lines[0]
        return said

    def test_each_condition_has_a_rule(self):
        self.assertEqual([one["type"] for one in self.configuration["conditions"]],
                         [one["condition"] for one in self.configuration["rules"]])

    def test_a_node_that_is_well_and_one_that_is_not(self):
        node = self.node()
        crustctl = f"{BUILD}/crustctl --root {node.root}"
        self.assertEqual(self.check(crustctl)["CrustdNotReady"][0], PROBLEM)
        node.start()
        said = self.check(crustctl)
        self.assertEqual([said[one][0] for one in ("CrustdNotReady", "CrustdVolumesStalled")], [OK, OK], said)
        errors = [one for one in json.loads(node.crustctl("-o", "json", "doctor", "--problems", check=False).stdout)
                  if one["level"] == "error"]
        self.assertEqual(said["CrustdCannotResize"][0], PROBLEM if errors else OK, said)
        for one in errors[:1]:
            self.assertIn(one["id"], said["CrustdCannotResize"][1])
        volume = self.volume(node, "pvc-7")
        self.sandbox(node, volume)
        node.wait_bound(volume.path)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked")
        code, message = self.check(crustctl)["CrustdVolumesStalled"]
        self.assertEqual((code, message), (PROBLEM, "1 stalled, first: pvc-7; crustctl explain says why"))

    def test_without_crustctl_nothing_is_known(self):
        self.assertEqual([code for code, _ in self.check("/nonexistent/crustctl").values()], [UNKNOWN] * 3)
