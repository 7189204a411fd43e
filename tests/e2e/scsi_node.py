# SPDX-License-Identifier: Apache-2.0
"""A guest that is a node: crustd runs in it, on real SCSI disks and device mapper.

    with ScsiNode(scratch, image, ["one", "two", "two"]) as node:
        disk = node.disks[0]                       # "sda", by whatever name
        node.run("dmsetup create …")               # its lines
        node.resize("one", 128 << 20)              # the array grows; the guest is not told

Two disks of one name are two paths to one. The controller does not announce a resize, as arrays
behind FC and iSCSI do not: a disk's next command meets a unit attention.
"""

import pathlib
import shutil
import subprocess

from guest_channels import Lines, Qmp, SocketDirectory
from guest_image import GUEST_SOURCES, GuestImage
from guestvm import KERNEL_PARAMETERS
from programs import GuestError, run, wait_until

PROGRAMS = ("busybox", "dmsetup")  # of the host's, besides crustd's
SECONDS = 300


def build_node_image(cache, scratch, programs):
    """The kernel from cache; the initramfs is made anew in scratch."""
    cache = pathlib.Path(cache).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    run(GUEST_SOURCES / "fetch-kernel.sh", cache / "kernel")
    initramfs = pathlib.Path(scratch) / "node-initramfs"
    run(GUEST_SOURCES / "make-node-initramfs.sh", cache / "kernel", initramfs,
        *(shutil.which(name) for name in PROGRAMS), *programs)
    return GuestImage(cache / "kernel/vmlinuz", initramfs)


class ScsiNode:

    def __init__(self, scratch, image, disks, size):
        self.scratch = pathlib.Path(scratch)
        self.directory = SocketDirectory(self.scratch)
        self.process = self.lines = self.qmp = None
        for name in set(disks):
            with open(self.scratch / name, "wb") as file:
                file.truncate(size)
        try:
            self._start(image, disks)
            self.disks = [self._find(number) for number in range(len(disks))]
        except BaseException:
            self.stop()
            raise

    def _start(self, image, disks):
        arguments = [
            "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-smp", "1", "-m", "384",
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
            "-append", KERNEL_PARAMETERS, "-serial", f"file:{self.scratch}/console.log",
            "-device", "virtio-scsi-pci,id=scsi0,param_change=off"]
        listeners = [self.directory.listen(name) for name in ("control.sock", "qmp.sock")]
        control, monitor = (listener.fileno() for listener in listeners)
        arguments += ["-serial", f"unix:fd={control},server=on,wait=on",
                      "-qmp", f"unix:fd={monitor},server=on,wait=off"]
        for name in sorted(set(disks)):
            arguments += ["-blockdev", f"driver=raw,node-name={name},file.driver=file,"
                                       f"file.filename={self.scratch}/{name}"]
        for number, name in enumerate(disks):
            arguments += ["-device", f"scsi-hd,bus=scsi0.0,drive={name},scsi-id={number},lun=0,"
                                     f"serial={name},share-rw=on"]
        with open(self.scratch / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, pass_fds=[control, monitor])
        for listener in listeners:
            listener.close()
        connection = self.directory.connect("control.sock")
        connection.settimeout(SECONDS)
        self.lines = Lines(connection)
        if self.lines.receive() != "ready":
            raise GuestError("the node did not begin as it should")
        self.qmp = Qmp(self.directory.connect("qmp.sock"))

    def _find(self, number):
        """The kernel names disks in the order in which it comes to them."""
        directory = f"/sys/class/scsi_device/0:0:{number}:0/device/block"
        return wait_until(lambda: self.run(f"ls {directory} 2>&1 || true"), SECONDS,
                          f"disk {number}")[0]

    def run(self, command, check=True):
        """The lines that a shell command prints in the node."""
        self.lines.send(command)
        lines = []
        while not (line := self.lines.receive()).startswith("done "):
            lines.append(line)
        if check and line != "done 0":
            raise GuestError(f"{command}: {line}: {lines}")
        return lines

    def write(self, path, text):
        """A file of the node's; its text has neither ' nor a backslash."""
        text = text.replace("\n", "\\n")
        self.run(f"mkdir -p {pathlib.Path(path).parent} && printf %b '{text}' > {path}"
                 f" && chmod 600 {path}")

    def resize(self, name, size):
        self.qmp.execute("block_resize", node_name=name, size=size)

    def stop(self):
        for part in (self.qmp, self.lines):
            if part:
                part.close()
        if self.process:
            self.process.kill()
            self.process.wait()
        self.directory.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
