# SPDX-License-Identifier: Apache-2.0
"""What a cluster of one node is made of: Kubernetes' programs, Debian's, and an image for pods.

    disk()        the path of an ext4 that is mounted at /programs in the node
    programs()    a directory of what runs on this machine

Kubernetes is built from its Go modules (main.go); etcd, kubectl, containerd, runc and the CNI plugins come
from Debian's packages, which are unpacked and not installed. The image is made of Debian's busybox. All of
it is made once, below build/kubernetes.
"""

import contextlib
import fcntl
import functools
import hashlib
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import container_image
import go_programs
from node_test_case import BUILD

HERE = pathlib.Path(__file__).resolve().parent
PLACE = BUILD / "kubernetes"
DEBIAN = PLACE / "debian"
IN_NODE = {"bin/containerd": "usr/bin/containerd", "bin/ctr": "usr/bin/ctr",
           "bin/containerd-shim-runc-v2": "usr/bin/containerd-shim-runc-v2",
           "bin/runc": "usr/sbin/runc", "cni/ptp": "usr/lib/cni/ptp",
           "cni/loopback": "usr/lib/cni/loopback", "cni/host-local": "usr/lib/cni/host-local"}
HERE_TOO = {"etcd": "usr/bin/etcd", "kubectl": "usr/bin/kubectl"}
NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "service-account-key")
IMAGE = "images.example/busybox:1"
# The first process of a container has no default for a signal. Without this one a reboot waits 90 seconds.
WORK = "trap exit TERM; sleep 1000000000 & wait"
DISK_BYTES = 512 << 20


@functools.cache
def kubernetes():
    """One program for all of them, see main.go."""
    return go_programs.build(HERE, ".", "kubernetes", "-ldflags=-s -w")


def disk():
    with locked():
        path = PLACE / f"programs-{key()}"
        if not path.exists():
            for old in (*PLACE.glob("programs-*"), *PLACE.glob("bin-*")):
                if old != directory():  # a test beside this one may be using them
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            make(path)
    return path


def directory():
    return PLACE / f"bin-{key()}"


def programs():
    with locked():
        directory().mkdir(exist_ok=True)
        sources = {name: kubernetes() for name in NAMES}
        sources |= {name: DEBIAN / path for name, path in HERE_TOO.items()}
        for name, source in sources.items():
            link = directory() / name
            if not link.exists():  # nor where it leads: the checkout may have been moved
                link.unlink(missing_ok=True)
                link.symlink_to(source)
    return directory()


@contextlib.contextmanager
def locked():
    """One at a time, with Debian's programs unpacked."""
    kubernetes()
    PLACE.mkdir(parents=True, exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([HERE / "fetch-debian.sh", DEBIAN], capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise unittest.SkipTest(f"needs Debian's packages: {done.stderr[-300:]}")
        yield


@functools.cache
def key():
    """By the program's content: Go gives a new time to what it has found up to date, and another run may be
    about to start what is there."""
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    with open(kubernetes(), "rb") as program:
        digest.update(hashlib.file_digest(program, "sha256").digest())
    return digest.hexdigest()[:16]


def make(path):
    tree, scratch = PLACE / "tree", PLACE / "disk.new"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "cni"):
        (tree / name).mkdir(parents=True)
    shutil.copy(kubernetes(), tree / "bin/kubelet")
    for name, source in IN_NODE.items():
        shutil.copy(DEBIAN / source, tree / name)
    make_image(tree / "image.tar", DEBIAN / "bin/busybox")
    with open(scratch, "wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(scratch)], check=True,
                   timeout=600)
    shutil.rmtree(tree)
    scratch.rename(path)


def make_image(path, busybox):
    """One layer with busybox as every program that it can be."""
    with tempfile.NamedTemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as archive:
            for name in ("bin", "tmp", "proc", "sys", "dev", "etc"):
                directory = tarfile.TarInfo(name)
                directory.type, directory.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(directory)
            archive.add(busybox, "bin/busybox")
            for name in ("sh", "df", "sleep", "cat", "sync", "echo"):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        layer.flush()
        configuration = {"Cmd": ["/bin/sh", "-c", WORK], "Env": ["PATH=/bin"]}
        with container_image.Archive(path, IMAGE, configuration) as image:
            image.add_layer(layer.name)
