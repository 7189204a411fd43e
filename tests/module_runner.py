# SPDX-License-Identifier: Apache-2.0
"""Runs a directory of test modules, each in a process of its own.

A module that hangs or crashes costs only itself. One that says why it could not be run rightly has a second
try of what has not passed, whose outcome counts. The last line is "N passed, N failed, N skipped"; the exit
status is 1 if any test failed. A skipped test says why.
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

CLOSING = "{} passed, {} failed, {} skipped"
TRY_AGAIN = 75  # sysexits.h: EX_TEMPFAIL
reasons = []  # to try again, of the module that this process runs


def main(program, *, jobs, module_seconds, beside=(), long=()):
    """What a run.py does: program is its path, module_seconds (or None) bounds one module. beside: other
    programs like it, whose modules are run among this one's, first. long: the modules that `--part core` leaves
    to `--part long`, in their order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["core", "long"])
    parser.add_argument("-j", type=int, default=jobs)
    parser.add_argument("--module", help=argparse.SUPPRESS)
    parser.add_argument("--passed", help=argparse.SUPPRESS)
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    if arguments.module:
        return run_here(arguments.module, pathlib.Path(arguments.passed))
    modules = [(one, module) for one in map(pathlib.Path, [*beside, program])
               for module in find_modules(one, arguments.patterns)
               if not arguments.part or (arguments.part == "long") == (module.stem in long)]
    modules.sort(key=lambda one: long.index(one[1].stem) if one[1].stem in long else len(long))
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        results = pool.map(lambda module: run_module(*module, module_seconds), modules)
        for module, output, status, seconds in results:
            print(f"== {module.name} ({seconds:.0f} s)\n{output}", flush=True)
            total = [a + b for a, b in zip(total, counts(output, status))]
    print(CLOSING.format(*total))
    return 1 if total[1] else 0


def find_modules(program, patterns):
    modules = sorted(program.resolve().parent.glob("*_test.py"))
    return [module for module in modules
            if not patterns or any(pattern in module.stem for pattern in patterns)]


def ask_for_another_try(reason):
    """A failing module is run once more: what it ran on has failed, and not what it tests."""
    reasons.append(reason)


def run_module(program, module, module_seconds):
    started = time.monotonic()
    with tempfile.NamedTemporaryFile(prefix="crust-passed-") as passed:
        output, status = try_module(program, module, module_seconds, passed.name)
        if status == TRY_AGAIN:
            again, status = try_module(program, module, module_seconds, passed.name)
            output += f"\n-- {module.stem} is run once more --\n{again}"
    return module, output, status, time.monotonic() - started


def try_module(program, module, module_seconds, passed):
    command = [sys.executable, str(program.resolve()), "--module", module.stem, "--passed", passed]
    try:
        done = subprocess.run(command, cwd=module.parent, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=module_seconds)
        return done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        return f"{output}\nFAIL: {module.stem} ran out of time, in\n{output[-500:]}", 1


def counts(output, status):
    """passed, failed, skipped of the module's closing line; a module without one has failed."""
    line = re.search(CLOSING.format(*[r"(\d+)"] * 3) + r"\s*$", output)
    passed, failed, skipped = map(int, line.groups()) if line else (0, 1, 0)
    return passed, failed or int(status != 0), skipped


class Result(unittest.TextTestResult):
    """Counts what passed: a class that is skipped or fails as a whole has run no test."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(name_of(test))


def name_of(test):
    return unittest.TestCase.id(test)  # some have a volume's id in its place


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def run_here(name, passed):
    """passed: a file with the names of the tests that have passed in an earlier try."""
    before = passed.read_text().split()
    tests = unittest.defaultTestLoader.loadTestsFromName(name)
    rest = unittest.TestSuite(test for test in tests_of(tests) if name_of(test) not in before)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(rest)
    passed.write_text("\n".join(before + result.passed))
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    for reason in reasons if failed else ():
        print(f"to be tried again: {reason}")
    print(CLOSING.format(len(before + result.passed), failed, len(result.skipped)))
    return (TRY_AGAIN if reasons else 1) if failed else 0
