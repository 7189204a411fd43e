#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [-j N] [PATTERN...] - runs the integration tests, N modules at a time (default 2).

PATTERN selects the modules tests/e2e/*_test.py whose names contain it. See module_runner.py.
"""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import module_runner  # noqa: E402

# A whole sweep may take an hour.
MODULE_SECONDS = None if os.environ.get("CRUST_SWEEP") == "all" else 1800

if __name__ == "__main__":
    sys.exit(module_runner.main(__file__, jobs=2, module_seconds=MODULE_SECONDS))
