# SPDX-License-Identifier: Apache-2.0
"""Runs a directory of test modules, each in a process of its own.

A module that hangs or crashes costs only itself. The last line is "N passed, N failed, N skipped"; the
exit status is 1 if any test failed. A skipped test says why.
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time
import unittest

CLOSING = "{} passed, {} failed, {} skipped"


def main(program, *, jobs, module_seconds):
    """What a run.py does: program is its path, module_seconds (or None) bounds one module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=jobs)
    parser.add_argument("--module", help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    if arguments.module:
        return run_here(arguments.module)
    program = pathlib.Path(program).resolve()
    modules = sorted(program.parent.glob("*_test.py"))
    if arguments.patterns:
        modules = [m for m in modules if any(p in m.stem for p in arguments.patterns)]
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = pool.map(lambda module: run_module(program, module, module_seconds), modules)
        for module, output, status, seconds in results:
            print(f"== {module.name} ({seconds:.0f} s)\n{output}", flush=True)
            total = [a + b for a, b in zip(total, counts(output, status))]
    print(CLOSING.format(*total))
    return 1 if total[1] else 0


def run_module(program, module, module_seconds):
    started = time.monotonic()
    command = [sys.executable, str(program), "--module", module.stem]
    try:
        done = subprocess.run(command, cwd=program.parent, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=module_seconds)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(errors="replace") + "\nran out of time", 1
    return module, output, status, time.monotonic() - started


def counts(output, status):
    """passed, failed, skipped of the module's closing line; a module without one has failed."""
    line = re.search(CLOSING.format(*[r"(\d+)"] * 3) + r"\s*$", output)
    passed, failed, skipped = map(int, line.groups()) if line else (0, 1, 0)
    return passed, failed or int(status != 0), skipped


class Result(unittest.TextTestResult):
    """Counts what passed: a class that is skipped or fails as a whole has run no test."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def run_here(name):
    tests = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(CLOSING.format(result.passed, failed, len(result.skipped)))
    return 1 if failed else 0
