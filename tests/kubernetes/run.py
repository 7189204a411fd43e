#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - runs the scenarios on a cluster of one node; see cluster_test.py and ../module_runner.py."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parent / "node"), str(HERE.parent / "e2e")]

import module_runner  # noqa: E402

if __name__ == "__main__":
    sys.exit(module_runner.main(__file__, jobs=1, module_seconds=3600))
