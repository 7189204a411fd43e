"""A real micro-VM for tests: QEMU as Kata starts it, with crust-guest-agent inside.

    image = build_image("build/guest", "build/crust-guest-agent")
    with LoopDevice(f"{scratch}/disk", 64 << 20) as loop:
        make_filesystem("ext4", loop.device)
        disk = Disk(loop.device, filesystem="ext4")
        with GuestVM(scratch, image, [disk], extra_monitor="qmp") as vm:
            vm.wait_ready()
            loop.resize(128 << 20)
            ...                              # crustd's turn
            vm.guest_blocksize(disk), vm.guest_size(disk.mount_point)

What stands where Kata puts it: `-name sandbox-ID`, the directory of the VM with pid, qmp.sock and
extra-monitor.sock, disks behind a pci-bridge in slot 2 or on a virtio-scsi controller, node and
device names, and the guest's mount points. What is the test's own: qmp.sock is held by this object
as the shim holds it, the agent is reached through a virtio-serial port (agent.sock), and a second
serial port (control.sock) asks the guest for the truth, see tests/guest/init.c.

Sockets are bound here and handed to QEMU as descriptors, as Kata's Go runtime does; with
layout="rust" QEMU binds its monitors at relative paths in its working directory, as under Kata's
runtime-rs. Nothing here outlives its `with`.
"""

import base64
import dataclasses
import json
import os
import pathlib
import re
import secrets
import socket
import stat
import subprocess
import time

GUEST_SOURCES = pathlib.Path(__file__).resolve().parent.parent / "guest"
KATA_STORAGE = "/run/kata-containers/sandbox/storage/"
SERIAL_AGENT = ("--listen", "serial:///dev/virtio-ports/crust")
POLL_SECONDS = 0.02

# What the kernel would spend time on, and what a software-emulated CPU makes slow.
KERNEL_PARAMETERS = (
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check"
    " cryptomgr.notests rcupdate.rcu_expedited=1 random.trust_cpu=on"
)


class GuestError(Exception):
    """The guest, QEMU or a helper program did not do what it was asked to."""


class QmpError(GuestError):
    """QEMU's answer to a command was an error."""

    def __init__(self, error):
        super().__init__(f"{error['class']}: {error['desc']}")
        self.error_class = error["class"]
        self.description = error["desc"]


def run(*command):
    """Runs a program to its end; returns what it printed, raises GuestError if it failed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def wait_until(condition, seconds, what):
    """Returns the first true value of condition(); raises GuestError after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise GuestError(f"waited {seconds} s for {what}")
        time.sleep(POLL_SECONDS)


# ---------------------------------------------------------------------------------- image


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
    if _is_stale(init, GUEST_SOURCES / "init.c"):
        partial = cache / f"init.{os.getpid()}"
        compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-static", "-s"]
        run(*compiler, "-o", partial, GUEST_SOURCES / "init.c")
        partial.rename(init)
    if _is_stale(initramfs, init, agent, make_initramfs, kernel / "version"):
        run(make_initramfs, kernel, init, agent, initramfs)
    return GuestImage(kernel / "vmlinuz", initramfs)


def _is_stale(target, *sources):
    if not target.exists():
        return True
    made = target.stat().st_mtime_ns
    return any(os.stat(source).st_mtime_ns > made for source in sources)


# ---------------------------------------------------------------------------------- disks


class LoopDevice:
    """A loop device over a sparse file, in a size that can change. Detached by name at the end."""

    def __init__(self, path, size):
        self.path = pathlib.Path(path)
        with open(self.path, "wb") as file:
            file.truncate(size)
        self.device = run("losetup", "--find", "--show", self.path)

    @property
    def size(self):
        """Bytes, as the host's kernel sees it."""
        name = os.path.basename(self.device)
        return int(pathlib.Path(f"/sys/class/block/{name}/size").read_text()) * 512

    def resize(self, size):
        """Makes the device so many bytes large, or small; the kernel announces it."""
        os.truncate(self.path, size)
        run("losetup", "--set-capacity", self.device)

    def close(self):
        if self.device:
            run("losetup", "--detach", self.device)
            self.device = None
            self.path.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def make_filesystem(filesystem, device):
    """mkfs of an ext4, xfs or btrfs on a device or file, without mounting it."""
    options = {
        "ext4": ["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
        "xfs": ["-q", "-f", "-K"],
        "btrfs": ["-q", "-f", "-K"],
    }
    run(f"mkfs.{filesystem}", *options[filesystem], device)


@dataclasses.dataclass
class Disk:
    """One volume as QEMU is told about it and as the guest mounts it. What is left empty is filled
    in as Kata's Go runtime would when the disk comes to a VM."""

    path: str  # a block device, a link to one, or a regular file
    bus: str = "blk"  # "blk": virtio-blk-pci, "scsi": scsi-hd
    filesystem: str | None = None  # None: the guest does not mount it
    options: str = ""  # of the mount: "ro" or the file system's own
    read_only: bool = False
    fdset: bool = False  # QEMU gets a descriptor and /dev/fdset/N, as under runtime-rs
    id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    node_name: str = ""
    device_id: str = ""
    mount_point: str = ""
    address: str = ""  # Kata's: "02/01" behind the bridge, or "0:1" for SCSI id and unit
    qemu_path: str = ""  # what QEMU was given: path, or that of the fd set

    def place(self, taken):
        """Takes the first address on its bus that is not taken, and the names that follow."""
        if not self.address:
            form = "0:{0}" if self.bus == "scsi" else "02/{1:02x}"
            addresses = (form.format(number, number + 1) for number in range(31))
            self.address = next(address for address in addresses if address not in taken)
        self.node_name = self.node_name or f"drive-{self.id}"
        self.device_id = self.device_id or f"virtio-drive-{self.id}"
        name = base64.urlsafe_b64encode(self.address.encode()).decode()
        self.mount_point = self.mount_point or KATA_STORAGE + name

    @property
    def guest_name(self):
        """How the guest's init, and the agent, are told which disk is meant."""
        return ("scsi:" if self.bus == "scsi" else "pci:") + self.address

    @property
    def opaque(self):
        """How runtime-rs labels the descriptor."""
        return f"kata-block:{self.node_name}:block-source"

    @property
    def mount_words(self):
        words = [self.guest_name, self.filesystem, self.mount_point]
        return words + [self.options] if self.options else words

    def blockdev(self):
        """Raw over the protocol driver that the path needs."""
        is_block = stat.S_ISBLK(os.stat(self.path).st_mode)
        return {
            "driver": "raw",
            "node-name": self.node_name,
            "read-only": self.read_only,
            "file": {
                "driver": "host_device" if is_block else "file",
                "filename": self.qemu_path,
            },
        }

    def frontend(self):
        device = {"id": self.device_id, "drive": self.node_name, "share-rw": True}
        if self.bus == "scsi":
            target, unit = self.address.split(":")
            device |= {"driver": "scsi-hd", "bus": "scsi0.0", "channel": 0}
            device |= {"scsi-id": int(target), "lun": int(unit)}
        else:
            slot = self.address.rpartition("/")[2]
            device |= {"driver": "virtio-blk-pci", "bus": "pci-bridge-0", "addr": slot}
        return device


# ------------------------------------------------------------------------------- channels


class SocketDirectory:
    """Binds and connects unix sockets by name in a directory whose path may be too long for one."""

    def __init__(self, path):
        self.descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _address(self, name):
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def listen(self, name):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._address(name))
        listener.listen(1)
        return listener

    def connect(self, name):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        try:
            connection.connect(self._address(name))
        except OSError:
            connection.close()
            raise
        return connection

    def close(self):
        os.close(self.descriptor)


class Lines:
    """A connection on which both sides speak in lines."""

    def __init__(self, connection):
        self.connection = connection
        self.reader = connection.makefile("rb")

    def send(self, line):
        self.connection.sendall(line.encode() + b"\n")

    def receive(self):
        line = self.reader.readline()
        if not line.endswith(b"\n"):
            raise GuestError("connection closed")
        return line.decode().strip()

    def close(self):
        self.reader.close()
        self.connection.close()


class Qmp:
    """A client of one QMP monitor, which has it for as long as it is open."""

    def __init__(self, connection):
        self.lines = Lines(connection)
        self.events = []  # seen and not yet waited for, oldest first
        self.greeting = json.loads(self.lines.receive())
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        """Returns the command's result or raises QmpError. A _ in a name stands for a -."""
        arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.lines.send(json.dumps({"execute": command, "arguments": arguments}))
        while True:
            reply = self._receive()
            if "error" in reply:
                raise QmpError(reply["error"])
            if "return" in reply:
                return reply["return"]

    def send_descriptor(self, file):
        """Hands a descriptor over, which the next command may use. The blank is no token."""
        socket.send_fds(self.lines.connection, [b" "], [file.fileno()])

    def wait_event(self, name, **data):
        """Takes the first event of that name and with that data, seen or still to come."""
        while True:
            for event in self.events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    self.events.remove(event)
                    return event
            self._receive()

    def _receive(self):
        reply = json.loads(self.lines.receive())
        if "event" in reply:
            self.events.append(reply)
        return reply

    def close(self):
        self.lines.close()


# ------------------------------------------------------------------------------------- vm


class GuestVM:
    """A running guest. Starts with the object, ends with stop() or its `with`.

    scratch        a directory of the test's; this VM's own files go into work_dir below it
    disks          Disk objects, attached before the guest boots and mounted by it
    vm_dir         Kata's directory of this VM (default: below work_dir); made if it is missing
    layout         "go": descriptors and a pid file; "rust": vm_dir is the bundle, relative paths
    extra_monitor  None, "qmp" or "hmp": extra-monitor.sock ("rust": debug-monitor.sock)
    agents         the arguments of each crust-guest-agent; none may be listed
    """

    def __init__(self, scratch, image, disks=(), *, sandbox_id=None, vm_dir=None, layout="go",
                 extra_monitor=None, agents=(SERIAL_AGENT,), kernel_parameters="", hold_qmp=True):
        assert layout in ("go", "rust") and extra_monitor in (None, "qmp", "hmp")
        self.sandbox_id = sandbox_id or secrets.token_hex(32)
        self.image, self.layout, self.agents = image, layout, agents
        self.work_dir = pathlib.Path(scratch).resolve() / f"guest-{self.sandbox_id[:12]}"
        self.work_dir.mkdir()
        self.vm_dir = pathlib.Path(vm_dir or self.work_dir / "vm").resolve()
        self.vm_dir.mkdir(parents=True, exist_ok=True)
        self.console_log = self.work_dir / "console.log"
        self.agent_socket = self.work_dir / "agent.sock"
        self.control_socket = self.work_dir / "control.sock"
        self.qmp_socket = self.vm_dir / "qmp.sock"
        name = "debug-monitor.sock" if layout == "rust" else "extra-monitor.sock"
        self.extra_socket = self.vm_dir / name if extra_monitor else None
        self.kernel_parameters = kernel_parameters
        self.disks = []
        self.process = self.control = self.qmp_client = None
        self._inherited = []  # descriptors that QEMU is started with
        self._fdsets = 0
        self._directories = {}
        self.started = time.monotonic()
        try:
            self._start(disks, extra_monitor)
            if hold_qmp:
                self.hold_qmp()
        except BaseException:
            self.stop()
            raise

    # -- starting

    def _start(self, disks, extra_monitor):
        arguments = self._machine_arguments()
        arguments += ["-qmp", self._monitor_address(self.qmp_socket)]
        if extra_monitor:
            option = {"qmp": "-qmp", "hmp": "-monitor"}[extra_monitor]
            arguments += [option, self._monitor_address(self.extra_socket)]
        for disk in disks:
            self._add_disk(disk)
            arguments += self._disk_arguments(disk)
        arguments += ["-append", self._kernel_command_line()]
        with open(self.work_dir / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(
                arguments, cwd=self.vm_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[item.fileno() for item in self._inherited])
        for item in self._inherited:
            item.close()
        self.control = Lines(self._connect(self.control_socket))

    def _machine_arguments(self):
        control, agent = self._listen(self.control_socket), self._listen(self.agent_socket)
        pid_file = ["-pidfile", str(self.vm_dir / "pid")] if self.layout == "go" else []
        return [
            "qemu-system-x86_64", "-name", f"sandbox-{self.sandbox_id},debug-threads=on", *pid_file,
            "-machine", "q35", "-accel", "tcg", "-cpu", "qemu64", "-smp", "1", "-m", "256",
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initramfs),
            # Firmware gives an empty bridge no windows: the reserves are for disks that come later.
            "-device", "pci-bridge,bus=pcie.0,id=pci-bridge-0,chassis_nr=1,shpc=off,addr=2,"
                       "io-reserve=4k,mem-reserve=1m,pref64-reserve=1m",
            "-device", "virtio-scsi-pci,id=scsi0",
            "-device", "virtio-serial-pci,id=serial0",
            "-serial", f"file:{self.console_log}",
            "-serial", f"unix:fd={control},server=on,wait=off",
            "-chardev", f"socket,id=agent,fd={agent},server=on,wait=off",
            "-device", "virtserialport,bus=serial0.0,chardev=agent,name=crust",
        ]

    def _monitor_address(self, path):
        if self.layout == "rust":
            return f"unix:{path.name},server=on,wait=off"
        return f"unix:fd={self._listen(path)},server=on,wait=off"

    def _listen(self, path):
        """Binds a socket for QEMU; returns the number that the descriptor will have there."""
        listener = self._directory(path.parent).listen(path.name)
        self._inherited.append(listener)
        return listener.fileno()

    def _disk_arguments(self, disk):
        arguments = []
        if disk.fdset:
            file = self._open_fdset(disk)
            self._inherited.append(file)
            arguments += ["-add-fd", f"fd={file.fileno()},set={self._fdsets},opaque={disk.opaque}"]
        arguments += ["-blockdev", json.dumps(disk.blockdev())]
        return arguments + ["-device", json.dumps(disk.frontend())]

    def _add_disk(self, disk):
        disk.place({other.address for other in self.disks})
        disk.qemu_path = str(disk.path)
        self.disks.append(disk)

    def _open_fdset(self, disk):
        """Opens the disk for a new fd set of QEMU's; the caller hands the descriptor over."""
        self._fdsets += 1
        disk.qemu_path = f"/dev/fdset/{self._fdsets}"
        return open(disk.path, "rb" if disk.read_only else "r+b", buffering=0)

    def _kernel_command_line(self):
        words = [KERNEL_PARAMETERS]
        words += ["crust.mount=" + ",".join(d.mount_words) for d in self.disks if d.filesystem]
        words += ["crust.agent=" + ",".join(arguments) for arguments in self.agents]
        line = " ".join(words + [self.kernel_parameters])
        if len(line) >= 2048:
            raise GuestError("kernel command line too long: hotplug some of the disks")
        return line

    # -- channels

    def _directory(self, path):
        if path not in self._directories:
            self._directories[path] = SocketDirectory(path)
        return self._directories[path]

    def _connect(self, path):
        """Connects once QEMU listens there."""

        def attempt():
            self._check_alive()
            try:
                return self._directory(path.parent).connect(path.name)
            except (FileNotFoundError, ConnectionRefusedError):
                return None

        return wait_until(attempt, 30, path)

    def hold_qmp(self):
        """Takes the main monitor, as the shim does. Nobody else is served until release_qmp()."""
        self.qmp_client = Qmp(self._connect(self.qmp_socket))

    def release_qmp(self):
        self.qmp_client.close()
        self.qmp_client = None

    def qmp(self, command, **arguments):
        """A command on the held monitor: vm.qmp("block_resize", node_name=..., size=...)."""
        return self.qmp_client.execute(command, **arguments)

    def console(self):
        """What the guest has printed so far."""
        return self.console_log.read_text(errors="replace") if self.console_log.exists() else ""

    def ask(self, *words):
        """A command to the guest's init; returns the words of its answer or raises GuestError."""
        self.control.send(" ".join(map(str, words)))
        status, *answer = self.control.receive().split()
        if status != "ok":
            raise GuestError(f"guest: {' '.join(map(str, words))}: {' '.join(answer)}")
        return answer

    # -- the guest's view

    def wait_ready(self, seconds=120):
        """Waits until everything is mounted and the agents run; returns the seconds since start."""

        def ready():
            self._check_alive()
            text = self.console()
            failed = re.search(r"guest-failed .*(?=\n)", text)  # the whole line, or it is too early
            if failed:
                raise GuestError(failed.group().strip())
            return "guest-ready" in text

        wait_until(ready, seconds, f"guest-ready in {self.console_log}")
        return time.monotonic() - self.started

    def guest_blocksize(self, disk):
        """Bytes of the disk as the guest's kernel sees it. A Disk, or a name such as "vda"."""
        return int(self.ask("blocksize", getattr(disk, "guest_name", disk))[0])

    def guest_device(self, disk):
        """The kernel's name of the disk in the guest."""
        return self.ask("device", getattr(disk, "guest_name", disk))[0]

    def guest_size(self, path):
        """Total bytes of the file system mounted there, without what it keeps for itself."""
        block, blocks, _ = map(int, self.ask("statfs", path))
        return block * blocks

    def guest_free(self, path):
        block, _, free = map(int, self.ask("statfs", path))
        return block * free

    def guest_write(self, path, size):
        """Writes a pattern that guest_verify() knows; it is on disk when this returns."""
        self.ask("write", path, size)

    def guest_verify(self, path, size):
        self.ask("verify", path, size)

    def guest_mount(self, disk):
        """Mounts a disk that came by hotplug."""
        self.ask("mount", *disk.mount_words)

    def start_agent(self, *arguments):
        """Starts one more agent; returns its pid in the guest."""
        return int(self.ask("agent", ",".join(arguments))[0])

    def signal_agents(self, number):
        """Sends a signal to all agents, e.g. signal.SIGSTOP; returns how many there are."""
        return int(self.ask("signal", int(number))[0])

    # -- the hypervisor's side, done by the holder of qmp.sock

    def block_resize(self, disk, size):
        """What crustd does, for tests that need the guest's side only."""
        self.qmp("block_resize", node_name=disk.node_name, size=size)

    def hotplug(self, disk):
        """Attaches a disk to the running guest, as the shim does, and mounts it if it is to be."""
        self._add_disk(disk)
        if disk.fdset:
            with self._open_fdset(disk) as file:
                self.qmp_client.send_descriptor(file)
                self.qmp("add-fd", fdset_id=self._fdsets, opaque=disk.opaque)
        self.qmp("blockdev-add", **disk.blockdev())
        self.qmp("device_add", **disk.frontend())
        if disk.filesystem:
            self.guest_mount(disk)

    def unplug(self, disk):
        """Unmounts and detaches a disk."""
        if disk.filesystem:
            self.ask("umount", disk.mount_point)
        self.qmp("device_del", id=disk.device_id)
        self.qmp_client.wait_event("DEVICE_DELETED", device=disk.device_id)
        self.qmp("blockdev-del", node_name=disk.node_name)
        self.disks.remove(disk)

    # -- ending

    @property
    def pid(self):
        return self.process.pid

    def is_alive(self):
        return self.process.poll() is None

    def _check_alive(self):
        if not self.is_alive():
            log = (self.work_dir / "qemu.log").read_text(errors="replace")
            raise GuestError(f"QEMU ended with {self.process.returncode}: {log}{self.console()}")

    def power_off(self, seconds=60):
        """Has the guest unmount and power off; its file systems are clean afterwards."""
        self.ask("poweroff")
        self.process.wait(seconds)

    def stop(self):
        """Pulls the plug, if the VM still runs. Its files stay, for the test to read."""
        for channel in (self.control, self.qmp_client):
            if channel:
                channel.close()
        self.control = self.qmp_client = None
        if self.process and self.is_alive():
            self.process.kill()
            self.process.wait()
        for item in self._inherited:
            item.close()
        for directory in self._directories.values():
            directory.close()
        self._directories = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
