# SPDX-License-Identifier: Apache-2.0
"""Go, and programs that are built with it, once per build directory.

    program = build(REPOSITORY / "docs/examples/csi-driver", ".", "crust-csi")

Any Go from WANTED on that is installed is taken. Debian 12's is older: it fetches a newer one, which is a
module like others. Modules come from Go's module proxy; out of its reach, tests skip.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import unittest

from node import BUILD

WANTED = (1, 25)
TOOLCHAIN = "v0.0.1-go1.26.8.linux-" + {"x86_64": "amd64", "aarch64": "arm64"}.get(
    platform.machine(), platform.machine())
PLACE = BUILD / "go"
INSTALLED = ("/usr/local/go/bin/go",)  # where Go's own archive goes, besides PATH
SECONDS = 2400  # for Kubernetes, beside other stages


def environment():
    """Everything below the build directory, and removable."""
    return os.environ | {
        "GOPATH": str(PLACE / "path"), "GOCACHE": str(PLACE / "cache"), "CGO_ENABLED": "0",
        "GOFLAGS": "-modcacherw -buildvcs=false", "GOTOOLCHAIN": "local", "GOROOT": ""}


def run(program, *arguments, cwd=None):
    return subprocess.run([program, *arguments], cwd=cwd, env=environment(), capture_output=True,
                          text=True, timeout=SECONDS)


def version(program):
    found = re.search(r"\bgo(\d+)\.(\d+)", run(program, "version").stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def download(program, cwd, *modules):
    done = run(program, "mod", "download", "-json", *modules, cwd=cwd)
    if done.returncode != 0:
        raise unittest.SkipTest(f"needs Go's module proxy: {(done.stdout + done.stderr)[-300:]}")
    return done.stdout


def fetch_toolchain(old):
    """A Go of our own, fetched by one that is too old to be used."""
    PLACE.mkdir(parents=True, exist_ok=True)
    root = pathlib.Path(json.loads(download(old, PLACE, f"golang.org/toolchain@{TOOLCHAIN}"))["Dir"])
    for file in (root / "bin").iterdir():
        file.chmod(0o755)
    for file in (root / "pkg/tool").rglob("*"):
        file.chmod(0o755)
    return str(root / "bin/go")


@functools.cache
def find_go():
    with locked("go"):
        return choose_go()


def choose_go():
    programs = [one for one in (shutil.which("go"), *INSTALLED) if one and os.path.exists(one)]
    if not programs:
        raise unittest.SkipTest("needs the program go")
    return next((one for one in programs if version(one) >= WANTED), None) \
        or fetch_toolchain(programs[0])


@contextlib.contextmanager
def locked(what):
    """One at a time: test modules run beside each other."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / f"{what}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def build(directory, package, name, *options):
    """Builds a package of a module; returns the program's path. A program that does not build fails the
    test, modules that are out of reach skip it."""
    go = find_go()
    with locked(name):
        download(go, directory)
        program = PLACE / "bin" / name
        done = run(go, "build", "-trimpath", *options, "-o", str(program), package, cwd=directory)
        if done.returncode != 0:
            raise AssertionError(f"go build {package}: {done.stderr[-4000:]}")
        return program


@functools.cache
def module_directory(directory, module):
    """Where the source of a module is that another one requires."""
    go = find_go()
    with locked("module"):
        download(go, directory)
        return pathlib.Path(run(go, "list", "-m", "-f", "{{.Dir}}", module, cwd=directory).stdout.strip())
