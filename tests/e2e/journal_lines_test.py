# SPDX-License-Identifier: Apache-2.0
"""log.journal = on: what a log engine gets from crustd's stdout, read, not read and cut off, and compared with the record;
and the queries of docs/reference/journal.md, run by jq."""

import fcntl
import json
import os
import re
import signal
import subprocess
import threading

from node import REPOSITORY
from programs import needs
from scratch_node import AFTER, SANDBOX, ScratchNodeTest, counted, publish_path

PAGE = REPOSITORY / "docs/reference/journal.md"
FLEET, VIEWS = REPOSITORY / "docs/fleet.md", REPOSITORY / "docs/reference/audit-views.md"
QUERY = re.compile(r"^\*\*([^*\n]+)\*\*\n\n```sh\n([^`]+)\n```", re.M)
COUNTER = "crustd_journal_lines_total"


class Reader:
    """Reads a pipe to its end, as a log engine does."""

    def __init__(self):
        self.end, self.to_write = os.pipe()
        self.data = b""
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while piece := os.read(self.end, 1 << 16):
            self.data += piece

    def finish(self):
        """When nobody has the pipe open any more."""
        self.thread.join(60)
        os.close(self.end)

    def lines(self):
        """The complete lines."""
        return [json.loads(line) for line in self.data.split(b"\n")[:-1]]


class JournalLinesTest(ScratchNodeTest):

    def start(self, node, read=True):
        """A crustd that writes into a pipe; with read, somebody reads it."""
        reader = Reader()
        with os.fdopen(reader.to_write, "wb") as stdout:
            node.start(stdout=stdout, ready=False)
        if read:
            reader.thread.start()
        node.wait_ready()
        return reader

    def on(self, **settings):
        return self.node({"log.journal": "on"} | settings)

    def rows(self, node):
        rows = node.query("SELECT * FROM audit_journal ORDER BY seq")
        for row in rows:
            row["detail"] = json.loads(row["detail"]) if row["detail"] else None
        return {row["seq"]: row for row in rows}

    def assert_recorded(self, node, lines):
        """Each line is a row of the record, in the row's own words."""
        rows = self.rows(node)
        for line in lines:
            self.assertEqual(line["log"], "journal")
            row = rows[line["seq"]]
            for name in ("at", "kind", "volume_id", "sandbox_id", "device", "detail", "pv"):
                self.assertEqual(line.get(name), row[name], line)

    def stalled_volume(self, node):
        """Its device grows, and its VMM has no monitor."""
        volume = self.volume(node, "pvc-7")
        self.sandbox(node, volume)
        node.wait_bound(volume.path)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "blocked")
        return volume

    def test_queries_for_loki_read_what_lines_have(self):
        """Loki is not run here: the members that docs/fleet.md has it read are those of the reference."""
        table = PAGE.read_text().split("<!-- members -->")[1].split("\n\nControl")[0]
        members = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
        kinds = set(re.findall(r"`(\w+)`", VIEWS.read_text()))
        queries = re.findall(r"^```logql\n(.*?)^```", FLEET.read_text(), re.M | re.S)
        self.assertGreater(len(queries), 3)
        for query in queries:
            self.assertIn('"log":"journal"', query)
            read = {path.split(".")[0] for path in re.findall(r'\b\w+="([a-z_.]+)"[,\s|]', "".join(
                re.findall(r"\| json (.*?)(?=\n? *\| )", query, re.S)) + " ")}
            self.assertTrue(read, query)
            self.assertLessEqual(read, members, query)
            self.assertLessEqual(set(re.findall(r'\| kind="(\w+)"', query)), kinds, query)

    def test_every_row_is_a_line(self):
        node = self.on()
        reader = self.start(node)
        volume = self.stalled_volume(node)
        row = node.volume(volume.path)
        self.assertEqual(node.stop(), 0)
        reader.finish()
        lines = reader.lines()
        self.assertEqual([line["seq"] for line in lines], sorted(self.rows(node)))
        self.assert_recorded(node, lines)
        last = [line for line in lines if line.get("volume_id") == row["volume_id"]][-1]
        self.assertEqual({name: last[name] for name in ("pv", "target_path", "state", "reason", "state_since", "sandbox_id")},
                         {name: row[name] for name in ("pv", "target_path", "state", "reason", "state_since", "sandbox_id")})
        self.assertIs(last["stalled"], True)
        self.assertTrue(all(line["node"] for line in lines))

    def test_off_by_default(self):
        node = self.node()
        reader = self.start(node)
        self.settle(node)
        self.assertEqual(counted(node, COUNTER), {"printed": 0, "dropped": 0})
        self.assertEqual(node.stop(), 0)
        reader.finish()
        self.assertEqual(reader.data, b"")

    def test_switched_on_and_off_again(self):
        node = self.node()
        reader = self.start(node)
        self.settle(node)
        self.switch(node, "on")
        self.settle(node)
        self.switch(node, "off")
        before = counted(node, COUNTER)
        self.settle(node)
        self.assertEqual(counted(node, COUNTER), before)
        self.assertEqual(node.stop(), 0)
        reader.finish()
        lines = reader.lines()
        self.assertEqual(len(lines), before["printed"])
        self.assertIn("volume_added", [line["kind"] for line in lines])
        self.assertNotIn("store_opened", [line["kind"] for line in lines])
        self.assert_recorded(node, lines)

    def switch(self, node, word):
        said = node.log.read_text().count("the configuration was read again")
        node.configure(log__journal=word)
        node.process.send_signal(signal.SIGHUP)
        node.wait(lambda: node.log.read_text().count("the configuration was read again") > said, 60, "the reload")

    def test_once_prints_its_summary_alone(self):
        node = self.on()
        self.assertIn("volumes", node.once())

    def test_nobody_reads(self):
        """A full pipe holds up nobody. What it does not take is dropped and counted, until it is read again."""
        node = self.on()
        reader = self.start(node, read=False)
        fcntl.fcntl(reader.end, fcntl.F_SETPIPE_SZ, 4096)
        paths = [publish_path(f"pv-{number}") for number in range(700)]
        for path in paths:
            node.stage(path, "/dev/nothing")
        node.wait(lambda: node.volume(paths[-1]), 120, "the last volume")
        for path in paths:
            node.unstage(path)
        node.wait(lambda: node.volume(paths[-1])["status"] == "removed", 120, "the last volume to go")
        self.assert_served(node)
        newest = self.turns(node)
        node.wait(lambda: sum(counted(node, COUNTER).values()) >= newest, 60, "all lines to be printed or dropped")
        self.assertGreater(counted(node, COUNTER)["dropped"], 700)
        self.assertEqual(node.log.read_text().count("because stdout does not take them: it is full"), 1)
        reader.thread.start()
        fcntl.fcntl(reader.end, fcntl.F_SETPIPE_SZ, 1 << 16)
        self.settle(node)
        node.wait(lambda: sum(counted(node, COUNTER).values()) >= self.turns(node), 60, "the reader to be served")
        results = counted(node, COUNTER)
        newest = self.turns(node)
        self.assertEqual(node.stop(), 0)
        reader.finish()
        lines = reader.lines()
        numbers = [line["seq"] for line in lines]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[-1], newest)
        self.assertEqual(newest, sum(results.values()))
        self.assertEqual(len(numbers), results["printed"])
        self.assert_recorded(node, lines)

    def test_reader_goes(self):
        node = self.on()
        reader = self.start(node, read=False)
        os.close(reader.end)
        self.settle(node)
        node.wait(lambda: counted(node, COUNTER)["dropped"], 60, "lines to be dropped")
        self.assertIn("because stdout does not take them: Broken pipe", node.log.read_text())

    def test_killed(self):
        """Whatever was printed is on record."""
        node = self.on()
        total = 0
        for number in range(8):
            reader = self.start(node)
            for volume in range(20):
                node.stage(publish_path(f"pv-{number}-{volume}"), "/dev/nothing")
            node.wait(lambda: len(reader.lines()) > 1 + 5 * number, 60, "some lines")
            node.kill()
            reader.finish()
            lines = reader.lines()
            self.assertEqual(lines[0]["kind"], "store_opened")
            self.assert_recorded(node, lines)
            total += len(lines)
        self.assertGreater(total, 8)

    def test_queries(self):
        needs("jq")
        node = self.on()
        reader = self.start(node)
        volume = self.stalled_volume(node)
        self.settle(node)
        row = node.volume(volume.path)
        self.assertEqual(node.stop(), 0)
        reader.finish()
        # Beside the log, a line that is none, and another node whose lines have a gap.
        line = next(one for one in reader.lines() if one["kind"] == "state_changed")
        others = [line | {"node": "other", "seq": 5, "stalled": False},
                  line | {"node": "other", "seq": 9, "kind": "cleanup_removed", "stalled": False,
                          "detail": {"reason": "no_sandbox"}}]
        collected = b"level=info msg=x\n" + reader.data + b"".join(json.dumps(one).encode() + b"\n" for one in others)
        got = {question: [one.split("\t") for one in subprocess.run(
            ["sh", "-c", query], input=collected, capture_output=True, check=True).stdout.decode().splitlines()]
            for question, query in QUERY.findall(PAGE.read_text())}
        self.assertEqual(got.pop("Which volumes are stalled, why, since when?"),
                         [[line["node"], "pvc-7", "", "", row["state"], row["reason"], row["state_since"]]])
        kinds = [one[2] for one in got.pop("What became of one volume?")]
        self.assertEqual(kinds[0], "volume_added")
        self.assertIn("resize_opened", kinds)
        self.assertEqual(got.pop("Which metadata was removed, and why?"), [[line["at"], "other", "pvc-7", "no_sandbox"]])
        self.assertEqual(got.pop("Which rows were not printed?"), [["other", "6", "8"]])
        self.assertEqual(got, {})
        self.assertEqual(row["sandbox_id"], SANDBOX)
