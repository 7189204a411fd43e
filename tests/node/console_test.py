# SPDX-License-Identifier: Apache-2.0
"""What happens to a test whose node fails. No node is booted; machine_test.py has one."""

import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import module_runner
from console import Console
from heartbeat import Heartbeat

SECONDS = 60
FAILURES = (
    "[  137.482913] BUG: scheduling while atomic: qemu-system-x86/1423/0x00000002",
    "[   51.024816] Kernel panic - not syncing: Fatal exception in interrupt",
    "[   48.612032] Oops: 0000 [#1] PREEMPT SMP NOPTI",
    "[   48.612032] BUG: unable to handle page fault for address: ffffc90000d1fe58",
    "[   48.612032] kernel BUG at mm/slub.c:419!",
    "[   48.612032] general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
)
DELAYS = (
    "[  308.012345] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [qemu-system-x86:1423]",
    "[  308.012345] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "[  308.012345] rcu: INFO: rcu_sched self-detected stall on CPU",
    "[  308.012345] INFO: task jbd2/vda-8:211 blocked for more than 120 seconds.",
)
HARMLESS = "[    1.200000] Booting paravirtualized kernel, and no BUG: of it\n"


class ConsoleTest(unittest.TestCase):
    def watch(self, is_alive):
        """Returns the console's file, and a function that waits for what fail() was told."""
        directory = self.enterContext(tempfile.TemporaryDirectory())
        path, told, failed = pathlib.Path(directory, "console.log"), [], threading.Event()
        path.write_text(f"{FAILURES[0]} of an earlier boot\n")

        def fail(line):
            told.append(line)
            failed.set()

        console = Console(path, is_alive, fail)
        self.addCleanup(console.close)
        return path, lambda: failed.wait(SECONDS) and told[0]

    @staticmethod
    def write(path, text):
        with open(path, "a") as file:
            file.write(text)

    def test_failure(self):
        for line in FAILURES:
            with self.subTest(line):
                path, wait = self.watch(lambda: self.fail("nobody has to be asked"))
                self.write(path, HARMLESS + line[:20])
                self.write(path, f"{line[20:]}\n")
                self.assertEqual(wait(), line)

    def test_delay_of_a_node_that_does_not_answer(self):
        for line in DELAYS:
            with self.subTest(line):
                path, wait = self.watch(lambda: False)
                self.write(path, f"{HARMLESS}{line}\n")
                self.assertEqual(wait(), line)

    def test_delay_of_a_node_that_answers(self):
        """The callback is asked each time, so a later failure still counts."""
        asked = threading.Semaphore(0)

        def is_alive():
            asked.release()
            return True

        path, wait = self.watch(is_alive)
        for line in DELAYS:
            self.write(path, f"{line}\n")
            self.assertTrue(asked.acquire(timeout=SECONDS), line)
        self.write(path, f"{FAILURES[0]}\n")
        self.assertEqual(wait(), FAILURES[0])


class HeartbeatTest(unittest.TestCase):
    def test_a_node_that_stops_answering(self):
        answers, told, failed = iter([True, True, False]), [], threading.Event()

        def fail(reason):
            told.append(reason)
            failed.set()

        heartbeat = Heartbeat(lambda: next(answers), fail, 0)
        self.assertTrue(failed.wait(SECONDS))
        heartbeat.thread.join(SECONDS)
        self.assertEqual(len(told), 1)
        self.assertIn("does not answer", told[0])

    def test_a_node_that_is_gone_by_then(self):
        """A caller may close it without waiting for the answer."""
        asked, closed, told = threading.Event(), threading.Event(), []

        def is_alive():
            asked.set()
            return not closed.wait(SECONDS)

        heartbeat = Heartbeat(is_alive, told.append, 0)
        self.assertTrue(asked.wait(SECONDS))
        heartbeat.close()
        closed.set()
        heartbeat.thread.join(SECONDS)
        self.assertEqual(told, [])


class AnotherTryTest(unittest.TestCase):
    """Of modules that fail, for module_runner.py."""

    def run_module(self, body):
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (directory / "run.py").write_text(textwrap.dedent(f"""
            import sys
            sys.path.insert(1, {str(pathlib.Path(module_runner.__file__).parent)!r})
            import module_runner
            sys.exit(module_runner.main(__file__, jobs=1, module_seconds={SECONDS}))
        """))
        (directory / "one_test.py").write_text(textwrap.dedent("""
            import pathlib, unittest
            import module_runner
            tried = pathlib.Path(__file__).with_name("tried")
            class OneTest(unittest.TestCase):
                def test_before(self):
                    with open(tried.with_name("before"), "a") as file:
                        file.write("x")
                def test_it(self):
                    tries = tried.stat().st_size if tried.exists() else 0
                    tried.write_bytes(bytes(tries + 1))
        """) + textwrap.indent(textwrap.dedent(body), " " * 8))
        done = subprocess.run([sys.executable, directory / "run.py"], capture_output=True, text=True,
                              timeout=3 * SECONDS)
        self.assertEqual((directory / "before").stat().st_size, 1)  # it has passed: once is enough
        return done.returncode, done.stdout, (directory / "tried").stat().st_size

    def test_second_try_succeeds(self):
        status, output, tries = self.run_module("""
            if tries == 0:
                module_runner.ask_for_another_try("the first one")
                self.fail()
        """)
        self.assertEqual((status, tries), (0, 2))
        self.assertTrue(output.endswith("2 passed, 0 failed, 0 skipped\n"), output)
        self.assertIn("to be tried again: the first one", output)

    def test_there_is_no_third_try(self):
        status, output, tries = self.run_module("""
            module_runner.ask_for_another_try("each one")
            self.fail()
        """)
        self.assertEqual((status, tries), (1, 2))
        self.assertTrue(output.endswith("1 passed, 1 failed, 0 skipped\n"), output)

    def test_failure_is_a_failure(self):
        self.assertEqual(self.run_module("self.fail()")[::2], (1, 1))

    def test_success_is_a_success(self):
        """Whatever was said on the way."""
        self.assertEqual(self.run_module('module_runner.ask_for_another_try("")')[::2], (0, 1))
