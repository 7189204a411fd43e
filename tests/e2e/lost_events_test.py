# SPDX-License-Identifier: Apache-2.0
"""Events that are lost, and 2,000 directories without a gap: all is on record in the end."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from lost import SECONDS, Interrupted, LostTest, rows, wait
from node import VOLUMES, encode
from scratch_node import AFTER, publish_path, status

MOST_EVENTS = 2_000_000  # a storm that has lost nothing by then never will
DIRECTORIES = 2000

# What a CSI driver does by Kata's library, for each line of its input: NAME CONTENT. The others are
# what editors, restorers and careless drivers do.
WRITER = """
import os, sys
root, aside = sys.argv[1:]
def write(directory, text):
    os.makedirs(directory, 0o700, exist_ok=True)
    fd = os.open(directory + "/mountInfo.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, text.encode())
    os.close(fd)
for line in sys.stdin.buffer.read().decode().splitlines():
    act, name, text = line.split(" ", 2)
    directory = root + "/" + name
    if act == "write":
        write(directory, text)
    elif act == "move":  # a directory that was made elsewhere
        write(aside + "/" + name, text)
        os.rename(aside + "/" + name, directory)
    elif act == "replace":  # a file that was made elsewhere
        write(aside + "/" + name, text)
        os.rename(aside + "/" + name + "/mountInfo.json", directory + "/mountInfo.json")
    elif act == "remove":
        os.unlink(directory + "/mountInfo.json")
        os.rmdir(directory)
"""


def mount_info(token):
    return f'{{"volume-type":"block","device":"/dev/absent","fstype":"ext4","options":["{token}"]}}'


class Overflow(LostTest):
    """The daemon is stopped until the kernel has dropped events, and the world changes meanwhile."""

    def setUp(self):
        super().setUp()
        self.scene = Interrupted(self)
        self.node = self.scene.node
        for name in ("removed", "rewritten"):
            self.node.stage(publish_path(name), "/dev/absent", options=["before"])

    def overflows(self, source):
        return next(one["overflows"] for one in status(self.node)["sources"]
                    if one["name"] == source)

    def change(self):
        """Changes that no event announces to the daemon."""
        self.node.unstage(publish_path("removed"))
        self.node.stage(publish_path("rewritten"), "/dev/absent", options=["after"])
        self.node.stage(publish_path("added"), "/dev/absent", options=["new"])
        self.scene.forget_requests()
        self.scene.grow(AFTER)

    def wait_changed(self, source):
        self.node.wait(lambda: self.overflows(source) > 0, SECONDS, f"an overflow of {source}")
        self.node.wait_for(publish_path("added"), "unbound", options='["new"]')
        self.node.wait_for(publish_path("rewritten"), "unbound", options='["after"]')
        self.node.wait_for(publish_path("removed"), "unmanaged", status="removed")
        self.node.wait_for(self.scene.volume.path, "in_sync", "none", hypervisor_bytes=AFTER,
                           guest_bytes=AFTER)
        self.scene.check_record(expected=1)
        self.scene.check_resized()

    @contextlib.contextmanager
    def stopped(self):
        process = self.node.process
        self.node.wait_for(self.scene.volume.path, "in_sync", "none")
        self.node.wait(lambda: status(self.node)["acts_in_flight"] == 0, SECONDS, "acts to end")
        process.send_signal(signal.SIGSTOP)
        try:
            wait(lambda: state_of(process.pid) == "T", "crustd to stop")
            yield process.pid
        finally:
            process.send_signal(signal.SIGCONT)

    def test_inotify_queue(self):
        most = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        if most > MOST_EVENTS:
            self.skipTest(f"fs.inotify.max_queued_events is {most}, more than can be queued here")
        self.node.start()
        with self.stopped():
            directory = self.node.root / VOLUMES / encode(publish_path("storm"))
            for _ in range(most // 2 + 1):
                directory.mkdir()
                directory.rmdir()
            self.change()
        self.wait_changed("inotify")

    def test_netlink_buffer(self):
        """Without CAP_NET_ADMIN the buffer is as large as net.core.rmem_max allows."""
        if not shutil.which("setpriv"):
            self.skipTest("needs the program setpriv")
        self.node.wrapper = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
        self.node.start()
        with self.stopped() as pid:
            self.storm(pid)
            self.change()
        self.wait_changed("uevent")

    def storm(self, pid):
        """The kernel announces a device that is nothing to the daemon until it drops something."""
        loop = self.loop()
        with open(f"/sys/class/block/{os.path.basename(loop.device)}/uevent", "w") as uevent:
            for number in range(MOST_EVENTS):
                uevent.write("change")
                uevent.flush()
                if number % 256 == 0 and uevents_dropped(pid):
                    return
        self.fail(f"the kernel dropped none of {MOST_EVENTS} events")


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def uevents_dropped(pid):
    """By the kernel's table of netlink sockets: protocol 15 is NETLINK_KOBJECT_UEVENT, and the first
    one of a process has its pid as port."""
    for line in pathlib.Path("/proc/net/netlink").read_text().splitlines()[1:]:
        _, protocol, port, *_, drops, _ = line.split()
        if (int(protocol), int(port)) == (15, pid):
            return int(drops)
    raise AssertionError(f"process {pid} listens to no uevents")


class Directories(LostTest):
    """A writer that never waits for anybody."""

    def setUp(self):
        super().setUp()
        self.test_node = self.node({"resize.sweep_seconds": 3600})
        self.aside = pathlib.Path(tempfile.mkdtemp(dir=self.test_node.root))

    def write(self, acts):
        """Begins to do them in a process of its own."""
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(self.test_node.root / VOLUMES), str(self.aside)],
            stdin=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for act, path, token in acts:
            process.stdin.write(f"{act} {encode(path)} {mount_info(token)}\n")
        process.stdin.close()
        return process

    def on_record(self):
        """{path: options} of what is there."""
        found = rows(self.test_node.path("/var/lib/crustd/crustd.db"),
                     "SELECT target_path, options, status FROM audit_volumes"
                     " WHERE status <> 'removed'")
        return {row["target_path"]: row["options"] if row["status"] == "present" else row["status"]
                for row in found}

    def wait_recorded(self, wanted):
        wanted = {path: f'["{token}"]' for path, token in wanted.items()}
        try:
            wait(lambda: self.on_record() == wanted, "all to be recorded")
        except AssertionError:
            found = self.on_record()
            missing = [path for path in wanted if wanted[path] != found.get(path)]
            more = [path for path in found if path not in wanted]
            self.fail(f"{len(missing)} not as written, {len(more)} too many: "
                      f"{missing[:3]} {more[:3]}\n{self.test_node.log_tail()}")

    def finish(self, process):
        self.assertEqual(process.wait(SECONDS), 0)

    def test_written_while_starting(self):
        paths = [publish_path(f"pv-{number}") for number in range(DIRECTORIES)]
        process = self.write([("write", path, "new") for path in paths])
        self.test_node.start(ready=False)
        self.finish(process)
        self.wait_recorded(dict.fromkeys(paths, "new"))

    def test_written_while_running(self):
        paths = [publish_path(f"pv-{number}") for number in range(DIRECTORIES)]
        self.test_node.start()
        self.finish(self.write([("write", path, "new") for path in paths]))
        self.wait_recorded(dict.fromkeys(paths, "new"))

    def test_written_again_moved_and_removed(self):
        """Each directory has a history of its own, all of them without a gap."""
        histories = {
            "rewritten": [("write", "one"), ("write", "two"), ("write", "three")],
            "moved": [("move", "moved")],
            "replaced": [("write", "old"), ("replace", "new")],
            "removed": [("write", "gone"), ("remove", "")],
            "returned": [("write", "first"), ("remove", ""), ("write", "second")],
        }
        acts, wanted = [], {}
        for number in range(DIRECTORIES // len(histories)):
            for name, history in histories.items():
                path = publish_path(f"{name}-{number}")
                acts += [(act, path, token) for act, token in history]
                if history[-1][0] != "remove":
                    wanted[path] = history[-1][1]
        self.test_node.start()
        self.finish(self.write(acts))
        self.wait_recorded(wanted)


if __name__ == "__main__":
    unittest.main()
