# SPDX-License-Identifier: Apache-2.0
"""The previous release, built from the history of this repository.

    programs = previous_release.build()     # a directory with crustd and crustctl

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
PLACE = pathlib.Path(os.environ.get("CRUST_PREVIOUS_RELEASE",
                                    REPOSITORY / "build" / "previous-release"))


def git(*arguments, **more):
    """safe.directory: the repository may belong to another user than root."""
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", str(REPOSITORY), *arguments],
                          stderr=subprocess.PIPE, **more)


def is_in_history():
    return bool(shutil.which("git")) and git("cat-file", "-e", f"{COMMIT}^{{commit}}",
                                             stdout=subprocess.DEVNULL).returncode == 0


def source():
    """The release's source tree, unpacked and built."""
    tree = PLACE / COMMIT
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (tree / "built").exists():
            return tree
        if not is_in_history():
            raise unittest.SkipTest(f"release {VERSION} (commit {COMMIT[:7]}) is not in the history of "
                                    f"{REPOSITORY}: this needs a whole clone")
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        archive = git("archive", COMMIT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MAKE", "MFLAGS", "CRUST_"))}
        built = subprocess.run(["make", "-C", str(tree), f"-j{os.cpu_count()}", "programs"],
                               env=environment, capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(f"release {VERSION} does not build:\n{built.stderr[-4000:]}")
        (tree / "built").touch()
    return tree


def build():
    """The directory of its programs."""
    return source() / "build"
