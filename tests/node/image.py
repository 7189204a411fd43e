#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The node's image: Debian 12 with a kernel, systemd, storage tools and QEMU, made by mmdebstrap.

An image is built once per machine, in build/node/KEY (CRUST_NODE_CACHE names another place), where
KEY is a hash of everything in tests/node/image/ and of this file. It appears by one rename and is
never written to again: a node writes to an overlay. Building needs root; using an image does not.

    image.py          builds the image, if it is not there, and prints its directory
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE / "image"
CACHE = pathlib.Path(os.environ.get("CRUST_NODE_CACHE", HERE.parent.parent / "build/node"))
SUITE = "bookworm"
DISK_SIZE = "8G"  # sparse
MACHINE_ID = "0123456789abcdef0123456789abcdef\n"
KEPT = 3  # images: two worktrees may take turns
NOT_INSTALLED = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")


class ImageError(Exception):
    """The image could not be built."""


@dataclasses.dataclass(frozen=True)
class Image:
    """What a node boots from. As long as it is held, nobody removes its files."""

    directory: pathlib.Path
    holder: object  # an open file with a shared lock

    @property
    def disk(self):
        return self.directory / "disk"

    @property
    def kernel(self):
        return self.directory / "vmlinuz"

    @property
    def initrd(self):
        return self.directory / "initrd"


def get_image():
    """The image, built if need be. Two that want it at once wait for one build."""
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = CACHE / _key()
    with _locked(CACHE / "lock"):
        if not directory.exists():
            _build(directory)
            _remove_old()
        with contextlib.suppress(PermissionError):
            os.utime(directory)
        holder = open(directory / "disk", "rb")
        fcntl.flock(holder, fcntl.LOCK_SH)
    return Image(directory, holder)


@contextlib.contextmanager
def _locked(path):
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key():
    """A hash of the recipe: names, modes and contents."""
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for path in sorted(RECIPE.rglob("*")):
        if path.is_file():
            executable = os.access(path, os.X_OK)
            digest.update(f"\0{path.relative_to(RECIPE)}\0{executable}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_old():
    """Removes what a killed build left, and images but the latest few, unless a node uses them."""
    for partial in CACHE.glob("????????????????.*"):
        shutil.rmtree(partial, ignore_errors=True)
    images = [path for path in CACHE.iterdir() if re.fullmatch(r"[0-9a-f]{16}", path.name)]
    for image in sorted(images, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        with contextlib.suppress(OSError), open(image / "disk", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(image)


def packages():
    lines = (RECIPE / "packages").read_text().splitlines()
    return [word for line in lines for word in line.partition("#")[0].split()]


def _build(directory):
    if os.geteuid() != 0:
        raise ImageError("building the node's image needs root: sudo make node")
    print(f"building the node's image in {directory}: takes some minutes", file=sys.stderr,
          flush=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=CACHE))
    root = scratch / "root"
    try:
        _run(_mmdebstrap(root))
        # mmdebstrap leaves the node without an id; with one, nothing is done that a first boot does.
        (root / "etc/machine-id").write_text(MACHINE_ID)
        [kernel] = (root / "boot").glob("vmlinuz-*")
        shutil.copyfile(kernel, scratch / "vmlinuz")
        _run([str(RECIPE / "make-initrd.sh"), str(root), str(scratch / "initrd")])
        _run(["mke2fs", "-q", "-t", "ext4", "-E",
              "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "-d", str(root),
              str(scratch / "disk"), DISK_SIZE])
        shutil.rmtree(root)
        scratch.chmod(0o755)
        scratch.rename(directory)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _mmdebstrap(root):
    copy = f'cp -a --no-preserve=ownership "{RECIPE}"/root/. "$1"/'
    command = ["mmdebstrap", "--mode=root", "--variant=minbase",
               f"--include={','.join(packages())}", '--aptopt=APT::Install-Recommends "false"',
               *(f"--dpkgopt=path-exclude={pattern}" for pattern in NOT_INSTALLED),
               f"--essential-hook={copy}", f'--customize-hook="{RECIPE}/configure.sh" "$1"']
    proxy = subprocess.run(["apt-config", "shell", "PROXY", "Acquire::http::Proxy"],
                           capture_output=True, text=True).stdout
    if proxy:
        command.append("--aptopt=Acquire::http::Proxy " + proxy.partition("=")[2].strip().strip("'"))
    sources = [path for path in SOURCES if _names_suite(path)]
    return [*command, SUITE, str(root), *sources[:1]]


def _names_suite(path):
    """Whether a file of this machine's apt says where the suite comes from."""
    with contextlib.suppress(OSError):
        return re.search(rf"^[^#]*\b{SUITE}\b", pathlib.Path(path).read_text(), re.MULTILINE)


def _run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ImageError(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    print(get_image().directory)
