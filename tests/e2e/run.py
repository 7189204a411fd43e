#!/usr/bin/env python3
"""run.py [-j N] [PATTERN...] - runs the integration tests, N modules at a time (default 2).

Each tests/e2e/*_test.py is a process of its own, so that a hung or crashed one costs only itself. The
last line is "N passed, N failed, N skipped"; the exit status is 1 if any failed. A skipped test says
why.
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MODULE_SECONDS = 1800


def run_module(module):
    started = time.monotonic()
    command = [sys.executable, "-m", "unittest", "-v", module.stem]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True,
                              timeout=MODULE_SECONDS)
        output, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = f"{error.stdout}\n{error.stderr}\nran out of time", 1
    return module, output, status, time.monotonic() - started


def counts(output, status):
    """passed, failed, skipped of unittest's own closing lines."""
    ran = re.search(r"^Ran (\d+) tests? in", output, re.M)
    if not ran:
        return 0, 1, 0
    numbers = {word: sum(int(n) for n in re.findall(rf"\b{word}=(\d+)", output.splitlines()[-1]))
               for word in ("failures", "errors", "skipped")}
    failed = numbers["failures"] + numbers["errors"]
    if status != 0 and failed == 0:
        failed = 1
    return int(ran[1]) - failed - numbers["skipped"], failed, numbers["skipped"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    modules = sorted(HERE.glob("*_test.py"))
    if arguments.patterns:
        modules = [m for m in modules if any(p in m.stem for p in arguments.patterns)]
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        for module, output, status, seconds in pool.map(run_module, modules):
            print(f"== {module.name} ({seconds:.0f} s)\n{output}", flush=True)
            total = [a + b for a, b in zip(total, counts(output, status))]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
