"""runtime-cli: the tool that a volume's runtime has left to be asked by, and every way in which it is
of no help. crustd's own ways remain, whatever it does.
"""

import hashlib
import json
import os
import unittest

from grpc_client import SECONDS, GrpcTest
from node import VOLUMES, encode
from said import AFTER, BEFORE, status

TOOL = "/usr/bin/runtime-tool"
INITIAL = 0xEFFFFFFC  # the inode of the first pid namespace
STATS = {"usage": [{"available": 1, "total": 11, "used": 10, "unit": 1},
                   {"available": 2, "total": 22, "used": 20, "unit": 2}],
         "volume_condition": {"abnormal": True, "message": "half full"}}


def roots(pid):
    """The numbers of what is mounted on /, which no two namespaces have in common."""
    with open(f"/proc/{pid}/mountinfo") as mounts:
        return {line.split()[0] for line in mounts if line.split()[4] == "/"}


class CliTest(GrpcTest):
    """A volume that crustd can count and grow by itself, whose runtime has left a tool as well."""

    def setUp(self):
        super().setUp()
        self.crust = self.messages("crust_runtime")
        if roots("self") != roots(1) or os.stat("/proc/self/ns/pid").st_ino != INITIAL:
            self.skipTest("needs the host's own namespaces: crustd runs nothing in others")
        self.running = self.node({"resize.call_timeout_seconds": 4, "crust.runtime_cli_allow":
                                  f"{TOOL}, /usr/bin/kata-runtime, /usr/bin/crustctl"})
        self.volume_ = self.volume(self.running)
        self.monitor(self.running, self.volume_)
        agent = self.agent(self.running)
        agent.stats.total = BEFORE
        self.sandbox(self.running, self.volume_)
        (self.running.root / "usr/bin").mkdir(parents=True)
        self.running.start()
        self.running.wait_for(self.volume_.path, "in_sync")
        self.running.wait(lambda: status(self.running)["acts_in_flight"] == 0, SECONDS, "rest")
        self.client = self.stub(self.running, "crust_runtime", "Runtime")

    def tool(self, script, name=TOOL, mode=0o755, named=None, where=None):
        """Puts a program there that notes how it was called, and has the runtime name it."""
        path = self.running.path(name)
        path.write_text(f'#!/bin/sh\necho "$@" >>{self.running.root}/called\n{script}\n')
        path.chmod(mode)
        named = named if named is not None else f"{name}\n"
        file = (where or self.running.directory(self.volume_.path)) / "runtime-cli"
        file.write_text(named)
        file.chmod(0o600)

    def called(self):
        called = self.running.root / "called"
        return called.read_text().splitlines() if called.exists() else []

    def stats(self):
        request = self.crust.RuntimeGetVolumeStatsRequest(volume_target_path=self.volume_.path)
        return self.client.RuntimeGetVolumeStats(request, timeout=SECONDS)

    def expand(self, required=0, limit=0):
        request = self.crust.RuntimeExpandVolumeRequest(volume_target_path=self.volume_.path)
        request.capacity_range.required_bytes = required
        request.capacity_range.limit_bytes = limit
        return self.client.RuntimeExpandVolume(request, timeout=SECONDS).capacity_bytes

    def own_ways_work(self):
        self.assertEqual(self.stats().usage[0].total, BEFORE)
        self.assertEqual(self.expand(), BEFORE)


class Helpful(CliTest):
    def test_one_that_knows_crust(self):
        self.tool(f"case $2 in stats) echo '{json.dumps(STATS)}';; "
                  "resize) echo '{\"capacity_bytes\": 4711}';; esac")
        reply = self.stats()
        self.assertEqual([(one.unit, one.total, one.used, one.available) for one in reply.usage],
                         [(1, 11, 10, 1), (2, 22, 20, 2)])
        self.assertTrue(reply.volume_condition.abnormal)
        self.assertIn("half full", reply.volume_condition.message)
        self.assertEqual(self.expand(42), 4711)
        path = self.volume_.path
        self.assertEqual(self.called(), [f"crust stats {path}", f"crust resize {path} 42 0"])

    def test_katas_own(self):
        """It is asked for stats in its own words. Its resize does not reach the VMM: crustd's does."""
        self.tool(f"echo '{json.dumps(STATS)}'", "/usr/bin/kata-runtime")
        self.assertEqual(self.stats().usage[0].total, 11)
        self.volume_.loop.resize(AFTER)
        self.assertEqual(self.expand(AFTER), AFTER)
        self.assertEqual(self.called(),
                         [f"direct-volume stats --volume-path {self.volume_.path}"])


    def test_either_kind_of_name_in_either_root(self):
        path = self.volume_.path
        names = encode(path), hashlib.sha256(path.encode()).hexdigest()
        for root in (VOLUMES, "run/crust"):
            for name in names:
                directory = self.running.root / root / name
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.tool("echo '{\"capacity_bytes\": 4711}'", where=directory)
                with self.subTest(directory):
                    self.assertEqual(self.expand(), 4711)
                (directory / "runtime-cli").unlink()
        self.assertEqual(len(self.called()), 4)

    def test_how_the_file_may_be_written(self):
        for named in (TOOL, f"{TOOL}\r\n", f"{TOOL}\n\n", f"{TOOL} \t\n"):
            self.tool("echo '{\"capacity_bytes\": 4711}'", named=named)
            with self.subTest(named):
                self.assertEqual(self.expand(), 4711)

    def test_a_program_that_is_a_link(self):
        """Where the configuration names the link, what it leads to is judged and run."""
        self.tool("echo '{\"capacity_bytes\": 4711}'")
        tool = self.running.path(TOOL)
        real = tool.rename(tool.with_name("real"))
        tool.symlink_to("real")
        self.assertEqual(self.expand(), 4711)
        real.chmod(0o775)
        self.assertEqual(self.expand(), BEFORE)

    def test_what_crustd_would_not_do_it_has_nobody_do(self):
        self.tool("echo '{\"capacity_bytes\": 4711}'")
        with self.fails("OUT_OF_RANGE", "limit_bytes"):
            self.expand(limit=BEFORE - 1)
        self.assertEqual(self.expand(limit=BEFORE), 4711)
        for mode in ("observe", "never"):
            self.running.stop()
            self.volume_.loop.resize(AFTER)
            self.running.configure(resize__mode=mode)
            self.running.start()
            self.client = self.stub(self.running, "crust_runtime", "Runtime")
            with self.subTest(mode), self.fails("FAILED_PRECONDITION", "policy"):
                self.expand(AFTER)
        self.assertEqual(len(self.called()), 1)


class Useless(CliTest):
    def test_those_that_are_run(self):
        for script in ("exit 3", "echo \"No help topic for 'crust'\"; exit 3", "kill -9 $$",
                       "echo '{'", "echo '[]'", "echo '{\"usage\": 1, \"capacity_bytes\": -1}'",
                       "while :; do sleep 1; done", "while :; do echo 0123456789abcdef; done",
                       "true"):
            with self.subTest(script):
                self.tool(script)
                before = len(self.called())
                self.own_ways_work()
                self.assertEqual(len(self.called()), before + 2)
        self.assertIn("is of no help", self.running.log_tail())

    def test_those_that_are_not_run(self):
        elsewhere = "/usr/bin/elsewhere"
        self.tool("true", elsewhere)
        for prepare in (lambda: self.tool("true", elsewhere),
                        lambda: self.tool("true", "/usr/bin/crustctl"),
                        lambda: self.tool("true", mode=0o775), lambda: self.tool("true", mode=0o757),
                        lambda: self.tool("true", mode=0o644),
                        lambda: self.tool("true", named="runtime-tool\n"),
                        lambda: self.tool("true", named=f"{TOOL} --flag\n"),
                        lambda: self.tool("true", named=f"{TOOL}\n{TOOL}\n"),
                        lambda: self.tool("true", named=""),
                        lambda: self.tool("true", named="/" + "x" * 10000),
                        lambda: self.running.path(TOOL).unlink()):
            prepare()
            self.own_ways_work()
        self.tool("true")
        os.chown(self.running.path(TOOL), 4711, 4711)
        self.own_ways_work()
        self.tool("true")
        self.running.path("/usr/bin/link").symlink_to(TOOL)
        for named in ("/usr/bin/link", f" {TOOL}", f"\n{TOOL}", "/usr/bin/../bin/runtime-tool"):
            self.tool("true", named=named)
            self.own_ways_work()
        self.assertEqual(self.called(), [])

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
            self.own_ways_work()
        self.assertEqual(self.called(), [])

    def test_one_that_is_given_up(self):
        self.tool(f"echo $$ >{self.running.root}/pid; while :; do sleep 1; done")
        request = self.crust.RuntimeGetVolumeStatsRequest(volume_target_path=self.volume_.path)
        call = self.client.RuntimeGetVolumeStats.future(request, timeout=SECONDS)
        pid = self.running.root / "pid"
        self.running.wait(lambda: pid.exists() and pid.read_text(), SECONDS, "the tool to run")
        call.cancel()
        self.running.wait(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"), SECONDS,
                          "the tool to be killed")
        self.is_served(self.running)


if __name__ == "__main__":
    unittest.main()
