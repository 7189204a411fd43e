# SPDX-License-Identifier: Apache-2.0
"""What a test guest boots from: Debian's kernel, and an initramfs around an agent."""

import dataclasses
import os
import pathlib

from programs import run

GUEST_SOURCES = pathlib.Path(__file__).resolve().parent.parent / "guest"
KATA_MODULES = ("virtio_net", "virtiofs")


@dataclasses.dataclass(frozen=True)
class GuestImage:
    """What a guest boots from."""

    kernel: pathlib.Path
    initramfs: pathlib.Path


def build_image(cache, agent):
    """Makes the kernel and the initramfs around the given agent, in directory cache; does nothing
    when both are there and newer than what they are made from. Not for two processes at once with
    different agents in one cache."""
    return _build(_prepare(cache), agent, "crust-guest-agent", "initramfs")


def build_kata_image(cache):
    """The same around the stand-in for kata-agent, without anything of ours: a stock guest."""
    cache = _prepare(cache)
    agent = cache / "kata-agent"
    _compile(agent, GUEST_SOURCES / "kata_agent", "-pthread")
    return _build(cache, agent, "kata-agent", "initramfs-kata", *KATA_MODULES)


def build_program(cache, name):
    """A static program out of tests/guest/programs/NAME.c, for a container in a guest."""
    target = _prepare(cache) / name
    source = GUEST_SOURCES / "programs" / f"{name}.c"
    if _is_stale(target, source):
        _compile_sources(target, [source])
    return target


def _prepare(cache):
    cache = pathlib.Path(cache).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _build(cache, agent, agent_name, name, *modules):
    kernel, init, initramfs = cache / "kernel", cache / "init", cache / name
    make_initramfs = GUEST_SOURCES / "make-initramfs.sh"
    run(GUEST_SOURCES / "fetch-kernel.sh", kernel)
    _compile(init, GUEST_SOURCES)
    sources = (init, agent, make_initramfs, GUEST_SOURCES / "modules.sh", kernel / "version")
    if _is_stale(initramfs, *sources):
        run(make_initramfs, kernel, init, agent, agent_name, initramfs, *modules)
    return GuestImage(kernel / "vmlinuz", initramfs)


def _compile(target, directory, *options):
    """A static program of all that lies in the directory, if it is older than that."""
    if _is_stale(target, *directory.glob("*.[ch]")):
        _compile_sources(target, sorted(directory.glob("*.c")), *options)


def _compile_sources(target, sources, *options):
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    run(os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-static", "-s", *options,
        "-o", partial, *sources)
    partial.rename(target)


def _is_stale(target, *sources):
    if not target.exists():
        return True
    made = target.stat().st_mtime_ns
    return any(os.stat(source).st_mtime_ns > made for source in sources)
