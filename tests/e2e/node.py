# SPDX-License-Identifier: Apache-2.0
"""A node for tests: a scratch root with Kata's directories, and the real crustd on it.

    with Node(scratch) as node:
        node.add_device(loop.device)                     # the host's /dev, below the root
        node.stage("/var/lib/kubelet/…/mount", loop.device)
        node.add_sandbox(sandbox_id, pid, agent="unix:///agent.sock", drives=[…])
        node.record("/var/lib/kubelet/…/mount", sandbox_id)
        node.start()
        node.wait_for("/var/lib/kubelet/…/mount", "in_sync")

Files are written the way Kata's Go runtime and its CSI drivers write them: in place, not atomically.
The database is read with the sqlite3 tool, read-only, while the daemon writes. Nothing outlives the
`with`.
"""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess

from programs import Closing, GuestError, wait_until

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = (REPOSITORY / os.environ.get("CRUST_BUILD", "build")).resolve()
VOLUMES = "run/kata-containers/shared/direct-volumes"
CONTAINERD = "run/containerd"
TASK = "io.containerd.runtime.v2.task/k8s.io"
TASKS = f"{CONTAINERD}/{TASK}"
SANDBOXES = "io.containerd.sandbox.controller.v1.shim/k8s.io"  # of containerd's sandbox API


class NodeError(Exception):
    """The daemon or the node is not as the test needs it."""


def encode(volume_path):
    """The name of a volume's directory: padded base64url of its path."""
    return base64.urlsafe_b64encode(os.fsencode(volume_path)).decode()


def processor_time():
    """What this machine's processors have done since its boot, and what of that its own host took
    away from them, in ticks."""
    ticks = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks), ticks[7]


class Vmm:
    """A process that has a sandbox's id in its arguments, as a VMM has, and does nothing."""

    def __init__(self, sandbox_id, *arguments):
        self.process = subprocess.Popen(
            ["sh", "-c", "read _", "qemu-system-x86_64", "-name",
             f"sandbox-{sandbox_id},debug-threads=on", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.pid = self.process.pid

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Node(Closing):
    """A scratch root directory and at most one crustd on it."""

    def __init__(self, scratch, settings=None, wrapper=()):
        self.root = pathlib.Path(scratch).resolve() / "node"
        self.root.mkdir()
        # Guests are polled where a test wants it: others count the calls that they get.
        # Nor is a helper brought into them where a test is about what their agents can do.
        self.settings = {"resize.sweep_seconds": 2, "guest.stats_seconds": 0,
                         "guest.helper": "off"} | (settings or {})
        self.wrapper = list(wrapper)  # a program that the daemon is run under
        self.programs = BUILD  # whose crustd and crustctl
        self.process = None
        self.vmms = []
        self.log = self.root.parent / "crustd.log"
        for directory in ("dev", "etc/crustd", "run/vc/sbs", "run/vc/vm", "run/crustd",
                          "var/lib/crustd", "var/lib/kubelet", VOLUMES):
            (self.root / directory).mkdir(parents=True, mode=0o700, exist_ok=True)
        self.configure(**{})

    # -- configuration

    def configure(self, **settings):
        """Writes crustd.conf; names with __ for the dot."""
        self.settings |= {name.replace("__", "."): value for name, value in settings.items()}
        sections = {}
        for name, value in self.settings.items():
            section, key = name.split(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        text = "".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items())
        (self.root / "etc/crustd/crustd.conf").write_text(text)

    # -- the host's side

    def path(self, host_path):
        """A host path as one that this test may open."""
        return self.root / str(host_path).lstrip("/")

    def add_device(self, device):
        """Makes /dev/NAME of the node the same device as the host's."""
        here = self.path(device)
        if not here.exists():
            os.mknod(here, 0o600 | stat.S_IFBLK, os.stat(device).st_rdev)
        return here

    def stage(self, volume_path, device, *, layout="kata", volume_type="block", fstype="ext4",
              options=(), metadata=None, text=None):
        """What a CSI driver writes at NodePublish; returns the directory."""
        directory = self.directory(volume_path, layout)
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        if text is None:
            text = json.dumps({"volume-type": volume_type, "device": str(device),
                               "fstype": fstype, "metadata": metadata or {},
                               "options": list(options)})
        with open(directory / "mountInfo.json", "w", opener=private) as file:
            file.write(text)
        return directory

    def directory(self, volume_path, layout="kata"):
        if layout == "crust":
            return self.root / "run/crust" / hashlib.sha256(os.fsencode(volume_path)).hexdigest()
        return self.root / VOLUMES / encode(volume_path)

    def unstage(self, volume_path):
        shutil.rmtree(self.directory(volume_path), ignore_errors=True)

    def record(self, volume_path, sandbox_id):
        """What Kata's Go runtime writes when a container uses the volume."""
        with open(self.directory(volume_path) / sandbox_id, "w", opener=private):
            pass

    def start_vmm(self, sandbox_id, *arguments):
        vmm = Vmm(sandbox_id, *arguments)
        self.vmms.append(vmm)
        return vmm

    def vm_dir(self, sandbox_id):
        directory = self.root / "run/vc/vm" / sandbox_id
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        return directory

    def add_sandbox(self, sandbox_id, pid, *, agent="", drives=(), driver="virtio-blk",
                    hypervisor="qemu", bridge=2):
        """Kata's records of a running sandbox: the pid file and persist.json. drives: dictionaries
        with device (host path), id and address ("02/01" behind the bridge, or "0:1")."""
        (self.vm_dir(sandbox_id) / "pid").write_text(f"{pid}\n")
        directory = self.root / "run/vc/sbs" / sandbox_id
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        persist = self.persist(sandbox_id, pid, agent, drives, driver, hypervisor, bridge)
        (directory / "persist.json").write_text(json.dumps(persist))
        return directory

    def persist(self, sandbox_id, pid, agent, drives, driver, hypervisor, bridge):
        devices = [self._device(number, drive) for number, drive in enumerate(drives)]
        slots = {str(int(drive["address"].split("/")[-1], 16)): drive["id"]
                 for drive in drives if "/" in drive.get("address", "")}
        return {
            "PersistVersion": 2, "State": "running", "SandboxContainer": sandbox_id,
            "Devices": devices,
            "HypervisorState": {
                "Type": hypervisor, "Pid": pid, "UUID": sandbox_id[:32],
                "Bridges": [{"DeviceAddr": slots, "Type": "pci", "ID": "pci-bridge-0",
                             "Addr": bridge}],
            },
            "AgentState": {"URL": agent},
            "Config": {"HypervisorType": hypervisor,
                       "HypervisorConfig": {"BlockDeviceDriver": driver}},
        }

    def _device(self, number, drive):
        host = str(drive["device"])
        node = os.stat(self.path(host))
        is_block = stat.S_ISBLK(node.st_mode)
        major = os.major(node.st_rdev) if is_block else -1
        minor = os.minor(node.st_rdev) if is_block else 0
        file = drive.get("file", f"/dev/{os.path.basename(os.path.realpath(self.path(host)))}"
                         if is_block else host)
        address = drive.get("address", "")
        return {
            "ID": f"device-{number}", "Type": "block", "DevType": "b", "Major": major,
            "Minor": minor, "RefCount": 1, "AttachCount": 1,
            "BlockDrive": {"File": file, "Format": "raw", "ID": drive["id"], "Index": number,
                           "SCSIAddr": address if ":" in address else "", "PCIPath": {},
                           "ShareRW": True, "ReadOnly": drive.get("read_only", False)},
        }

    def end_sandbox(self, sandbox_id):
        """A normal stop: the runtime removes its state."""
        shutil.rmtree(self.root / "run/vc/sbs" / sandbox_id, ignore_errors=True)
        shutil.rmtree(self.root / "run/vc/vm" / sandbox_id, ignore_errors=True)

    # -- the daemon

    def command(self, *arguments):
        return [str(self.programs / "crustd"), "--root", str(self.root), "--log-level", "debug",
                *arguments]

    def start(self, *arguments, ready=True, stdout=None):
        """stdout: a file for what the daemon prints there; it is the log's otherwise."""
        self.started_at = processor_time()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.wrapper + self.command(*arguments),
                                            stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log)
        if ready:
            self.wait_ready()

    def stolen(self):
        """What this machine's host took away from it since the daemon's start: seconds, and their share."""
        total, stolen = (now - then for now, then in zip(processor_time(), self.started_at))
        return stolen / os.sysconf("SC_CLK_TCK"), stolen / max(total, 1)

    def wait_ready(self, seconds=60):
        def answers():
            if self.process.poll() is not None:
                raise NodeError(f"crustd ended with {self.process.returncode}:\n{self.log_tail()}")
            status = self.crustctl("status", "-o", "json", check=False)
            return status.returncode == 0 and json.loads(status.stdout).get("synced")

        self.wait(answers, seconds, "crustd to be ready")

    def once(self, *arguments):
        """crustd --once; returns its summary."""
        done = subprocess.run(self.wrapper + self.command("--once", *arguments),
                              capture_output=True, text=True, timeout=300)
        with open(self.log, "a") as log:
            log.write(done.stderr)
        if done.returncode != 0:
            raise NodeError(f"crustd --once ended with {done.returncode}:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout)

    def stop(self, number=signal.SIGTERM, seconds=60):
        """Ends the daemon; returns its exit status."""
        if not self.process:
            return None
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeError(f"crustd did not stop:\n{self.log_tail()}") from None

    def kill(self):
        return self.stop(signal.SIGKILL)

    def crustctl(self, *arguments, check=True):
        done = subprocess.run([str(self.programs / "crustctl"), "--root", str(self.root), *arguments],
                              capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise NodeError(f"crustctl {' '.join(arguments)}: {done.returncode}: {done.stderr}")
        return done

    def log_tail(self):
        return self.log.read_text(errors="replace")[-6000:] if self.log.exists() else ""

    # -- what is on the record

    def query(self, sql):
        """Rows as dictionaries, by the sqlite3 tool."""
        done = subprocess.run(
            ["sqlite3", "-readonly", "-json", "-cmd", ".timeout 5000",
             str(self.root / "var/lib/crustd/crustd.db"), sql],
            capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise NodeError(f"sqlite3: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else []

    def volume(self, volume_path):
        quoted = volume_path.replace("'", "''")
        rows = self.query(f"SELECT * FROM audit_volumes WHERE target_path = '{quoted}'"
                          " ORDER BY volume_id DESC LIMIT 1")
        return rows[0] if rows else None

    def wait(self, condition, seconds, what):
        try:
            return wait_until(condition, seconds, what)
        except GuestError as error:
            raise NodeError(f"{error}\n{self.log_tail()}") from None

    def wait_for(self, volume_path, state, reason=None, seconds=60, **columns):
        """Waits until the volume's row says so; returns the row."""
        wanted = {"state": state} | ({"reason": reason} if reason else {}) | columns
        last = {}

        def reached():
            row = self.volume(volume_path) or {}
            last.update(row)
            return row if all(row.get(key) == value for key, value in wanted.items()) else None

        try:
            return self.wait(reached, seconds, f"{volume_path}: {wanted}")
        except NodeError as error:
            raise NodeError(f"{error}\nlast row: {last}") from None

    def wait_bound(self, volume_path, seconds=60):
        """Waits until a sandbox is on record as the volume's user, with the size that the device had then. The row names the
        sandbox before that."""
        quoted = volume_path.replace("'", "''")
        self.wait(lambda: self.query(f"SELECT 1 FROM audit_mappings WHERE target_path = '{quoted}' AND until IS NULL"),
                  seconds, f"{volume_path}: bound")

    def wait_rest(self):
        """Waits until nobody is being asked anything."""
        self.wait(lambda: json.loads(self.crustctl("status", "-o", "json").stdout)["acts_in_flight"] == 0, 60,
                  "acts in flight to end")

    def grow(self, volume, size, reason="none", seconds=60, **columns):
        """The volume's device grows; returns the row, once its guest has it."""
        volume.loop.resize(size)
        return self.wait_for(volume.path, "in_sync", reason, seconds, **{"hypervisor_bytes": size} | columns)

    def wait_alive(self, count=1):
        """Waits until so many sandboxes are recorded as alive."""
        self.wait(lambda: len(self.query("SELECT 1 FROM audit_sandboxes WHERE status = 'alive'")) == count, 60,
                  "the sandboxes to be seen")

    # -- the end

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
        for vmm in self.vmms:
            vmm.stop()
        self.vmms = []


def private(path, flags):
    """0600, as os.WriteFile is asked for by Kata."""
    return os.open(path, flags, 0o600)
