#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""parts.py - makes what nodes and the cluster are made of, which takes minutes and is kept.

A test makes what is missing itself. This is for beginning earlier, beside what leaves a processor idle.
"""

import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent), str(HERE.parent / "node"), str(HERE.parent / "e2e")]

import cluster_disk  # noqa: E402
import container_base  # noqa: E402
import container_image  # noqa: E402
import csi_driver  # noqa: E402
from image import ImageError, get_image  # noqa: E402


def crustd_layer():
    return container_image.debian_layer(container_image.packages(container_image.last_stage()))


def main():
    """What cannot be had is said by the tests that need it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends, too
    for make in (get_image, container_base.get_base, cluster_disk.disk, crustd_layer, csi_driver.program):
        try:
            make()
        except (AssertionError, ImageError, OSError, unittest.SkipTest) as error:
            print(f"{make.__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
