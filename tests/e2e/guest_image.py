"""What a test guest boots from: Debian's kernel, and an initramfs around crust-guest-agent."""

import dataclasses
import os
import pathlib

from programs import run

GUEST_SOURCES = pathlib.Path(__file__).resolve().parent.parent / "guest"


@dataclasses.dataclass(frozen=True)
class GuestImage:
    """What a guest boots from."""

    kernel: pathlib.Path
    initramfs: pathlib.Path


def build_image(cache, agent):
    """Makes the kernel and the initramfs around the given agent, in directory cache; does nothing
    when both are there and newer than what they are made from. Not for two processes at once with
    different agents in one cache."""
    cache = pathlib.Path(cache).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    kernel, init, initramfs = cache / "kernel", cache / "init", cache / "initramfs"
    make_initramfs = GUEST_SOURCES / "make-initramfs.sh"
    run(GUEST_SOURCES / "fetch-kernel.sh", kernel)
    if _is_stale(init, *GUEST_SOURCES.glob("*.[ch]")):
        partial = cache / f"init.{os.getpid()}"
        compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-static", "-s"]
        run(*compiler, "-o", partial, *sorted(GUEST_SOURCES.glob("*.c")))
        partial.rename(init)
    modules = GUEST_SOURCES / "modules.sh"
    if _is_stale(initramfs, init, agent, make_initramfs, modules, kernel / "version"):
        run(make_initramfs, kernel, init, agent, initramfs)
    return GuestImage(kernel / "vmlinuz", initramfs)


def _is_stale(target, *sources):
    if not target.exists():
        return True
    made = target.stat().st_mtime_ns
    return any(os.stat(source).st_mtime_ns > made for source in sources)
