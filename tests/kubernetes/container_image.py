# SPDX-License-Identifier: Apache-2.0
"""Images of containers without a builder and without pulling: layers of Debian's packages and of files.

    with Archive("image.tar", "images.example/busybox:1", {"Cmd": ["/bin/sh"]}) as image:
        image.add_layer("layer.tar")

The form is that of "docker save", which "ctr images import" takes.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import image as node_image
from node_test_case import BUILD, REPOSITORY

CONTAINERFILE = REPOSITORY / "config/deploy/Containerfile"
SHELL = "dash"  # the base image's; the manifest's probes are lines of a shell


class Archive:
    """configuration: what a Containerfile says of the process, in Docker's words."""

    def __init__(self, path, name, configuration):
        self.archive = tarfile.open(path, "w")
        self.name, self.configuration = name, configuration
        self.layers = []

    def add_layer(self, path):
        with open(path, "rb") as file:
            self.layers.append("sha256:" + hashlib.file_digest(file, "sha256").hexdigest())
        self.archive.add(path, f"layer-{len(self.layers)}.tar")

    def add_text(self, name, text):
        file = tarfile.TarInfo(name)
        file.size = len(text.encode())
        self.archive.addfile(file, io.BytesIO(text.encode()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.add_text("config.json", json.dumps({
            "architecture": "amd64", "os": "linux", "config": self.configuration,
            "rootfs": {"type": "layers", "diff_ids": self.layers}}))
        self.add_text("manifest.json", json.dumps([{
            "Config": "config.json", "RepoTags": [self.name],
            "Layers": [f"layer-{number + 1}.tar" for number in range(len(self.layers))]}]))
        self.archive.close()


def make_crustd(path, name):
    """crustd's own: what the last stage of the shipped Containerfile has, without the base image's tools.
    tests/node/container_test.py has the Containerfile itself built, which needs ten times as long."""
    stage = last_stage()
    with tempfile.TemporaryDirectory(prefix="crustd-image-") as scratch, \
            Archive(path, name, configuration(stage)) as archive:
        archive.add_layer(debian_layer(packages(stage)))
        tree = pathlib.Path(scratch, "tree")
        install(tree)
        with tarfile.open(f"{scratch}/layer.tar", "w") as layer:
            layer.add(tree, ".", filter=owned_by_root)
        archive.add_layer(f"{scratch}/layer.tar")


def last_stage():
    """The instructions of the Containerfile's last stage, as (name, rest)."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.M))
    stage = lines[lines.rindex("\nFROM "):].split("\n")
    return [tuple(line.split(maxsplit=1)) for line in stage if line]


def packages(stage):
    runs = " ".join(rest for name, rest in stage if name == "RUN")
    return re.search(r"apt-get install -y --no-install-recommends ([^&]*)", runs)[1].split()


def configuration(stage):
    instructions = dict(stage)
    return {"Cmd": json.loads(instructions["CMD"]),
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    *shlex.split(instructions["ENV"])]}


def install(tree):
    """The first stage's end, and the directory that the last one makes."""
    done = subprocess.run(
        ["make", "-C", REPOSITORY, "-o", "programs", f"OUT={BUILD}", "install", f"DESTDIR={tree}",
         "CRUST_QEMU_DIRECTORY=/opt/crustd/bin"], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"make install: {done.stderr}")
    shutil.copy(REPOSITORY / "config/deploy/crust-qemu/on-node.sh",
                tree / "usr/libexec/crustd/crust-qemu-on-node")
    (tree / "host").mkdir()


def owned_by_root(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def debian_layer(names):
    """Debian's packages and what they depend on, unpacked: a tar, made once."""
    command = ["mmdebstrap", "--mode=root", "--variant=extract",
               f"--include={','.join([SHELL, *names])}", *apt_proxy(), node_image.SUITE]
    key = hashlib.sha256(repr(command).encode()).hexdigest()[:16]
    layer = BUILD / f"kubernetes/crustd-{key}.tar"
    if not layer.exists():
        sources = [path for path in node_image.SOURCES if os.path.exists(path)]
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=layer.parent))
            done = subprocess.run([*command, f"{scratch}/layer.tar", *sources[:1]],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise unittest.SkipTest(f"needs Debian's packages: {done.stderr[-300:]}")
            os.rename(f"{scratch}/layer.tar", layer)
    return layer


def apt_proxy():
    """What apt of this machine goes through."""
    said = subprocess.run(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"],
                          capture_output=True, text=True).stdout
    return ["--aptopt=Acquire::http::Proxy " + said.partition("=")[2].strip().strip("'")] if said else []
