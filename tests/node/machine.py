# SPDX-License-Identifier: Apache-2.0
"""A whole Debian 12 node as a virtual machine.

    with Machine(scratch, get_image(), disks={"data": 1 << 30}) as node:
        node.start()
        node.run("systemctl start crustd")

It has two processors on real KVM, where this machine has it and can nest it; else one, emulated with AMD's
SVM, so that /dev/kvm works inside. It has no network. Its root disk is an overlay that is thrown away
with the object; scratch/exchange is /exchange inside. QEMU dies with the process that started it.
"""

import fcntl
import json
import pathlib
import shlex
import shutil
import socket
import subprocess
import time

from channel import Channel, NodeError, NodeFailed, NodeGone
from console import Console
from guest_channels import Qmp
from heartbeat import Heartbeat
from programs import wait_until

BOOT_SECONDS = 300
COMMAND_SECONDS = 120
ALIVE_SECONDS = 240  # for a command that does nothing, on a machine that does other things too
POLL_SECONDS = 0.2
MEMORY_MIB = 3072
KERNEL_PARAMETERS = (
    "console=ttyS0 loglevel=5 systemd.show_status=true panic=-1 net.ifnames=0 nokaslr"
    " mitigations=off tsc=reliable no_timer_check cryptomgr.notests rcupdate.rcu_expedited=1"
    " random.trust_cpu=on"
)
# With two emulated processors, KVM on the node breaks the node's own kernel (docs/testing.md): QEMU 7.2's
# helper_vmrun() changes interrupt_request without the lock under which the other processor does. Two nodes
# with one processor each get as much done as one with two.
EMULATED = ["-accel", "tcg", "-cpu", "EPYC,+svm,+npt"]
KVM = ["-accel", "kvm", "-cpu", "host"]
KVM_GET_API_VERSION = 0xAE00


def accelerator():
    """QEMU's arguments: KVM only where it lets the node have a KVM of its own."""
    for module in ("kvm_amd", "kvm_intel"):
        nested = pathlib.Path(f"/sys/module/{module}/parameters/nested")
        if not nested.exists() or nested.read_text().strip() not in ("Y", "1"):
            continue
        try:
            with open("/dev/kvm", "r+b", buffering=0) as device:
                fcntl.ioctl(device, KVM_GET_API_VERSION, 0)
        except OSError:
            continue
        return KVM
    return EMULATED


def processors():
    """How many a node has."""
    return 1 if accelerator() is EMULATED else 2


class Machine:
    """A node. start() boots it, and boots it again from the same disks when it is off.

    scratch     an empty directory of the test's
    disks       names and sizes in bytes of empty virtio disks: /dev/disk/by-id/virtio-NAME inside
    arguments   more arguments for QEMU
    parameters  more parameters for the kernel
    """

    def __init__(self, scratch, image, *, disks=None, memory=MEMORY_MIB, arguments=(),
                 parameters=""):
        self.scratch = pathlib.Path(scratch).resolve()
        self.image, self.memory = image, memory
        self.arguments, self.parameters = list(arguments), parameters
        self.exchange = self.scratch / "exchange"
        self.exchange.mkdir()
        self.console_log = self.scratch / "console.log"
        self.process = self.channel = self.qmp_client = self.console = self.heartbeat = None
        self.failure = None  # what its kernel said, if that has failed
        self.disks = {}
        self._overlay = self.scratch / "root.qcow2"
        self._qemu_img("create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.disk, self._overlay)
        for name, size in (disks or {}).items():
            self.add_disk(name, size)

    def _qemu_img(self, *arguments):
        subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True)

    # -- power

    def add_disk(self, name, size):
        """One more empty disk, before the node is started."""
        path = self.scratch / f"{name}.disk"
        with open(path, "wb") as file:
            file.truncate(size)
        self.disks[name] = path

    def start(self, *, wait=True):
        """Boots the node; waits until all that starts at boot has started."""
        assert not self.process, "the node runs"
        self.failure = None
        for name in ("agent.sock", "qmp.sock"):
            (self.scratch / name).unlink(missing_ok=True)
        with open(self.scratch / "qemu.log", "ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--",
                                             *self._command()],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.channel = Channel(self._connect("agent.sock"))
        self.qmp_client = Qmp(self._connect("qmp.sock"))
        self.console = Console(self.console_log, self._is_alive, self._fail)
        self.heartbeat = Heartbeat(self._is_alive, self._fail)
        if wait:
            self._wait_boot(0)

    def reboot(self):
        """An orderly reboot; returns when the node is up again."""
        known = len(self.channel.boots)
        self.run("systemctl reboot --no-block")
        self._wait_boot(known)

    def kill_power(self):
        """Kills QEMU, as a power cut would end the node: what its kernel had not written to its
        disks yet is lost, and what was written to the root disk without a flush may be."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self._forget()

    close = kill_power

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def _forget(self):
        for connection in (self.heartbeat, self.console, self.channel, self.qmp_client):
            if connection:
                connection.close()
        self.process = self.channel = self.qmp_client = self.console = self.heartbeat = None

    def _is_alive(self):
        """Whether it is off, boots or answers."""
        channel = self.channel
        try:
            return (not channel or not channel.boots
                    or channel.run(["true"], seconds=ALIVE_SECONDS).status == 0)
        except NodeGone:
            return True  # it boots again, or its end is known
        except NodeError:
            return False

    def _fail(self, line):
        """Callers that wait for the node are told at once."""
        self.failure = line
        self.channel.close()

    def check(self):
        """Raises NodeFailed if the node's kernel has failed."""
        if self.failure:
            raise NodeFailed(f"the node's kernel has failed: {self.failure}")

    def _wait_boot(self, known):
        if not self.channel.wait_boot(known, BOOT_SECONDS):
            self.check()
            state = "did not boot" if self.is_running() else "ended"
            raise NodeError(f"the node {state}:\n{self.report()}")
        self.run("systemctl is-system-running --wait", check=False, seconds=BOOT_SECONDS)

    def _connect(self, name):
        def attempt():
            if not self.is_running():
                raise NodeError(f"QEMU ended:\n{self.report()}")
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.scratch / name))
                return connection
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                return None

        return wait_until(attempt, 60, name)

    def _command(self):
        words = ["qemu-system-x86_64", "-name", f"crust-node,process={self.scratch.name}"[:60],
                 "-machine", "q35", *accelerator(), "-smp", str(processors()),
                 "-m", str(self.memory), "-nodefaults", "-no-user-config", "-display", "none",
                 "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
                 "-append", f"{KERNEL_PARAMETERS} {self.parameters}".strip(),
                 "-chardev", f"file,id=console,path={self.console_log},append=on",
                 "-serial", "chardev:console",
                 "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
                 "-chardev", f"socket,id=agent,path={self.scratch}/agent.sock,server=on,wait=off",
                 "-device", "virtserialport,chardev=agent,name=node",
                 "-qmp", f"unix:{self.scratch}/qmp.sock,server=on,wait=off",
                 "-virtfs", f"local,path={self.exchange},mount_tag=exchange,security_model=none,"
                            "multidevs=remap"]
        for name, (path, form) in self._all_disks().items():
            words += ["-blockdev", json.dumps(self._blockdev(name, path, form)), "-device",
                      f"virtio-blk-pci,drive={name},serial={name}"]
        return words + self.arguments

    def _all_disks(self):
        disks = {name: (path, "raw") for name, path in self.disks.items()}
        return {"root": (self._overlay, "qcow2")} | disks

    def _blockdev(self, name, path, form):
        """A flush of the node's is one of the file: nothing is said to be on disk that is not."""
        return {"driver": form, "node-name": name, "discard": "unmap",
                "file": {"driver": "file", "filename": str(path), "discard": "unmap"}}

    # -- commands

    def run(self, command, *, check=True, seconds=COMMAND_SECONDS, given=""):
        """Runs a shell command, or a list of words, as root; returns its Result. What it leaves in
        the background goes on. Raises NodeError if it fails, unless check is False."""
        arguments = ["bash", "-c", command] if isinstance(command, str) else [
            str(word) for word in command]
        if not self.channel:
            raise NodeError(f"the node is off: {arguments}")
        given = given.encode() if isinstance(given, str) else given
        try:
            result = self.channel.run(arguments, given=given, seconds=seconds)
        except NodeError:
            self.check()
            raise
        if check and result.status != 0:
            raise NodeError(str(result))
        return result

    def output(self, command, **options):
        """What a command printed, without the last newline."""
        return self.run(command, **options).stdout.rstrip("\n")

    def wait(self, condition, seconds, what):
        """Returns the first true value of condition(), or of a command's success."""
        if isinstance(condition, str):
            command = condition
            condition = lambda: self.run(command, check=False).status == 0  # noqa: E731
        return wait_until(condition, seconds, what, NodeError, POLL_SECONDS)

    # -- files

    def put(self, local, remote):
        """Copies a file, or the contents of a directory, into the node."""
        local = pathlib.Path(local)
        here = self.exchange / f"put-{time.monotonic_ns()}"
        if local.is_dir():
            shutil.copytree(local, here, symlinks=True)
            # Directories that are there stay as they are, / above all.
            command = "mkdir -p {1} && tar -C {0} -c . | tar -C {1} -xp --no-same-owner" \
                      " --no-overwrite-dir"
        else:
            shutil.copy(local, here)
            command = "mkdir -p $(dirname {1}) && cp --no-preserve=ownership,mode,timestamps -T" \
                      " {0} {1} && chmod --reference={0} {1}"
        there = shlex.quote(f"/exchange/{here.name}")
        self.run("set -o pipefail; " + command.format(there, shlex.quote(str(remote))), seconds=600)
        if local.is_dir():
            shutil.rmtree(here)
        else:
            here.unlink()

    def get(self, remote, local):
        """Copies a file out of the node."""
        here = self.exchange / f"get-{time.monotonic_ns()}"
        self.run(["cp", "--sparse=always", remote, f"/exchange/{here.name}"], seconds=600)
        shutil.move(here, local)

    def write(self, remote, text):
        """Makes a file with that text, and its directory."""
        path = shlex.quote(str(remote))
        self.run(f"mkdir -p $(dirname {path}) && cat >{path}", given=text)

    def read(self, remote):
        return self.run(["cat", remote]).stdout

    # -- hardware

    def qmp(self, command, **arguments):
        """A command for the node's QEMU; a _ in a name stands for a -."""
        return self.qmp_client.execute(command, **arguments)

    def resize_disk(self, name, size):
        """Gives one of the disks another size, as a cloud does; the node's kernel is told."""
        self.qmp("block_resize", node_name=name, size=size)

    # -- what there is to see when a test has failed

    def report(self):
        """The end of QEMU's output and of the console, and crustd's journal if it can be had."""
        parts = []
        for path in (self.scratch / "qemu.log", self.console_log):
            if path.exists():
                text = path.read_text(errors="replace")
                lines = [line for line in text.splitlines() if "TCG doesn't support" not in line]
                parts.append(f"-- {path.name}\n" + "\n".join(lines[-40:]))
        if self.is_running() and self.channel and self.channel.boots:
            try:
                log = self.run("journalctl -b --no-pager -n 60; systemctl --failed", check=False,
                               seconds=60)
                parts.append(f"-- journal\n{log.stdout}")
            except NodeError as error:
                parts.append(f"-- no journal: {error}")
        return "\n".join(parts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
