# SPDX-License-Identifier: Apache-2.0
"""The example NRI plugin: a raw block claim that the guest mounts.

The engine's side is containerd's own package (tests/nri), the plugin is the real program beside the real crustd, and
the disks are loop devices. What a kubelet and a CSI driver leave on the node is made by hand, and the test asks again
after a refusal, as a kubelet does.
"""

import hashlib
import json
import os
import re
import stat
import subprocess
import time

from disks import make_filesystem
from go_programs import build, download, find_go, locked, run
from node import REPOSITORY
from programs import needs, wait_until
from scratch_node import AFTER, BEFORE, POD_UID, ScratchNodeTest, Volume
import scratch_node

SOURCE = REPOSITORY / "docs/examples/nri-block-mount"
SECONDS = 120
OTHER_UID = "22222222-2222-3333-4444-555555555555"
KEY = "crustd.dev/mount."
DEVICES = "/dev/crust"


def program():
    return build(SOURCE, ".", "crust-block-mount")


class Engine:
    """The container engine. Its answers are JSON as api.proto has the messages."""

    def __init__(self, directory):
        self.directory, self.socket = directory, directory / "nri.sock"
        self.program = build(REPOSITORY / "tests/nri", ".", "nri-engine", "-tags=nri_no_wasm")
        self.process = None

    def start(self):
        with open(self.directory / "engine.log", "ab") as log:
            self.process = subprocess.Popen([self.program, str(self.socket)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        return self

    def call(self, name, pod=None, container=None):
        print(json.dumps({"call": name, "pod": pod, "container": container}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()


class Plugin:
    def __init__(self, directory, engine, crust_socket):
        self.directory, self.engine = directory, engine
        self.state = directory / "state"
        self.log = directory / "plugin.log"
        self.path = directory / "bin"  # programs that take the place of the node's
        self.path.mkdir()
        self.command = [str(program()), f"--nri-socket={engine.socket}", f"--crust-socket={crust_socket}",
                        f"--kubelet={directory}/kubelet", f"--state-directory={self.state}",
                        "--runtime-handlers=kata,kata-*"]
        self.process = None

    def start(self):
        before = self.engine.call("")["plugins"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}"})
        wait_until(lambda: self.engine.call("")["plugins"] > before, SECONDS, "the plugin to be synchronized")

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait(SECONDS)
            self.process = None

    def formatted(self):
        """How often it has begun to make a file system."""
        return self.log.read_text().count("formatting")

    def replace(self, name, script):
        (self.path / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.path / name).chmod(0o755)


class BlockMountTest(ScratchNodeTest):
    def setUp(self):
        super().setUp()
        needs("blkid", "mkfs.ext4", "mkfs.xfs")
        self.crust = self.running_node()
        directory = self.scratch / "nri"
        directory.mkdir()
        self.engine = Engine(directory).start()
        self.addCleanup(self.engine.stop)
        self.plugin = Plugin(directory, self.engine, self.crust.path("/run/crustd/crust.sock"))
        self.addCleanup(self.plugin.kill)
        self.plugin.start()

    # what kubelet and driver do

    def published(self, pv="pvc-1", uid=POD_UID, loop=None):
        """A disk whose device node a driver has published for a pod."""
        loop = loop or self.loop()
        self.crust.add_device(loop.device)
        place = self.plugin.directory / "kubelet/plugins/kubernetes.io/csi/volumeDevices/publish" / pv / uid
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, 0o600 | stat.S_IFBLK, os.stat(loop.device).st_rdev)
        return loop

    def pod(self, sandbox="a" * 64, uid=POD_UID, handler="kata-qemu", **annotations):
        pod = {"id": sandbox, "name": "db-0", "namespace": "shop", "uid": uid, "runtime_handler": handler,
               "annotations": {KEY + name.replace("_", "."): value
                               for name, value in (annotations or {"data": "ext4"}).items()}}
        self.assertNotIn("error", self.engine.call("RunPodSandbox", pod))
        return pod

    def container(self, pod, *disks, access="rwm", guard=("ro",), name="app"):
        """disks: (path of the mount or the device, loop device). Each mount has its device, and a guard in its place."""
        numbers = [(path if path.startswith("/dev/") else DEVICES + path, os.stat(loop.device).st_rdev)
                   for path, loop in disks]
        mounts = [{"destination": path, "source": "/empty", "type": "bind", "options": ["rbind", *guard]}
                  for path, _ in disks if not path.startswith("/dev/")]
        return {"id": f"{name}-of-{pod['id']}", "pod_sandbox_id": pod["id"], "name": name, "mounts": mounts,
                "linux": {"devices": [{"path": path, "type": "b", "major": os.major(number),
                                       "minor": os.minor(number)} for path, number in numbers],
                          "resources": {"devices": [
                              {"allow": True, "type": "b", "major": {"value": os.major(number)},
                               "minor": {"value": os.minor(number)}, "access": access}
                              for _, number in numbers]}}}

    def created(self, pod, *disks, **options):
        """Asks until the container is created; returns its devices as (path, type) and its mounts by destination."""
        container = self.container(pod, *disks, **options)
        answer = wait_until(lambda: self.unless_refused(pod, container), SECONDS, "a container")
        return ([(one["path"], one["type"]) for one in answer["devices"] or ()],
                {one["destination"]: one for one in answer["mounts"] or ()})

    def as_it_was(self, pod, *disks):
        devices, mounts = self.created(pod, *disks)
        self.assertEqual({kind for _, kind in devices}, {"b"})
        self.assertEqual({one["source"] for one in mounts.values()}, {"/empty"})

    def unless_refused(self, pod, container):
        answer = self.engine.call("CreateContainer", pod, container)
        self.last = answer.get("error", "")
        return None if self.last else answer

    def mounted(self, pod, disk, **options):
        """The source of the one mount that takes a device's place."""
        devices, mounts = self.created(pod, disk, **options)
        self.assertEqual(devices, [(DEVICES + disk[0], "c")], "the VM would get the disk twice")
        self.assertEqual(list(mounts), [disk[0]])
        mount = mounts[disk[0]]
        self.assertEqual((mount["type"], mount["options"]), ("bind", ["rbind", "rprivate", "rw"]))
        self.assertFalse(os.path.exists(mount["source"]), "what a runtime could share instead of the disk")
        return mount["source"]

    def refused(self, words, pod, *disks, **options):
        """Asks until the refusal says these words: what takes long on this machine is asked for again."""
        container = self.container(pod, *disks, **options)

        def says_so():
            self.assertIsNone(self.unless_refused(pod, container), f"created, and not: {words}")
            return words in self.last

        try:
            wait_until(says_so, SECONDS, words)
        except Exception as error:
            raise AssertionError(f"{error}; the last refusal: {self.last}") from None

    def end(self, node_or_pod):
        """Of a pod: its sandbox is stopped and removed."""
        if not isinstance(node_or_pod, dict):
            return super().end(node_or_pod)
        for call in ("StopPodSandbox", "RemovePodSandbox"):
            self.assertNotIn("error", self.engine.call(call, node_or_pod))
        return None

    # what is there then

    def mount_info(self, target):
        return json.loads((self.crust.directory(target) / "mountInfo.json").read_text())

    def is_staged(self, target):
        return self.crust.directory(target).exists()

    def wait_taken_back(self, target):
        wait_until(lambda: not self.is_staged(target) and not os.path.exists(os.path.dirname(target)), SECONDS,
                   f"{target} to be unstaged")

    def type_on(self, loop):
        return subprocess.run(["blkid", "--probe", "-s", "TYPE", "-o", "value", loop.device],
                              capture_output=True, text=True).stdout.strip()

    def digest(self, loop):
        os.sync()
        return hashlib.sha256(loop.path.read_bytes()).hexdigest()


class AClaim(BlockMountTest):
    def test_from_blank_to_grown(self):
        loop = self.published()
        pinned = self.loop_over(loop)  # the kubelet's own, which keeps nobody away
        pod = self.pod()
        target = self.mounted(pod, ("/data", loop))
        self.assertEqual(self.type_on(loop), "ext4")
        told = self.mount_info(target)
        self.assertEqual((told["volume-type"], told["device"], told["fstype"], told.get("options", [])),
                         ("directvol", loop.device, "ext4", []))

        volume = Volume(target, loop, "drive-1")
        vmm, monitor, agent = self.equip(self.crust, volume)
        self.crust.wait_for(target, "in_sync", "none")
        loop.resize(AFTER)
        self.crust.wait_for(target, "in_sync", "none", hypervisor_bytes=AFTER)

        self.assertEqual(self.mounted(pod, ("/data", loop), name="restarted"), target)
        vmm.stop()
        self.crust.end_sandbox(scratch_node.SANDBOX)
        self.end(pod)
        self.wait_taken_back(target)
        subprocess.run(["losetup", "--detach", pinned], check=True)

    def loop_over(self, loop):
        pinned = subprocess.run(["losetup", "--find", "--show", loop.device], capture_output=True, text=True,
                                check=True).stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", pinned], capture_output=True)
        return pinned

    def test_xfs_with_a_group(self):
        loop = self.published(loop=self.loop(320 << 20))
        target = self.mounted(self.pod(data_db="xfs,fsgroup=2000"), ("/data/db", loop))
        self.assertEqual(self.type_on(loop), "xfs")
        told = self.mount_info(target)
        self.assertEqual((told["fstype"], told["metadata"]["fsGroup"]), ("xfs", "2000"))

    def test_two_containers(self):
        """One volume, formatted once. What the guest has on its disk by then is not examined again."""
        loop = self.published()
        pod = self.pod()
        target = self.mounted(pod, ("/data", loop))
        with open(loop.device, "r+b", buffering=0) as disk:
            disk.write(bytes(1 << 20))
        before = self.digest(loop)
        self.assertEqual(self.mounted(pod, ("/data", loop), name="sidecar"), target)
        self.engine.call("RemoveContainer", pod, self.container(pod, ("/data", loop)))
        self.refused("otherwise", pod, ("/data", loop), access="r")
        self.assertEqual((self.plugin.formatted(), self.digest(loop)), (1, before))
        time.sleep(1.5)  # a sweep: nothing that must not happen can be waited for
        self.assertTrue(self.is_staged(target))

    def test_two_claims_and_a_device(self):
        one, two, raw = (self.published(pv) for pv in ("pvc-1", "pvc-2", "pvc-3"))
        pod = self.pod(data_one="ext4", data_two="ext4")
        devices, mounts = self.created(pod, ("/data/one", one), ("/dev/raw", raw), ("/data/two", two))
        self.assertEqual(sorted(devices),
                         [("/dev/crust/data/one", "c"), ("/dev/crust/data/two", "c"), ("/dev/raw", "b")])
        self.assertEqual({path: self.mount_info(mount["source"])["device"] for path, mount in mounts.items()},
                         {"/data/one": one.device, "/data/two": two.device})
        self.assertEqual(self.type_on(raw), "")

    def test_read_only(self):
        for annotation, access in (("ext4", "r"), ("ext4,ro", "rwm")):
            loop = self.published(f"pvc-{access}")
            pod = self.pod(sandbox=access * 20, data=annotation)
            self.refused("not formatted", pod, ("/data", loop), access=access)
            make_filesystem("ext4", loop.device)
            mount = self.created(pod, ("/data", loop), access=access)[1]["/data"]
            self.assertIn("ro", mount["options"])
            self.assertEqual(self.mount_info(mount["source"])["options"], ["ro"])

    def test_other_pods(self):
        """They keep their device, and the guard that nothing can be written to."""
        loop = self.published()
        for handler in ("", "runc"):
            self.as_it_was(self.pod(handler=handler), ("/data", loop))
        self.assertEqual(self.created(self.pod(), ("/dev/raw", loop)), ([("/dev/raw", "b")], {}))
        self.assertEqual(self.created(self.pod()), ([], {}))
        self.assertEqual((self.type_on(loop), os.listdir(self.plugin.state)), ("", []))

    def test_one_sandbox_after_another(self):
        """The kubelet may have removed the first one only when the second one runs."""
        loop = self.published()
        first = self.pod()
        target = self.mounted(first, ("/data", loop))
        second = self.pod(sandbox="b" * 64)
        self.refused("staged at", second, ("/data", loop))
        self.engine.call("StopPodSandbox", first)
        after = self.mounted(second, ("/data", loop))
        self.engine.call("RemovePodSandbox", first)
        self.wait_taken_back(target)
        self.assertTrue(self.is_staged(after))
        self.assertEqual(self.plugin.formatted(), 1)


class ADiskThatIsRefused(BlockMountTest):
    def check(self, words, pod, loop, **options):
        before = self.digest(loop)
        self.refused(words, pod, ("/data", loop), **options)
        self.assertEqual((self.digest(loop), self.plugin.formatted()), (before, 0))

    def test_by_its_contents(self):
        pod = self.pod()
        loop = self.published("xfs", loop=self.loop(320 << 20))
        make_filesystem("xfs", loop.device)
        self.check("has xfs on it and is to be ext4", pod, loop)
        for name, offset, content in (("table", 510, b"\x55\xaa"), ("first", (1 << 20) - 1, b"x"),
                                      ("last", BEFORE - 1, b"x")):
            loop = self.published(name)
            with open(loop.device, "r+b") as disk:
                if name == "table":
                    disk.seek(446)
                    disk.write(bytes.fromhex("000001000c0000000008000000100000"))
                disk.seek(offset)
                disk.write(content)
            self.check("has dos on it" if name == "table" else "blkid does not know", pod, loop)

    def test_existing_file_system_is_kept(self):
        loop = self.published()
        make_filesystem("ext4", loop.device)
        before = self.digest(loop)
        self.mounted(self.pod(), ("/data", loop))
        self.assertEqual((self.digest(loop), self.plugin.formatted()), (before, 0))

    def test_not_this_pods(self):
        words = "no raw block claim that the kubelet has published for this pod"
        self.check(words, self.pod(), self.published(uid=OTHER_UID))
        self.check(words, self.pod(), self.loop())
        self.check("pod uid", self.pod(uid="*"), self.published())

    def test_loop_device_of_the_kubelet(self):
        directory = self.plugin.directory / "kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev"
        directory.mkdir(parents=True)
        scratch, self.scratch = self.scratch, directory
        loop = self.loop()
        self.scratch = scratch
        self.check("the kubelet's loop device", self.pod(), self.published(loop=loop))

    def test_container_has_it_twice(self):
        loop = self.published()
        pod = self.pod()
        before = self.digest(loop)
        self.refused("same disk as /dev/raw", pod, ("/data", loop), ("/dev/raw", loop))
        self.assertEqual(self.digest(loop), before)

    def test_no_guard(self):
        """Without the plugin such a container would write to the image's own directory."""
        self.check("needs a read-only volumeMount at /data", self.pod(), self.published(), guard=("rw",))

    def test_annotation(self):
        loop = self.published()
        self.check("no annotation crustd.dev/mount.data", self.pod(other="ext4"), loop)
        for number, (value, words) in enumerate((("btrfs", '"btrfs"'), ("", '""'), ("ext4,noatime", '"noatime"'),
                                                 ("ext4,fsgroup=me", '"fsgroup=me"'))):
            self.check(words, self.pod(sandbox=f"c{number}", data=value), loop)

    def test_in_use_on_the_node(self):
        loop = self.published()
        held = os.open(loop.device, os.O_RDONLY | os.O_EXCL)
        pod = self.pod()
        self.check("in use on the node", pod, loop)
        os.close(held)
        self.mounted(pod, ("/data", loop))


class WhatIsKilled(BlockMountTest):
    """Each part may be away at any moment, and nothing is done in its place."""

    def test_crustd(self):
        loop = self.published()
        pod = self.pod()
        self.crust.kill()
        self.refused("crust.sock", pod, ("/data", loop))
        self.assertEqual(self.type_on(loop), "", "a disk that may have another user")
        self.crust.start()
        target = self.mounted(pod, ("/data", loop))
        self.crust.kill()
        self.end(pod)
        time.sleep(1.5)
        self.assertTrue(self.is_staged(target))
        self.crust.start()
        self.wait_taken_back(target)

    def test_plugin(self):
        kept, ended = self.published("pvc-1"), self.published("pvc-2", uid=OTHER_UID)
        pod, other = self.pod(), self.pod(sandbox="b" * 64, uid=OTHER_UID)
        target, gone = self.mounted(pod, ("/data", kept)), self.mounted(other, ("/data", ended))
        self.plugin.kill()
        self.as_it_was(pod, ("/data", kept))
        self.end(other)
        self.plugin.start()
        self.wait_taken_back(gone)
        with open(kept.device, "r+b", buffering=0) as disk:
            disk.write(bytes(1 << 20))
        self.assertEqual(self.mounted(pod, ("/data", kept)), target)
        self.assertEqual(self.plugin.formatted(), 2)
        self.end(pod)
        self.wait_taken_back(target)
        self.assertEqual(os.listdir(self.plugin.state), [])

    def test_engine(self):
        """The plugin ends with the connection, and its service manager starts it again."""
        loop = self.published()
        target = self.mounted(self.pod(), ("/data", loop))
        self.engine.stop()
        self.assertEqual(self.plugin.process.wait(SECONDS), 1)
        self.engine.start()
        pod = self.pod()
        self.plugin.start()
        self.assertEqual(self.mounted(pod, ("/data", loop)), target)
        self.end(pod)
        self.wait_taken_back(target)

    def slow_mkfs(self):
        """It holds the disk as mkfs does, writes something, and waits for a file."""
        self.plugin.replace("mkfs.ext4", f'''for device; do :; done
exec python3 - "$@" <<'EOF'
import os, subprocess, sys, time
disk = os.open(sys.argv[-1], os.O_RDWR | os.O_EXCL)
os.write(disk, b"half a file system")
os.fsync(disk)
while not os.path.exists("{self.scratch}/go"):
    time.sleep(0.02)
os.close(disk)
subprocess.run(["{self.real_mkfs()}", *sys.argv[1:]], check=True)
EOF''')

    def real_mkfs(self):
        return subprocess.run(["sh", "-c", "command -v mkfs.ext4"], capture_output=True, text=True).stdout.strip()

    def go(self):
        (self.scratch / "go").touch()

    def test_mkfs_takes_longer_than_the_engine_waits(self):
        self.slow_mkfs()
        loop = self.published()
        pod = self.pod()
        for _ in range(2):
            self.refused("the kubelet asks again", pod, ("/data", loop))
        self.go()
        self.mounted(pod, ("/data", loop))
        self.assertEqual((self.type_on(loop), self.plugin.formatted()), ("ext4", 1))

    def test_plugin_in_mkfs(self):
        """mkfs goes on without the plugin; the next one waits for its end, and makes a file system anew."""
        self.slow_mkfs()
        loop = self.published()
        pod = self.pod()
        self.refused("the kubelet asks again", pod, ("/data", loop))
        wait_until(lambda: loop.path.read_bytes()[:4] == b"half", SECONDS, "mkfs to write")
        self.plugin.kill()
        self.plugin.start()
        self.refused("still being formatted", pod, ("/data", loop))
        self.go()
        self.mounted(pod, ("/data", loop))
        self.assertEqual((self.type_on(loop), self.plugin.formatted()), ("ext4", 2))

    def test_interrupted_mkfs_is_not_another_sandboxs(self):
        """Somebody may have used the disk since: a person decides."""
        self.plugin.replace("mkfs.ext4", 'for device; do :; done; printf half >"$device"; echo broken >&2; exit 1')
        loop = self.published()
        pod = self.pod()
        self.refused("broken", pod, ("/data", loop))
        self.end(pod)
        wait_until(lambda: os.listdir(self.plugin.state) == [], SECONDS, "the record to go")
        (self.plugin.path / "mkfs.ext4").unlink()
        self.refused("blkid does not know", self.pod(sandbox="b" * 64), ("/data", loop))


class TheExample(ScratchNodeTest):
    def test_vet(self):
        for directory in (SOURCE, REPOSITORY / "tests/nri"):
            with locked("nri"):
                go = find_go()
                download(go, directory)
                done = run(go, "vet", "-tags=nri_no_wasm", "./...", cwd=directory)
                unformatted = run(os.path.join(os.path.dirname(os.path.realpath(go)), "gofmt"), "-l", ".",
                                  cwd=directory)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(unformatted.stdout, "")

    def test_unit_has_no_unknown_flag(self):
        usage = subprocess.run([program(), "--help"], capture_output=True, text=True).stderr
        known = set(re.findall(r"^  -([a-z-]+)", usage, re.M))
        unit = (SOURCE / "crust-block-mount.service").read_text()
        self.assertLessEqual(set(re.findall(r"--([a-z-]+)", re.search(r"^ExecStart=.*", unit, re.M)[0])), known)


