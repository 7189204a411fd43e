# SPDX-License-Identifier: Apache-2.0
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

import json
import pathlib
import re
import secrets
import subprocess
import time

from guest_channels import Lines, Qmp, SocketDirectory
from programs import GuestError, wait_until

PROCESSORS = {
    "tcg": ["-accel", "tcg", "-cpu", "qemu64"],
    "kvm": ["-accel", "kvm", "-cpu", "host"],
}
FIRST_BUSES = {"q35": "pcie.0", "pc": "pci.0"}
VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
KATA_SHARED = "/run/kata-containers/shared/containers"
SERIAL_AGENT = ("--listen", "serial:///dev/virtio-ports/crust")

# What the kernel would spend time on, and what a software-emulated CPU makes slow.
KERNEL_PARAMETERS = (
    "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check"
    " cryptomgr.notests rcupdate.rcu_expedited=1 random.trust_cpu=on"
)


class GuestVM:
    """A running guest. Starts with the object, ends with stop() or its `with`.

    scratch        a directory of the test's; this VM's own files go into work_dir below it
    disks          Disk objects, attached before the guest boots and mounted by it
    vm_dir         Kata's directory of this VM (default: below work_dir); made if it is missing
    layout         "go": descriptors and a pid file; "rust": vm_dir is the bundle, relative paths
    extra_monitor  None or "qmp": extra-monitor.sock
    agents         the arguments of each crust-guest-agent; none may be listed
    accelerator    "tcg", or "kvm" on a node that has it
    vsock_cid      the guest's context id on vsock; None: it has no vsock
    share          a directory here that the guest mounts where Kata's guests have their shared one,
                   over virtio-fs; None: it has none
    tcp_port       a port of the guest's to be reached by tcp_address(); None: it has no network
    cgroups        whether the guest mounts the cgroup file system
    machine        "q35", or "pc", whose first PCI bus takes disks while the guest runs
    program        the words that start QEMU: another program than QEMU itself may
    memory         of the guest, in MiB
    """

    def __init__(self, scratch, image, disks=(), *, sandbox_id=None, vm_dir=None, layout="go",
                 extra_monitor=None, agents=(SERIAL_AGENT,), kernel_parameters="", hold_qmp=True,
                 accelerator="tcg", vsock_cid=None, share=None, tcp_port=None, cgroups=False,
                 machine="q35", program=("qemu-system-x86_64",), memory=256):
        assert layout in ("go", "rust") and extra_monitor in (None, "qmp")
        self.sandbox_id = sandbox_id or secrets.token_hex(32)
        self.image, self.layout, self.agents = image, layout, agents
        self.accelerator, self.vsock_cid = accelerator, vsock_cid
        self.share, self.tcp_port, self.cgroups = share, tcp_port, cgroups
        self.machine, self.program, self.memory = machine, program, memory
        self.work_dir = pathlib.Path(scratch).resolve() / f"guest-{self.sandbox_id[:12]}"
        self.work_dir.mkdir()
        self.vm_dir = pathlib.Path(vm_dir or self.work_dir / "vm").resolve()
        self.vm_dir.mkdir(parents=True, exist_ok=True)
        self.console_log = self.work_dir / "console.log"
        self.agent_socket = self.work_dir / "agent.sock"
        self.control_socket = self.work_dir / "control.sock"
        self.qmp_socket = self.vm_dir / "qmp.sock"
        self.extra_socket = self.vm_dir / "extra-monitor.sock" if extra_monitor else None
        self.kernel_parameters = kernel_parameters
        self.disks = []
        self.process = self.control = self.qmp_client = self.share_server = None
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
            arguments += ["-qmp", self._monitor_address(self.extra_socket)]
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
            *self.program, "-name", f"sandbox-{self.sandbox_id},debug-threads=on", *pid_file,
            "-machine", self.machine, *PROCESSORS[self.accelerator], "-smp", "1", "-m", str(self.memory),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initramfs),
            # Firmware gives an empty bridge no windows: the reserves are for disks that come later.
            "-device", f"pci-bridge,bus={FIRST_BUSES[self.machine]},id=pci-bridge-0,chassis_nr=1,shpc=off,"
                       "addr=2,io-reserve=4k,mem-reserve=1m,pref64-reserve=1m",
            "-device", "virtio-scsi-pci,id=scsi0",
            "-device", "virtio-serial-pci,id=serial0",
            "-serial", f"file:{self.console_log}",
            "-serial", f"unix:fd={control},server=on,wait=off",
            "-chardev", f"socket,id=agent,fd={agent},server=on,wait=off",
            "-device", "virtserialport,bus=serial0.0,chardev=agent,name=crust",
            *self._vsock_arguments(), *self._share_arguments(), *self._network_arguments(),
        ]

    def _vsock_arguments(self):
        if self.vsock_cid is None:
            return []
        return ["-device", f"vhost-vsock-pci,id=vsock-{self.vsock_cid},guest-cid={self.vsock_cid}"]

    def _share_arguments(self):
        """virtiofsd serves a directory to one guest, whose memory it shares."""
        if self.share is None:
            return []
        path = self.work_dir / "share.sock"
        with self._directory(path.parent).listen(path.name) as listener, \
                open(self.work_dir / "virtiofsd.log", "wb") as log:
            self.share_server = subprocess.Popen(
                [VIRTIOFSD, f"--fd={listener.fileno()}", "-o", f"source={self.share}",
                 "-o", "sandbox=chroot", "--rlimit-nofile=0"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, pass_fds=[listener.fileno()])
        self._inherited.append(self._directory(path.parent).connect(path.name))
        return ["-chardev", f"socket,id=share,fd={self._inherited[-1].fileno()}",
                "-device", "vhost-user-fs-pci,chardev=share,tag=kataShared",
                "-object", f"memory-backend-memfd,id=ram,size={self.memory}M,share=on",
                "-machine", "memory-backend=ram"]

    def _network_arguments(self):
        if self.tcp_port is None:
            return []
        return ["-netdev", f"user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:0-:{self.tcp_port}",
                "-device", "virtio-net-pci,netdev=net0,romfile="]

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
        if self.share is not None:
            words.append(f"crust.mount=kataShared,virtiofs,{KATA_SHARED},ro")
        if self.cgroups:
            words.append("crust.mount=none,cgroup2,/sys/fs/cgroup")
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

    def tcp_address(self):
        """Where the guest's port is reached from here. Needs the main monitor."""
        network = self.qmp("human-monitor-command", command_line="info usernet")
        return "127.0.0.1", int(re.search(r"HOST_FORWARD\]\s+\S+\s+127\.0\.0\.1\s+(\d+)", network)[1])

    def guest_unmount(self, path):
        self.ask("umount", path)

    def freeze(self, path):
        """Writers to that file system wait until thaw()."""
        self.ask("freeze", path)

    def thaw(self, path):
        self.ask("thaw", path)

    def guest_count(self, directory, prefix):
        """How many entries of a directory of the guest's begin with the prefix."""
        return int(self.ask("count", directory, prefix)[0])

    def signal_agents(self, number):
        """Sends a signal to all agents, e.g. signal.SIGSTOP; returns how many there are."""
        return int(self.ask("signal", int(number))[0])

    def start_container(self, container_id):
        """A process with namespaces and a cgroup as kata-agent's containers have; its pid in the guest. What it
        sees is below /proc/PID/root. The guest has the cgroup file system."""
        return int(self.ask("container", container_id)[0])

    def end_container(self, pid):
        self.ask("end", pid)

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
        if self.share_server:  # it has ended with its guest, or nobody ever came
            self.share_server.kill()
            self.share_server.wait()
        for item in self._inherited:
            item.close()
        for directory in self._directories.values():
            directory.close()
        self._directories = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
