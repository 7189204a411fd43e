#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - weeks of a node at an accelerated pace (root); `sudo make soak` runs it.

SOAK_MINUTES (10, one simulated week) says for how long, about; soak.py says what a week is. Prints a
line of JSON per batch and one in the end; the exit status is 1 if anything that crustd holds has
grown.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from soak import BATCHES_PER_WEEK, Soak  # noqa: E402

MINUTES_PER_WEEK = 10
FEWEST_BATCHES = 14  # less cannot be judged


def interrupt(*_):
    raise KeyboardInterrupt


def say(value):
    print(json.dumps(value), flush=True)


def main():
    signal.signal(signal.SIGTERM, interrupt)  # loop devices, mounts and processes end with us
    if os.geteuid() != 0:
        print("skipped, needs root (loop devices, mounts)", file=sys.stderr)
        return 0
    minutes = float(os.environ.get("SOAK_MINUTES") or MINUTES_PER_WEEK)
    batches = max(FEWEST_BATCHES, round(minutes / MINUTES_PER_WEEK * BATCHES_PER_WEEK))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crust-soak-") as scratch, Soak(scratch) as soak:
        soak.begin()
        soak.live(batches, say)
        faults = soak.find_faults()
        say({"weeks": round(batches / BATCHES_PER_WEEK, 2),
             "minutes": round((time.monotonic() - began) / 60, 1)} | soak.counts
            | {"grew": dict(faults)})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
