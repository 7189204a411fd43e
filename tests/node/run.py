#!/usr/bin/env python3
"""run.py [-j N] [PATTERN...] - runs the tests on a whole node, N modules at a time (default 1).

PATTERN selects the modules tests/node/*_test.py whose names contain it. See module_runner.py. The
node's image is built first, if it is not there (image.py).
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parent / "e2e")]

import module_runner  # noqa: E402

# A node has two processors, all emulated where there is no KVM.
JOBS = 1
MODULE_SECONDS = 1800

if __name__ == "__main__":
    sys.exit(module_runner.main(__file__, jobs=JOBS, module_seconds=MODULE_SECONDS))
