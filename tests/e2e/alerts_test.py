# SPDX-License-Identifier: Apache-2.0
"""The alert rules, by promtool: those of tests/alerts, one dead node of 500, and whether each rule,
metric and section of the documentation that belong together are there."""

import json
import os
import re
import shutil
import subprocess
import unittest

from node import REPOSITORY
from scratch_node import ScratchNodeTest, curl

RULES = REPOSITORY / "config/deploy/alerts/crustd-rules.yaml"
TESTS = REPOSITORY / "tests/alerts/crustd-rules-test.yaml"
FUNCTIONS = {"up", "process_start_time_seconds"}  # Prometheus' own, and any program's

try:
    import yaml
except ImportError:
    yaml = None


def promtool(*arguments):
    program = shutil.which("promtool", path=f"{REPOSITORY}/build/tools:{os.environ['PATH']}")
    if not program:
        raise unittest.SkipTest("needs the program promtool, which make deps unpacks")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


class AlertsTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        if yaml is None:
            self.skipTest("needs python3-yaml")
        self.groups = yaml.safe_load(RULES.read_text())["groups"]
        self.alerts = [rule for group in self.groups for rule in group["rules"]]

    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_rules_are_rules(self):
        self.check(promtool("check", "rules", RULES))

    def test_the_rules_do_as_they_should(self):
        self.check(promtool("test", "rules", TESTS))

    def test_each_alert_is_tested(self):
        """Without any one of them the tests fail."""
        tests = yaml.safe_load(TESTS.read_text()) | {"rule_files": ["rules.yaml"]}
        (self.scratch / "test.yaml").write_text(json.dumps(tests))
        for alert in self.alerts:
            rest = [group | {"rules": [rule for rule in group["rules"] if rule is not alert]}
                    for group in self.groups]
            (self.scratch / "rules.yaml").write_text(json.dumps({"groups": rest}))
            done = promtool("test", "rules", self.scratch / "test.yaml")
            self.assertNotEqual(done.returncode, 0, f"nothing tests {alert['alert']}")
            self.assertIn("FAILED", done.stdout + done.stderr)

    def test_one_dead_node_of_500(self):
        """Only this alert is sent; when the target is back, nothing is sent."""
        series = []
        for number in range(500):
            labels = f'job="crustd",instance="10.0.{number // 250}.{number % 250}:9825"'
            dead = number == 321
            for name, up, down in (
                    (f"up{{{labels}}}", 1, 0),
                    (f'crustd_build_info{{{labels},version="0.1.0"}}', 1, "_"),
                    (f'crustd_config_info{{{labels},resize_mode="grow",cleanup_mode="delete"}}', 1,
                     "_"),
                    (f"crustd_degraded{{{labels}}}", 0, "_"),
                    (f"crustd_oldest_pending_seconds{{{labels}}}", 0, "_")):
                values = f"{up}x9 {down}x20 {up}x30" if dead else f"{up}x60"
                series.append({"series": name, "values": values})
        labels = '{alertname="CrustdTargetDown",instance="10.0.1.71:9825"}'
        fires = "count by (alertname, instance) (ALERTS{alertstate='firing'})"
        (self.scratch / "fleet.yaml").write_text(json.dumps({
            "rule_files": [str(RULES)], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [
                {"expr": fires, "eval_time": "9m", "exp_samples": []},
                {"expr": fires, "eval_time": "25m",
                 "exp_samples": [{"labels": labels, "value": 1}]},
                {"expr": fires, "eval_time": "45m", "exp_samples": []}]}]}))
        self.check(promtool("test", "rules", self.scratch / "fleet.yaml"))

    def test_each_alert_has_a_command_and_a_runbook(self):
        text = (REPOSITORY / "docs/operations.md").read_text()
        for alert in self.alerts:
            with self.subTest(alert=alert["alert"]):
                annotations = alert["annotations"]
                self.assertIn(alert["labels"]["severity"], ("warning", "critical"))
                self.assertLessEqual({"summary", "description", "runbook"}, set(annotations))
                self.assertRegex(annotations["description"], '"crustctl [a-z]')
                self.assertNotRegex(str(annotations), r"{{ \$labels\.instance }}")
                self.assertEqual(annotations["runbook"],
                                 f"docs/operations.md#{alert['alert'].lower()}")
                self.assertIn(f"\n### {alert['alert']}\n", text)

    def test_each_metric_is_one_of_crustds(self):
        """A misspelt name would be an alert that never fires."""
        node = self.running_node({"metrics.per_volume": "on"})
        body = curl(node, "/metrics")[1].decode()
        families = set(re.findall(r"^# TYPE (\w+) ", body, re.MULTILINE)) | FUNCTIONS
        for alert in self.alerts:
            used = set(re.findall(r"\b((?:crustd|process|volume)_\w+|up)\b", alert["expr"]))
            self.assertTrue(used, alert["expr"])
            self.assertLessEqual(used, families, alert["alert"])
        names = json.loads(node.crustctl("status", "-o", "json").stdout)["sources"]
        self.assertEqual(set(re.findall(r'crustd_source_up{source="(\w+)"}', body)),
                         {source["name"] for source in names})
