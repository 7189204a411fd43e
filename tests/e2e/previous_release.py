# SPDX-License-Identifier: Apache-2.0
"""Earlier releases, built from the history of this repository.

    programs = previous_release.build()     # a directory with crustd and crustctl of 0.1.0
    files = previous_release.packages()     # Debian packages of 0.2.0, by name

What cannot be had without the history (a tarball, a shallow clone) makes the test skip.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import unittest

from node import REPOSITORY

VERSION = "0.1.0"
COMMIT = "1466ff54f7541e1703ae2279d20f29d6a42e1897"
PACKAGED_VERSION = "0.2.0"
PACKAGED_COMMIT = "57fd7de2a500e4ecf1182ab733f288c3faffbbaa"
PLACE = pathlib.Path(os.environ.get("CRUST_PREVIOUS_RELEASE",
                                    REPOSITORY / "build" / "previous-release"))


def git(*arguments, **more):
    """safe.directory: the repository may belong to another user than root."""
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", str(REPOSITORY), *arguments],
                          stderr=subprocess.PIPE, **more)


def is_in_history(commit=COMMIT):
    return bool(shutil.which("git")) and git("cat-file", "-e", f"{commit}^{{commit}}",
                                             stdout=subprocess.DEVNULL).returncode == 0


def made(version, commit, *command):
    """A release's source tree, unpacked, in which a command was run once."""
    tree = PLACE / commit
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (tree / "built").exists():
            return tree
        if not is_in_history(commit):
            raise unittest.SkipTest(f"release {version} (commit {commit[:7]}) is not in the history of "
                                    f"{REPOSITORY}: this needs a whole clone")
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        archive = git("archive", commit, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MAKE", "MFLAGS", "CRUST_"))}
        built = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(f"release {version} does not build:\n{built.stderr[-4000:]}")
        (tree / "built").touch()
    return tree


def source():
    return made(VERSION, COMMIT, "make", f"-j{os.cpu_count()}", "programs")


def build():
    """The directory of its programs."""
    return source() / "build"


def packages():
    if not shutil.which("dpkg-buildpackage") or not shutil.which("dh"):
        raise unittest.SkipTest("needs the packages dpkg-dev and debhelper")
    tree = made(PACKAGED_VERSION, PACKAGED_COMMIT, "packaging/build-deb.sh", "build/deb")
    return {path.name.split("_")[0]: path for path in (tree / "build/deb").glob("*.deb") if "-dbgsym" not in path.name}
