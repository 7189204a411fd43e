# SPDX-License-Identifier: Apache-2.0
"""Calls that wait together for the disk share one flush, and are each kept as if alone."""

import contextlib
import os
import re
import signal

from grpc_client import SECONDS, GrpcTest, Runtime, has_ended, socket_of
from http2_client import SETTINGS, Http2, message
from lost import Attached, LostTest, Point, points, sweep, wait
from node import VOLUMES
from scratch_node import publish_path

SERVICE = "/crust.v1.Runtime/"
WORKSHOP = "run/kata-containers/shared/.crust-stage"
OK, UNAVAILABLE = "0", "14"
TOGETHER = 16


class TogetherTest(GrpcTest, LostTest):
    def setUp(self):
        super().setUp()
        self.need_strace()
        self.host = self.running_node({"resize.sweep_seconds": 3600})
        self.runtime = Runtime(self, self.host)

    def stage(self, path, fs_type="ext4"):
        request = self.runtime.stage_request(path, "/dev/some-device", fs_type)
        return SERVICE + "RuntimeStageVolume", message(request.SerializeToString())

    def unstage(self, path):
        request = self.runtime.messages.RuntimeUnstageVolumeRequest(volume_target_path=path)
        return SERVICE + "RuntimeUnstageVolume", message(request.SerializeToString())

    @contextlib.contextmanager
    def sent(self, calls, options=(), output="/dev/null"):
        """Clients, each of which has sent one of the calls, when crustd begins to read them; inside,
        it is traced."""
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Http2(socket_of(self.host))) for _ in calls]
            for client in clients:
                client.begin()
                client.wait_for(SETTINGS)
            stack.enter_context(Attached(self.host.process.pid, list(options), output))
            self.host.process.send_signal(signal.SIGSTOP)
            wait(self.has_stopped, "crustd to be stopped")
            for client, call in zip(clients, calls):
                client.request(1, *call)
            self.host.process.send_signal(signal.SIGCONT)
            yield clients

    def has_stopped(self):
        """Or ended: what it still had to do may reach the point at which it is killed."""
        status = open(f"/proc/{self.host.process.pid}/status").read()
        return re.search("^State:\t[TtZX]", status, re.MULTILINE)

    def answers(self, calls, options=(), output="/dev/null"):
        """The status of each; None: no reply."""
        with self.sent(calls, options, output) as clients:
            return [client.answer(1)[0].get("grpc-status") for client in clients]

    def journal(self, kind):
        return [row["target_path"] for row in self.host.query(
            "SELECT v.target_path FROM audit_journal j JOIN audit_volumes v USING (volume_id)"
            f" WHERE j.kind = '{kind}' ORDER BY seq")]

    def found(self):
        return {name for name in os.listdir(self.host.root / VOLUMES)}

    def expected(self, paths):
        return {self.host.directory(path).name for path in paths}


class Together(TogetherTest):
    def flushes(self, calls):
        """What crustd syncs for them: (the database's log, anything else)."""
        output = self.scratch / "syncs"
        self.assertEqual(self.answers(calls, ["-e", "trace=fsync,fdatasync"], output), [OK] * len(calls))
        syncs = [point.syscall for point in points(output)]
        return syncs.count("fdatasync"), syncs.count("fsync")

    def test_one_flush_for_all(self):
        paths = [publish_path(f"pv-{number}") for number in range(TOGETHER)]
        calls = [self.stage(path) for path in paths]
        # Of each its file and its directory; of all the root that these are in.
        self.assertEqual(self.flushes(calls), (1, 2 * TOGETHER + 1))
        self.assertEqual(self.found(), self.expected(paths))
        self.assertEqual(sorted(self.journal("volume_staged")), sorted(paths))
        # What is there already, and is on the record, changes nothing there. Its file and its directory are
        # synced all the same: whoever wrote them may not have.
        for path in paths:
            self.host.wait_for(path, "unbound")
        self.assertEqual(self.answers(calls), [OK] * TOGETHER)
        self.assertEqual(self.flushes(calls), (0, 2 * TOGETHER + 1))
        self.assertEqual(self.flushes([self.unstage(path) for path in paths]), (1, 1))
        self.assertEqual(self.found(), set())
        self.assertEqual(sorted(self.journal("volume_unstaged")), sorted(paths))
        self.assertEqual(os.listdir(self.host.root / WORKSHOP), [])

    def test_more_than_one_turn_takes(self):
        paths = [publish_path(f"pv-{number}") for number in range(100)]
        calls = [self.stage(path) for path in paths]
        with self.sent(calls[:50]) as some:
            for number, client in enumerate(some):  # and another one on each connection
                client.request(3, *calls[50 + number])
            for client in some:
                answers = [said["grpc-status"] for said, _ in client.answers([1, 3])]
                self.assertEqual(answers, [OK, OK])
        self.assertEqual(self.found(), self.expected(paths))
        self.assertEqual(sorted(self.journal("volume_staged")), sorted(paths))

    def test_both_at_once(self):
        path = publish_path("pv-both")
        answers = self.answers([self.stage(path), self.unstage(path)])
        self.assertEqual(sorted(answers), [OK, UNAVAILABLE])
        is_staged = answers[0] == OK
        self.assertEqual(self.found(), self.expected([path] if is_staged else []))
        self.assertEqual(self.answers([self.unstage(path)]), [OK])
        self.assertEqual(self.found(), set())

    def test_a_client_that_does_not_wait(self):
        path = publish_path("pv-alone")
        with self.sent([self.stage(path)]) as clients:
            clients[0].close()
        self.host.wait(lambda: self.journal("volume_staged") == [path], SECONDS, "the record")
        self.assertEqual(self.host.volume(path)["status"], "present")
        self.is_served(self.host)

    def are_taken(self, calls):
        """crustd has executed itself anew, and the file is good: nobody answers in between."""
        self.host.crustctl("resync", check=False)
        with contextlib.suppress(OSError):
            return self.answers(calls) == [OK] * len(calls)

    def test_a_disk_that_fails(self):
        paths = [publish_path(f"pv-{number}") for number in range(3)]
        calls = [self.stage(path) for path in paths]
        syncs = 2 * len(paths) + 1
        for point, error in ((Point("fdatasync", 1), "EIO"), (Point("fsync", syncs), "EIO"),
                             (Point("pwrite64", 1), "ENOSPC")):
            with self.subTest(str(point)):
                self.assertEqual(self.answers(calls, point.inject(f"error={error}")), [UNAVAILABLE] * len(calls))
                self.host.wait(lambda: self.are_taken(calls), SECONDS, "a database that takes it")
                self.assertEqual(self.found(), self.expected(paths))
                unstages = [self.unstage(path) for path in paths]
                self.assertEqual(self.answers(unstages), [OK] * len(calls))


class KilledTogether(TogetherTest):
    """Killed before any syscall while several wait, crustd keeps what it has answered."""

    def check(self, paths, answers, is_there):
        """Whether it was killed."""
        found = self.found()
        self.assertLessEqual(found, self.expected(paths))
        for path, answer in zip(paths, answers):
            self.assertIn(answer, (OK, None))
            if answer == OK:
                self.assertEqual(self.host.directory(path).name in found, is_there)
        ended = has_ended(self.host)
        if ended:
            self.host.start()
        for path, answer in zip(paths, answers):
            if answer == OK:
                self.assertEqual(self.host.volume(path)["status"], "present" if is_there else "removed")
        return ended

    def sweep(self, title, paths, before, act, is_there):
        self.assertEqual(self.answers([before(path) for path in paths]), [OK] * len(paths))
        output = self.scratch / "trace"
        calls = [act(path) for path in paths]
        self.assertEqual(self.answers(calls, ["-e", "trace=all"], output), [OK] * len(paths))
        found = points(output)

        def kill(_, point):
            self.assertEqual(self.answers([before(path) for path in paths]), [OK] * len(paths))
            answers = self.answers(calls, point.inject("signal=SIGKILL"))
            killed = self.check(paths, answers, is_there)
            self.assertEqual(self.answers(calls), [OK] * len(paths))
            self.check(paths, [OK] * len(paths), is_there)
            self.assertEqual(os.listdir(self.host.root / WORKSHOP), [])
            return "killed" if killed else "not reached"

        ends = self.at_each(title, sweep(found), kill)
        self.assertGreater(ends.count("killed"), len(ends) // 2)

    def test_stage(self):
        self.sweep("killed while staging three", [publish_path(f"pv-{n}") for n in range(3)],
                   self.unstage, self.stage, True)

    def test_unstage(self):
        self.sweep("killed while unstaging three", [publish_path(f"pv-{n}") for n in range(3)],
                   self.stage, self.unstage, False)
