# SPDX-License-Identifier: Apache-2.0
"""Programs that are run to their end, and conditions that are waited for."""

import shutil
import subprocess
import time
import unittest

POLL_SECONDS = 0.02


class GuestError(Exception):
    """The guest, QEMU or a helper program did not do what it was asked to."""


class Closing:
    """Closed at the end of its `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise unittest.SkipTest(f"needs the program {program}")


def run(*command):
    """Runs a program to its end; returns what it printed, raises GuestError if it failed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def wait_until(condition, seconds, what, error=GuestError, pause=POLL_SECONDS):
    """Returns the first true value of condition(); raises the error after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise error(f"waited {seconds} s for {what}")
        time.sleep(pause)
