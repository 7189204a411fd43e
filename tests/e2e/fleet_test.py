# SPDX-License-Identifier: Apache-2.0
"""The queries of docs/fleet.md, each run by a real Prometheus that scrapes 50 simulated nodes. What the nodes say is
the text of a real crustd's /metrics, with the values of the few that differ."""

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.parse
import urllib.request

from node import REPOSITORY
from programs import wait_until
from scratch_node import ScratchNodeTest, curl

PAGE = REPOSITORY / "docs/fleet.md"
DASHBOARDS = REPOSITORY / "config/dashboards"
NOTHING_YET = {"Condition, as the guests report it", "Resizes an hour, by result", "Cleanup decisions an hour",
               "How long a resize takes, 99 of 100", "Stale metadata, by the reason for which it is kept",
               "Calls of drivers and operators, 99 of 100", "Commits of the database, 99 of 100",
               "Events a second, by watcher", "Events that were lost, an hour", "Processor time"}
NODES = 50
DEAD = 49
QUERY = re.compile(r"^\*\*([^*\n]+)\*\*\n\n```promql\n([^`]+)\n```", re.M)
FULL = '{pv="pv-1",namespace="shop",persistentvolumeclaim="full",pod="db-0"}'
HALF = '{pv="pv-2",namespace="shop",persistentvolumeclaim="half",pod=""}'
# What the first nodes have more than the others, as lines of their /metrics.
DIFFERENCES = {
    0: {'crustd_volumes_stalled{state="blocked",reason="monitor_missing"}': 2, "crustd_oldest_pending_seconds": 7200},
    1: {'crustd_volumes_stalled{state="blocked",reason="monitor_missing"}': 1,
        'crustd_volumes_stalled{state="block_grown",reason="agent_unreachable"}': 1, "crustd_oldest_pending_seconds": 60},
    6: {'crustd_doctor_findings{check="kata_configuration",level="error"}': 2},
    2: {'crustd_volumes_not_resizable{reason="monitor_missing"}': 3},
    3: {'crustd_volumes{layout="kata",state="blocked",reason="bypassed"}': 1,
        'crustd_volumes{layout="kata",state="shrunk",reason="none"}': 2},
    4: {'crustd_config_info{resize_mode="observe",cleanup_mode="delete"}': 1},
    5: {'crustd_build_info{version="9.9.9"}': 1, "crustd_degraded": 1},
    7: {"crustd_volume_used_bytes" + FULL: 95, "crustd_volume_available_bytes" + FULL: 5,
        "crustd_volume_used_bytes" + HALF: 50, "crustd_volume_available_bytes" + HALF: 50},
    # As if kube-state-metrics ran there.
    8: {f'kube_persistentvolumeclaim_info{{namespace="shop",persistentvolumeclaim="{claim}",storageclass="fast",volumename="{pv}"}}': 1
        for pv, claim in (("pv-1", "full"), ("pv-2", "half"))}}
IN_SYNC = 'crustd_volumes{layout="kata",state="in_sync",reason="none"}'
# By question: the labels that the answer has besides the metric's own, and its value.
EXPECTED = {
    "Which nodes cannot resize volumes, or not all of them, and why?": {("node-6", "kata_configuration"): 2},
    "Which nodes have resizes that stand still, and why?": {
        ("node-0", "monitor_missing"): 2, ("node-1", "monitor_missing"): 1, ("node-1", "agent_unreachable"): 1},
    "What stands in the way of most resizes?": {("monitor_missing",): 3, ("agent_unreachable",): 1},
    "Since when has the oldest unfinished resize of a node waited, in seconds?": {("node-0",): 7200, ("node-1",): 60},
    "Which volumes in use would a resize not reach, by the first obstacle?": {("monitor_missing",): 3},
    "What share of the volumes is as it should be?": {(): 49 * 4 / (49 * 4 + 3)},
    "On which nodes is data at risk?": {("node-3", "bypassed"): 1, ("node-3", "none"): 2},
    "Which nodes are not reached?": {(f"node-{DEAD}",): 0},
    "Which versions run, on how many nodes?": {("9.9.9",): 1, ("VERSION",): 48},
    "Which nodes only observe?": {("node-4",): 1},
    "Which nodes work with less than they need?": {("node-5",): 1},
    "Which claims are nearly full, as their guests say, and of which storage class?": {("node-7", "full", "fast"): 0.95}}
LABELS = ("instance", "check", "reason", "version", "persistentvolumeclaim", "storageclass")
ABOUT_CONFIGURATION = {"Which nodes only observe?"}


class Nodes(http.server.BaseHTTPRequestHandler):
    """/NUMBER/metrics"""
    text = ""

    def do_GET(self):
        number = int(self.path.split("/")[1])
        values = {"crustd_degraded": 0, "crustd_oldest_pending_seconds": 0, IN_SYNC: 4} | DIFFERENCES.get(number, {})
        # Of these a node has one line, whatever its labels.
        replaced = {"crustd_config_info", "crustd_build_info"} & {name.split("{")[0] for name in values}
        lines = [line for line in self.text.splitlines()
                 if line.rpartition(" ")[0] not in values and line.split("{")[0] not in replaced
                 and not line.startswith("crustd_doctor_findings")]
        body = "\n".join(lines + [f"{name} {value}" for name, value in values.items()]).encode() + b"\n"
        self.send_response(500 if number == DEAD else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # Prometheus has ended
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class FleetTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        self.program = shutil.which("prometheus", path=f"{REPOSITORY}/build/tools:{os.environ['PATH']}")
        if not self.program:
            self.skipTest("needs the program prometheus, which make deps unpacks")
        node = self.running_node({"metrics.per_volume": "on"})
        body = curl(node, "/metrics")[1].decode()
        self.version = re.search(r'crustd_build_info\{version="([^"]+)"', body)[1]
        self.families = set(re.findall(r"^# TYPE (\w+) ", body, re.M))
        # Without comments: Prometheus wants the lines of one metric together where they have types.
        Nodes.text = "\n".join(line for line in body.splitlines() if not line.startswith("#"))

    def start(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nodes)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        jobs = [{"targets": [f"127.0.0.1:{server.server_port}"],
                 "labels": {"__metrics_path__": f"/{number}/metrics", "instance": f"node-{number}"}}
                for number in range(NODES)]
        configuration = self.scratch / "prometheus.yml"
        configuration.write_text(json.dumps({"scrape_configs": [
            {"job_name": "crustd", "scrape_interval": "10s", "scrape_timeout": "10s", "static_configs": jobs}]}))
        self.address = f"127.0.0.1:{free_port()}"
        process = subprocess.Popen(
            [self.program, f"--config.file={configuration}", f"--storage.tsdb.path={self.scratch}/data",
             f"--web.listen-address={self.address}"], stdout=subprocess.DEVNULL,
            stderr=(self.scratch / "prometheus.log").open("w"))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(self.is_scraped, 120, "all nodes to be scraped")

    def is_scraped(self):
        try:
            return len(self.ask("up")) == NODES and len(self.ask("up == 1")) == NODES - 1
        except OSError:
            return False

    def ask(self, query):
        address = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def test_each_query_is_answered_rightly(self):
        queries = dict(QUERY.findall(PAGE.read_text()))
        self.assertEqual(set(queries), set(EXPECTED))
        self.start()
        for question, query in queries.items():
            with self.subTest(question):
                got = {}
                for one in self.ask(query):
                    names = ("instance",) if question in ABOUT_CONFIGURATION else LABELS
                    key = tuple(one["metric"][name] for name in names if name in one["metric"])
                    got[key] = float(one["value"][1])
                wanted = {tuple(self.version if word == "VERSION" else word for word in key): value
                          for key, value in EXPECTED[question].items()}
                self.assertEqual(set(got), set(wanted))
                for key, value in wanted.items():
                    self.assertAlmostEqual(got[key], value)

    def panels(self):
        """Title and expression of each, for the node that has the most to show."""
        for path in sorted(DASHBOARDS.glob("*.json")):
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"].replace("$__rate_interval", "5m").replace("$instance", "node-0")
                    yield f"{path.name}: {panel['title']}", expression

    def test_each_panel_is_answered(self):
        self.start()
        silent = set()
        for title, expression in self.panels():
            with self.subTest(title):
                if not self.ask(expression):  # a query that is wrong is an error of Prometheus'
                    silent.add(title.partition(": ")[2])
        # Nothing of this has happened on the nodes yet.
        self.assertLessEqual(silent, NOTHING_YET)

    def test_panels_show_what_exists(self):
        for title, expression in self.panels():
            used = set(re.findall(r"\b((?:crustd|process)_\w+)\b", expression))
            self.assertTrue(used, title)
            self.assertLessEqual({re.sub("_bucket$", "", name) for name in used}, self.families, title)

    def test_metrics_exist(self):
        """A misspelt name would be a query that never answers."""
        for question, query in QUERY.findall(PAGE.read_text()):
            used = set(re.findall(r"\b(crustd_\w+)\b", query))
            self.assertLessEqual(used - {"crustd"}, self.families, question)
