#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - measures, and prints a line of JSON per figure; `sudo make bench` runs it.

    run.py [FIGURE]...        only figures whose names contain one of these; see docs/measurements.md

figure, unit      what was measured, and in what
p50, p99          of one run; the medians over the runs. One value per run: p50 is their median
max               the largest sample of all runs: what p99 does not show
reference         what it is compared with, measured in the same run
reference_value   its p50
ratio             p50 over reference_value
aim, aim_on       an upper bound, and what it bounds: p99, p50 or ratio
met               whether it holds; null without an aim
n                 samples over all runs
"""

import json
import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from crowd import BUILD, median, percentile  # noqa: E402
import figures  # noqa: E402


def rounded(value):
    return value if value is None or isinstance(value, int) else float(f"{value:.4g}")


def summarise(result):
    """A line from a figures.Result, whose runs are lists of samples."""
    p50 = median([median(run) for run in result.runs])
    p99 = median([percentile(run, 99) for run in result.runs]) if len(result.runs[0]) > 1 else None
    reference = median([median(run) for run in result.reference_runs]) \
        if result.reference_runs else None
    ratio = p50 / reference if reference else None
    bounded = {"p50": p50, "p99": p99, "ratio": ratio}.get(result.aim_on)
    return {"figure": result.figure, "unit": result.unit, "p50": rounded(p50), "p99": rounded(p99),
            "max": rounded(max(map(max, result.runs))), "reference": result.reference, "reference_value": rounded(reference),
            "ratio": rounded(ratio), "aim": result.aim, "aim_on": result.aim_on,
            "met": None if result.aim is None else bounded <= result.aim,
            "n": sum(map(len, result.runs))}


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, interrupt)  # loop devices, mounts and processes end with us
    wanted = sys.argv[1:]
    if os.geteuid() != 0:
        print("skipped, needs root (loop devices, mounts): " + ", ".join(figures.ALL),
              file=sys.stderr)
        return 0
    if not (BUILD / "crustd").exists():
        print(f"there is no crustd in {BUILD}: make bench", file=sys.stderr)
        return 2
    for name, measure in figures.ALL.items():
        if wanted and not any(word in name for word in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="crust-bench-") as scratch:
            for result in measure(pathlib.Path(scratch)):
                print(json.dumps(summarise(result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
