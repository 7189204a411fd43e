# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of this tree, built once per build directory and state of the tree."""

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import unittest

from node import BUILD, REPOSITORY

NAMES = ("crustd", "crustctl", "crust-guest-agent", "crust-sim")
PLACE = BUILD / "deb"
NOT_INPUT = {".git", "build", "tests", "__pycache__"}


def build(directory, **environment):
    """make deb, whose files come to lie in a directory."""
    done = subprocess.run([REPOSITORY / "packaging/build-deb.sh", directory], env=os.environ | environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"build-deb.sh: {(done.stdout + done.stderr)[-4000:]}")


def state():
    """A hash of what packages are made of."""
    digest = hashlib.sha256()
    for top in sorted(REPOSITORY.iterdir()):
        if top.name in NOT_INPUT or top.name.startswith("build-"):
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"\0{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def get():
    """The packages' files by name."""
    if not shutil.which("dpkg-buildpackage") or not shutil.which("dh"):
        raise unittest.SkipTest("needs the packages dpkg-dev and debhelper")
    PLACE.mkdir(parents=True, exist_ok=True)
    stamp = PLACE / "state"
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now = state()
        if not stamp.exists() or stamp.read_text() != now:
            stamp.unlink(missing_ok=True)
            build(PLACE)
            stamp.write_text(now)
    return {name: next(PLACE.glob(f"{name}_*.deb")) for name in NAMES}


def unpack(directory):
    """All of them in one tree, as on a machine that has them."""
    for package in get().values():
        subprocess.run(["dpkg-deb", "-x", package, directory], check=True)
    return pathlib.Path(directory)
