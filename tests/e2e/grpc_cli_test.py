# SPDX-License-Identifier: Apache-2.0
"""runtime-cli: the tool that a volume's runtime has left to be asked by, and every way in which it is
of no help. crustd's own ways remain, whatever it does.
"""

import hashlib
import json
import os
import shutil
import subprocess

from grpc_client import SECONDS, GrpcTest, Runtime
from node import encode
from scratch_node import AFTER, BEFORE

TOOL = "/opt/kata/bin/runtime-tool"
KATA = "/opt/kata/bin/kata-runtime"
GROWN = 4 << 20  # what a tool says that it came to
STATS = {"usage": [{"available": 1, "total": 11, "used": 10, "unit": 1},
                   {"available": 2, "total": 22, "used": 20, "unit": 2}],
         "volume_condition": {"abnormal": True, "message": "half full"}}
GROWS = f"echo '{{\"capacity_bytes\": {GROWN}}}'"


class CliTest(GrpcTest):
    """A volume that crustd can count and grow by itself, whose runtime has left a tool as well."""

    def setUp(self):
        super().setUp()
        self.running = self.node({"resize.call_timeout_seconds": 4,
                                  "crust.runtime_cli_allow": f"{TOOL}, {KATA}, /usr/bin/crustctl"})
        self.volume_ = self.volume(self.running)
        _, _, agent = self.equip(self.running, self.volume_)
        self.furnish(self.running)
        self.running.start()
        self.running.wait_for(self.volume_.path, "in_sync")
        self.running.wait_rest()
        self.client = Runtime(self, self.running)

    def furnish(self, node):
        """What a shell needs to run with the node's root as its own: this machine's."""
        (node.root / "opt/kata/bin").mkdir(parents=True)
        self.mount(node, "/usr", "--bind", "/usr")
        subprocess.run(["mount", "-o", "remount,bind,ro", node.path("/usr")], check=True)
        self.mount(node, "/proc", "-t", "proc", "none")
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                node.path(name).symlink_to(os.readlink(f"/{name}"))
            elif os.path.exists(f"/{name}"):
                self.mount(node, name, "--bind", f"/{name}")

    def mount(self, node, target, *arguments):
        node.path(target).mkdir(exist_ok=True)
        subprocess.run(["mount", *arguments, node.path(target)], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", node.path(target)], check=True)

    def tool(self, script, name=TOOL, mode=0o755, named=None, where=None):
        """Puts a program there that notes how it was called, and has the runtime name it."""
        path = self.running.path(name)
        path.write_text(f'#!/bin/sh\necho "$@" >>/called\n{script}\n')
        path.chmod(mode)
        named = named if named is not None else f"{name}\n"
        file = (where or self.running.directory(self.volume_.path)) / "runtime-cli"
        file.write_text(named, errors="surrogateescape", newline="")
        file.chmod(0o600)

    def record(self):
        """What the journal has of runs: kinds and details."""
        rows = self.running.query("SELECT kind, detail FROM audit_journal WHERE kind LIKE 'runtime_cli_%' ORDER BY seq")
        return [(row["kind"].removeprefix("runtime_cli_"), json.loads(row["detail"])) for row in rows]

    def called(self):
        called = self.running.root / "called"
        return called.read_text().splitlines() if called.exists() else []

    def stats(self):
        return self.client.stats(self.volume_.path)

    def expand(self, required=0, limit=0):
        return self.client.expand(self.volume_.path, required, limit)

    def own_paths_work(self):
        self.assertEqual(self.stats().usage[0].total, BEFORE)
        self.assertEqual(self.expand(), BEFORE)


class Helpful(CliTest):
    def test_a_tool_that_knows_crust(self):
        self.tool(f"case $2 in stats) echo '{json.dumps(STATS)}';; resize) {GROWS};; esac")
        reply = self.stats()
        self.assertEqual([(one.unit, one.total, one.used, one.available) for one in reply.usage],
                         [(1, 11, 10, 1), (2, 22, 20, 2)])
        self.assertTrue(reply.volume_condition.abnormal)
        self.assertIn("half full", reply.volume_condition.message)
        self.assertEqual(self.expand(42), GROWN)
        path = self.volume_.path
        self.assertEqual(self.called(), [f"crust stats {path}", f"crust resize {path} 42 0"])

    def test_katas_own(self):
        """It is asked for stats in its own words. Its resize does not reach the VMM: crustd's does."""
        self.tool(f"echo '{json.dumps(STATS)}'", KATA)
        self.assertEqual(self.stats().usage[0].total, 11)
        self.volume_.loop.resize(AFTER)
        self.assertEqual(self.expand(AFTER), AFTER)
        self.assertEqual(self.called(), [f"direct-volume stats --volume-path {self.volume_.path}"])


    def test_how_it_runs(self):
        """As root, with the node's root as its own, nothing in its environment and no capability."""
        self.tool(f"{{ cat /proc/$$/environ; id -u; ls -d /run/crustd; pwd; "
                  f"grep -E 'Cap(Prm|Eff|Amb)|NoNew' /proc/$$/status; }} >/seen; {GROWS}")
        self.assertEqual(self.expand(), GROWN)
        none = "0" * 16
        self.assertEqual((self.running.root / "seen").read_text().split(), [
            "0", "/run/crustd", "/", "CapPrm:", none, "CapEff:", none, "CapAmb:", none,
            "NoNewPrivs:", "1"])

    def test_each_run_is_on_record(self):
        self.tool(f"case $2 in stats) echo '{json.dumps(STATS)}';; resize) {GROWS};; esac")
        self.stats()
        self.expand(42, BEFORE)
        self.tool("exit 3")
        self.own_paths_work()
        self.assertEqual(self.record(), [
            ("intended", {"command": "stats", "program": TOOL}),
            ("answered", {"command": "stats", "total_bytes": 11, "used_bytes": 10}),
            ("intended", {"command": "resize", "program": TOOL, "required_bytes": 42,
                          "limit_bytes": BEFORE}),
            ("answered", {"command": "resize", "capacity_bytes": GROWN}),
            ("intended", {"command": "stats", "program": TOOL}),
            ("answered", {"command": "stats", "error": "it ended with exit code 3"}),
            ("intended", {"command": "resize", "program": TOOL}),
            ("answered", {"command": "resize", "error": "it ended with exit code 3"})])

    def test_the_intent_is_on_record_before_it_runs(self):
        self.tool("while [ ! -e /go ]; do sleep 0.1; done; " + GROWS)
        call = self.client.expand(self.volume_.path, later=True)
        self.running.wait(self.called, SECONDS, "the tool to run")
        self.assertEqual([kind for kind, _ in self.record()], ["intended"])
        (self.running.root / "go").touch()
        self.assertEqual(call.result().capacity_bytes, GROWN)
        self.assertEqual([kind for kind, _ in self.record()], ["intended", "answered"])

    def test_a_device_that_has_just_grown(self):
        """A driver grows the device and asks at once."""
        self.tool(f"echo '{{\"capacity_bytes\": {AFTER}}}'")
        self.volume_.loop.resize(AFTER)
        self.assertEqual(self.expand(AFTER), AFTER)

    def test_a_program_that_is_a_link(self):
        """Where the configuration names the link, what it leads to is judged and run."""
        self.tool(GROWS)
        tool = self.running.path(TOOL)
        real = tool.rename(tool.with_name("real"))
        tool.symlink_to("real")
        self.assertEqual(self.expand(), GROWN)
        real.chmod(0o775)
        self.assertEqual(self.expand(), BEFORE)

    def test_where_it_is_named(self):
        """Under either kind of name, in either root, of which the later one here wins. A line may end as editors end it."""
        path, first = self.volume_.path, self.running.directory(self.volume_.path)
        names = encode(path), hashlib.sha256(path.encode()).hexdigest()
        said = f"echo '{json.dumps(STATS)}'"
        tools = ((TOOL, f"crust stats {path}"), (KATA, f"direct-volume stats --volume-path {path}"))
        directories = [root / name for root in (first.parent, self.running.root / "run/crust") for name in names]
        for number, (directory, end) in enumerate(zip(directories, ("\n", "\r\n", "\n\n", " \t\n"))):
            with self.subTest(directory):
                tool, call = tools[number % 2]
                if directory != first:
                    shutil.copytree(first, directory)
                self.tool(said, tool, named=f"{tool}{end}", where=directory)
                self.assertEqual(self.stats().usage[0].total, 11)
                self.assertEqual(self.called()[-1], call)

    def test_the_tool_is_bound_by_the_same_policy(self):
        self.tool(GROWS)
        with self.fails("OUT_OF_RANGE", "limit_bytes"):
            self.expand(limit=BEFORE - 1)
        self.assertEqual(self.expand(limit=BEFORE), GROWN)
        for mode in ("observe", "never"):
            self.running.stop()
            self.volume_.loop.resize(AFTER)
            self.running.configure(resize__mode=mode)
            self.running.start()
            self.client = Runtime(self, self.running)
            with self.subTest(mode), self.fails("FAILED_PRECONDITION", "policy"):
                self.expand(AFTER)
        self.assertEqual(len(self.called()), 1)


class Useless(CliTest):
    def test_tools_that_fail(self):
        for script in ("exit 3", "echo \"No help topic for 'crust'\"; exit 3", "kill -9 $$",
                       "echo '{'", "echo '[]'", "echo '{\"usage\": 1, \"capacity_bytes\": -1}'",
                       "while :; do sleep 1; done", "while :; do echo 0123456789abcdef; done",
                       "true"):
            with self.subTest(script):
                self.tool(script)
                before = len(self.called())
                self.own_paths_work()
                self.assertEqual(len(self.called()), before + 2)
        self.assertIn("gave no usable answer", self.running.log_tail())

    def test_tools_that_lie(self):
        """An answer that cannot be true of this device is not passed on."""
        def usage(**changes):
            return json.dumps({"usage": [STATS["usage"][0] | changes, STATS["usage"][1]]})

        more, less = BEFORE + 1, 100
        for stats, capacity, said in (
                (usage(total=more), more, f"it says {more} bytes, and the device has {BEFORE}"),
                (usage(total=0), 0, "no bytes"),
                (usage(used=12), less, "100 bytes where 101 are required"),
                (usage(available=12), less, "of 11 bytes 10 are used and 12 available")):
            with self.subTest(said):
                self.tool(f"case $2 in stats) echo '{stats}';; "
                          f"resize) echo '{{\"capacity_bytes\": {capacity}}}';; esac")
                self.assertEqual(self.stats().usage[0].total, BEFORE)
                self.assertEqual(self.expand(less + 1), BEFORE)
                self.assertIn(said, self.running.log_tail())
        answers = [detail for kind, detail in self.record() if kind == "answered"]
        self.assertEqual(len(answers), 8)
        self.assertTrue(all("error" in detail for detail in answers), answers)

    def test_tools_that_are_not_run(self):
        elsewhere = "/opt/kata/bin/elsewhere"
        self.tool("true", elsewhere)
        for prepare in (lambda: self.tool("true", elsewhere),
                        lambda: self.tool("true", named="/usr/bin/crustctl\n"),
                        lambda: self.tool("true", mode=0o775), lambda: self.tool("true", mode=0o757),
                        lambda: self.tool("true", mode=0o644),
                        lambda: self.tool("true", named="runtime-tool\n"),
                        lambda: self.tool("true", named=f"{TOOL} --flag\n"),
                        lambda: self.tool("true", named=f"{TOOL}\n{TOOL}\n"),
                        lambda: self.tool("true", named=""), lambda: self.tool("true", named="\n"),
                        lambda: self.tool("true", named="/opt/\udcff"),
                        lambda: self.tool("true", named="/" + "x" * 10000),
                        lambda: self.running.path(TOOL).unlink()):
            prepare()
            self.own_paths_work()
        self.tool("true")
        os.chown(self.running.path(TOOL), 4711, 4711)
        self.own_paths_work()
        os.chown(self.running.path(TOOL), 0, 0)
        self.tool("true")
        self.running.path("/opt/kata/bin/link").symlink_to(TOOL)
        for named in ("/opt/kata/bin/link", f" {TOOL}", f"\n{TOOL}", "/opt/kata/bin/../bin/runtime-tool"):
            self.tool("true", named=named)
            self.own_paths_work()
        self.tool("true")
        for directory in ("/", "/opt", "/opt/kata/bin"):
            self.running.path(directory).chmod(0o777)
            self.own_paths_work()
            self.assertIn("others than root can write it, and", self.running.log_tail())
            self.running.path(directory).chmod(0o755)
        self.assertEqual(self.called(), [])
        self.assertEqual(self.record(), [])
        self.assertIn("runtime-cli was not run", self.running.log_tail())
        self.assertNotIn("no usable answer", self.running.log.read_text())

    def test_files_that_others_may_have_written(self):
        self.tool("true")
        file = self.running.directory(self.volume_.path) / "runtime-cli"
        keep = self.running.root / "keep"
        for spoil in (lambda: file.chmod(0o620), lambda: file.chmod(0o602),
                      lambda: (file.chmod(0o600), os.chown(file, 4711, 4711)),
                      lambda: (os.chown(file, 0, 0), os.link(file, keep)),
                      lambda: (file.unlink(), file.symlink_to(keep)),
                      lambda: (file.unlink(), os.mkfifo(file)),
                      lambda: (file.unlink(), file.mkdir())):
            spoil()
            self.own_paths_work()
        self.assertEqual(self.called(), [])

    def test_a_volume_of_which_nobody_knows_the_device(self):
        self.tool(f"case $2 in stats) echo '{json.dumps(STATS)}';; resize) {GROWS};; esac")
        other = self.loop()
        self.running.add_device(other.device)
        self.running.stage(self.volume_.path, other.device, layout="crust")
        self.running.wait_for(self.volume_.path, "blocked", "entries_disagree")
        with self.fails("UNAVAILABLE", "entries_disagree"):
            self.expand()
        self.assertEqual(self.stats().usage[0].total, BEFORE)
        self.assertEqual(self.called(), [])

    def test_a_tool_that_is_given_up(self):
        self.tool("echo $$ >/pid; while :; do sleep 1; done")
        call = self.client.stats(self.volume_.path, later=True)
        pid = self.running.root / "pid"
        self.running.wait(lambda: pid.exists() and pid.read_text(), SECONDS, "the tool to run")
        call.cancel()
        self.running.wait(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"), SECONDS,
                          "the tool to be killed")
        self.running.wait(lambda: len(self.record()) == 2, SECONDS, "its end to be on record")
        self.assertIn("nobody waited", self.record()[1][1]["error"])
        self.is_served(self.running)
