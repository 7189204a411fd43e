#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the container's image is built from in a node without network: its base image, and objects.

The base image is Debian 12 with the packages that the Containerfile installs, so its apt-get has
nothing to fetch. It is made by mmdebstrap once per machine and kept beside the node's image, under a
hash of those packages. compile() does in it what the Containerfile's make would: emulated processors
take twenty times as long.

    container_base.py       builds the base, if it is not there, and prints its directory
"""

import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import image

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
CONTAINERFILE = REPOSITORY / "config/deploy/Containerfile"
NAME = "docker.io/library/debian:12-slim"  # what the Containerfile calls it
# Nothing here runs them: C and no link-time optimisation.
NOT_INSTALLED = (*image.NOT_INSTALLED, "/usr/lib/gcc/*/lto*", "/usr/bin/*-lto-dump-*",
                 "/usr/lib/x86_64-linux-gnu/lib*san.so*")
# What only compiling needs is in the root, where that is done, and not in the archive: an emulated
# node takes minutes for a hundred MiB.
NOT_ARCHIVED = ("./usr/lib/gcc", "./usr/include", "*.a", "./usr/bin/x86_64-linux-gnu-*",
                "./usr/share/perl", "./usr/lib/x86_64-linux-gnu/perl", "./usr/share/zoneinfo",
                "./usr/lib/x86_64-linux-gnu/gconv")
SOURCE, BUILD = "/source", "/build"  # as the Containerfile has them


@dataclasses.dataclass(frozen=True)
class Base:
    directory: pathlib.Path

    @property
    def archive(self):
        return self.directory / "base.tar"

    @property
    def root(self):
        return self.directory / "root"


def packages():
    """What both stages install."""
    text = CONTAINERFILE.read_text().replace("\\\n", " ")
    lists = re.findall(r"apt-get install -y --no-install-recommends ([^&\n]*)", text)
    return sorted({word for words in lists for word in words.split()})


def get_base():
    """The base, built if need be."""
    key = hashlib.sha256(pathlib.Path(__file__).read_bytes() + repr(packages()).encode())
    directory = image.CACHE / f"container-{key.hexdigest()[:16]}"
    image.CACHE.mkdir(parents=True, exist_ok=True)
    with image._locked(image.CACHE / "container-lock"):
        if not directory.exists():
            _build(directory)
            _remove_old()
        os.utime(directory)
    return Base(directory)


def _remove_old():
    """What a killed build left, and bases but the latest two: two worktrees may take turns."""
    for partial in image.CACHE.glob("container-????????????????.*"):
        shutil.rmtree(partial, ignore_errors=True)
    bases = sorted(image.CACHE.glob("container-????????????????"), key=lambda one: one.stat().st_mtime)
    for base in bases[:-2]:
        shutil.rmtree(base)


def _build(directory):
    if os.geteuid() != 0:
        raise image.ImageError("building the container's base image needs root: sudo make node")
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=image.CACHE))
    root = scratch / "root"
    try:
        image._run(_mmdebstrap(root))
        image._run(["tar", "--create", "--numeric-owner", f"--file={scratch}/base.tar",
                    f"--directory={root}", *(f"--exclude={one}" for one in NOT_ARCHIVED), "."])
        for mount_point in (SOURCE, BUILD):
            (root / mount_point.lstrip("/")).mkdir()
        scratch.chmod(0o755)
        scratch.rename(directory)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _mmdebstrap(root):
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(packages())}",
               '--aptopt=APT::Install-Recommends "false"',
               *(f"--dpkgopt=path-exclude={pattern}" for pattern in NOT_INSTALLED),
               # No network, so nothing that apt-get update could ask.
               '--customize-hook=rm -rf "$1"/etc/apt/sources.list* "$1"/var/lib/apt/lists/*']
    proxy = subprocess.run(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"],
                           capture_output=True, text=True).stdout
    if proxy:
        command.append("--aptopt=Acquire::http::Proxy " + proxy.partition("=")[2].strip().strip("'"))
    sources = [path for path in image.SOURCES if image._names_suite(path)]
    return [*command, image.SUITE, str(root), *sources[:1]]


def compile(base, source, build):
    """Makes the programs of the tree `source` in the directory `build`, with the base's compiler, by
    the paths that the Containerfile uses, so that its make finds them up to date."""
    script = (f"mount --bind {source} {base.root}{SOURCE}; mount --bind {build} {base.root}{BUILD};"
              f" exec chroot {base.root} make -C {SOURCE} -j2 BUILD={BUILD} programs")
    image._run(["unshare", "--mount", "sh", "-euc", script])


if __name__ == "__main__":
    print(get_base().directory)
