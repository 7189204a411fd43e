#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [-j N] [--part core|long] [PATTERN...] - runs the integration tests, N modules at a time (default:
one more than there are processors, because they wait a lot).

PATTERN selects the modules tests/e2e/*_test.py whose names contain it. See module_runner.py. The long part is
what `make check` leaves to `make check-long`.
"""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import module_runner  # noqa: E402

# A whole sweep may take an hour.
MODULE_SECONDS = None if os.environ.get("CRUST_SWEEP") == "all" else 2700

# A minute or more each, or programs that are compiled first. Those of many minutes begin first.
LONG = [f"{name}_test" for name in """
    huge_file_systems lost_kill lost_error csi_driver lost_cleanup
    alerts cleanup cleanup_drain crust_sim csi_sanity drives_stock fleet grpc_hostile guest_agent_delivery helm
    kata_agent kata_resize lower_devices_guest nri_block_mount packages resize_guest resize_restart rollback
    rust_several scale soak vmm
    """.split()]

if __name__ == "__main__":
    sys.exit(module_runner.main(__file__, jobs=os.cpu_count() + 1, module_seconds=MODULE_SECONDS, long=LONG))
