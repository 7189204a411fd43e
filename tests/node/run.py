#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [-j N] [PATTERN...] - runs the tests on a whole node, N modules at a time (default: as many nodes as
this machine has processors and memory for).

PATTERN selects the modules tests/node/*_test.py whose names contain it. See module_runner.py. The
node's image is built first, if it is not there (image.py). With CRUST_SCENARIOS, the scenarios on a cluster
(../kubernetes) are run among them.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parent / "e2e")]

import module_runner  # noqa: E402
from machine import processors  # noqa: E402

NODE_BYTES = 5 << 30  # of the largest node, and the tests beside it
JOBS = max(1, min(os.cpu_count() // processors(),
                  os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // NODE_BYTES))
# Each round of power_loss_test.py boots the node.
MODULE_SECONDS = 2400 + 180 * int(os.environ.get("CRUST_ROUNDS") or 0)
BESIDE = [HERE.parent / "kubernetes/run.py"] if os.environ.get("CRUST_SCENARIOS") else []

if __name__ == "__main__":
    sys.exit(module_runner.main(__file__, jobs=JOBS, module_seconds=MODULE_SECONDS, beside=BESIDE))
