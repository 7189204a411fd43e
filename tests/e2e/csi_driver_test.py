# SPDX-License-Identifier: Apache-2.0
"""The example CSI driver, call by call: what csi-sanity does not ask."""

import filecmp
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import unittest

from csi_driver import GROWN, MIB, NODE, SIZE, SOURCE, CsiTest, Pod, program
from go_programs import find_go, locked, run
from programs import needs

try:
    import yaml
except ImportError:
    yaml = None

UID = "11111111-2222-3333-4444-555555555555"
POD = {"name": "web", "namespace": "shop", "uid": UID}
CAP_SYS_RESOURCE = 24


def may_resize_ext4():
    status = pathlib.Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    return effective >> CAP_SYS_RESOURCE & 1


def file_system_bytes(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


class DriverTest(CsiTest):
    def begin(self, crustd=None, arguments=()):
        self.host = self.driver(crustd, arguments)
        self.csi_client = self.client(self.host)
        self.staging = self.host.directory / "staging"
        return self.csi_client

    def target(self, name="pvc-1", pod=UID):
        return f"{self.host.directory}/pods/{pod}/volumes/kubernetes.io~csi/{name}/mount"

    def published(self, client, **options):
        """A volume, staged and published; returns it and its target."""
        capability = options.pop("capability", None)
        volume = client.create(capability=capability, **options.pop("create", {}))
        client.stage(volume, self.staging, capability)
        client.publish(volume, self.target(), self.staging, capability, **options)
        return volume, self.target()

    def end(self, node):
        if hasattr(self, "host"):
            self.host.clean()
        super().end(node)


class OnTheHost(DriverTest):
    """No crustd: the driver mounts, as drivers do."""

    def check_life(self, fs_type, size):
        client = self.begin()
        capability = client.capability(fs_type)
        volume = client.create(size=size, capability=capability)
        self.assertEqual(client.create(size=size, capability=capability), volume)
        target = self.target()
        for _ in range(2):
            client.stage(volume, self.staging, capability)
        self.assertEqual(self.host.mounts(), [], "staging mounts nothing")
        for _ in range(2):
            client.publish(volume, target, self.staging, capability)
        self.assertEqual(self.host.mounts(), [(target, fs_type)])
        file = pathlib.Path(target, "file")
        file.write_text("kept")

        before = file_system_bytes(target)
        self.assertEqual(client.expand_device(volume.volume_id, 2 * size).node_expansion_required, True)
        self.assertEqual(file_system_bytes(target), before)
        for _ in range(2):
            self.assertEqual(client.expand(volume, target, 2 * size), 2 * size)
        self.assertGreater(file_system_bytes(target), before + size * 3 // 4)
        usage = client.stats(volume, target).usage
        self.assertEqual(usage[0].total, file_system_bytes(target))
        self.assertEqual(usage[1].total, os.statvfs(target).f_files)

        for _ in range(2):
            client.unpublish(volume, target)
        self.assertFalse(os.path.exists(target))
        for _ in range(2):
            client.unstage(volume, self.staging)
        self.assertEqual(self.host.devices(), [])
        client.stage(volume, self.staging, capability)
        client.publish(volume, target, self.staging, capability, readonly=True)
        self.assertEqual(file.read_text(), "kept")
        with self.assertRaises(OSError):
            file.write_text("changed")
        with self.fails("FAILED_PRECONDITION", "in use"):
            client.delete(volume)
        client.unpublish(volume, target)
        for _ in range(2):
            client.delete(volume)
        self.assertEqual(list(self.host.files.iterdir()), [])

    def test_ext4(self):
        if not may_resize_ext4():
            self.skipTest("needs CAP_SYS_RESOURCE to resize a mounted ext4")
        self.check_life("ext4", SIZE)

    def test_xfs(self):
        self.check_life("xfs", 320 * MIB)

    def test_the_group_of_a_pod(self):
        client = self.begin()
        capability = client.capability(volume_mount_group="4059")
        volume, target = self.published(client, capability=capability)
        root = os.stat(target)
        self.assertEqual((root.st_gid, root.st_mode & 0o2070), (4059, 0o2070))
        pathlib.Path(target, "file").touch(mode=0o600)
        client.unpublish(volume, target)
        capability = client.capability(volume_mount_group="4060")
        client.publish(volume, target, self.staging, capability)
        file = os.stat(f"{target}/file")
        self.assertEqual((file.st_gid, file.st_mode & 0o777), (4060, 0o660))

    def test_one_pod_or_several(self):
        client = self.begin()
        volume, target = self.published(client)
        with self.fails("FAILED_PRECONDITION", target):
            client.publish(volume, self.target(pod="other"), self.staging)
        shared = client.capability(mode="SINGLE_NODE_MULTI_WRITER")
        client.publish(volume, self.target(pod="other"), self.staging, shared)
        pathlib.Path(target, "file").write_text("both")
        self.assertEqual(pathlib.Path(self.target(pod="other"), "file").read_text(), "both")

    def test_other_contents_are_left_alone(self):
        client = self.begin()
        volume = client.create()
        file = next(self.host.files.iterdir())
        subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True)
        shutil.copy(file, self.scratch / "copy")
        with self.fails("INTERNAL", "other contents"):
            client.stage(volume, self.staging, client.capability("xfs"))
        self.assertTrue(filecmp.cmp(file, self.scratch / "copy", shallow=False))

    def test_ids_that_are_not_its_own(self):
        client = self.begin()
        outside = self.scratch / "victim.img"
        outside.write_text("kept")
        volume = client.create()
        for name in ("../../victim", "csi-../../victim", "victim", "", "csi-none"):
            volume.volume_id = f"{NODE}/{name}"
            client.delete(volume)
            with self.subTest(name), self.fails("NOT_FOUND"):
                client.stage(volume, self.staging)
        self.assertEqual(outside.read_text(), "kept")

    def test_the_volume_of_another_node(self):
        """external-resizer has one leader: it may ask any node's driver."""
        client = self.begin()
        volume, target = self.published(client, create={"size": SIZE})
        elsewhere = volume.volume_id.replace(NODE, "node-2")
        answer = client.expand_device(elsewhere, GROWN)
        self.assertEqual((answer.capacity_bytes, answer.node_expansion_required), (GROWN, True))
        volume_here, volume.volume_id = volume.volume_id, elsewhere
        with self.fails("FAILED_PRECONDITION", "another node"):
            client.delete(volume)
        volume.volume_id = volume_here
        size = next(self.host.files.iterdir()).stat().st_size
        self.assertEqual(size, SIZE)
        if not may_resize_ext4():
            self.skipTest("needs CAP_SYS_RESOURCE to resize a mounted ext4")
        self.assertEqual(client.expand(volume, target, GROWN), GROWN)
        self.assertGreater(file_system_bytes(target), SIZE)

    def test_too_much(self):
        client = self.begin()
        volume = client.create()
        with self.fails("OUT_OF_RANGE", "free space"):
            client.expand_device(volume.volume_id, 1 << 50)
        with self.fails("RESOURCE_EXHAUSTED", "free space"):
            client.create("pvc-2", 1 << 50)
        with self.fails("ALREADY_EXISTS", str(SIZE)):
            client.create(size=GROWN)
        self.assertEqual(len(list(self.host.files.iterdir())), 1)

    def test_unknown_parameters(self):
        client = self.begin()
        with self.fails("INVALID_ARGUMENT", "flavour"):
            client.create(parameters={"flavour": "sweet"})
        with self.fails("INVALID_ARGUMENT", "runtime"):
            client.create(parameters={"runtime": "qemu"})


class InAGuest(DriverTest):
    """Beside crustd, for volumes whose StorageClass says runtime: vm."""

    def setUp(self):
        super().setUp()
        self.crust = self.node()
        self.crust.start()

    def begin(self, crustd=None, arguments=()):
        return super().begin(crustd or self.crust, arguments)

    def published(self, client, **options):
        options.setdefault("create", {})["parameters"] = {"runtime": "vm"}
        return super().published(client, **options)

    def pod(self, target):
        pod = Pod(self.crust, target, 1)
        self.addCleanup(pod.end)
        return pod

    def mount_info(self, target):
        return json.loads((self.crust.directory(target) / "mountInfo.json").read_text())

    def nothing_is_published(self, target):
        self.assertFalse(self.crust.directory(target).exists())
        self.assertFalse(os.path.exists(target))
        self.assertEqual(self.host.mounts(), [])
        self.assertEqual(list((self.host.directory / "state").iterdir()), [])

    def test_unpublished_by_a_downgraded_driver(self):
        """It knew nothing of the record; the driver after it is not held up by what is left."""
        client = self.begin()
        volume, target = self.published(client)
        client.publish(volume, target, self.staging)
        with self.fails("FAILED_PRECONDITION", target):
            client.unstage(volume, self.staging)
        subprocess.run(["umount", target], check=True)
        os.rmdir(target)
        client.unstage(volume, self.staging)
        client.delete(volume)

    def test_life(self):
        client = self.begin()
        volume, target = self.published(client)
        client.publish(volume, target, self.staging)
        device, = self.host.devices()
        self.crust.add_device(device)
        self.assertEqual(self.mount_info(target)["device"], device)
        self.assertEqual(self.host.mounts(), [(target, "tmpfs")])
        with self.assertRaises(OSError, msg="what is written here would be on the node's disk"):
            os.mkdir(f"{target}/subpath")

        # The kubelet expands what was grown before the pod starts, and waits for the answer.
        client.expand_device(volume.volume_id, GROWN)
        self.assertEqual(client.expand(volume, target, GROWN), GROWN)
        with self.fails("UNAVAILABLE", "no sandbox"):
            client.stats(volume, target)
        pod = self.pod(target)
        larger = 2 * GROWN
        client.expand_device(volume.volume_id, larger)
        self.assertEqual(client.expand(volume, target, larger), larger)
        row = self.crust.volume(target)
        self.assertEqual((row["state"], row["guest_bytes"]), ("in_sync", larger))
        pod.agent.stats.used = 7 * MIB
        stats = client.stats(volume, target)
        self.assertEqual((stats.usage[0].total, stats.usage[0].used), (larger, 7 * MIB))
        self.assertFalse(stats.volume_condition.abnormal)

        with self.fails("FAILED_PRECONDITION", target):
            client.unstage(volume, self.staging)
        with self.fails("FAILED_PRECONDITION", target):
            client.delete(volume)
        pod.end()
        for _ in range(2):
            client.unpublish(volume, target)
        self.nothing_is_published(target)
        client.unstage(volume, self.staging)
        client.delete(volume)
        self.assertEqual(self.host.devices(), [])

    def test_raw_device(self):
        """crustd is asked which VM has it, and as long as none has, nobody is kept waiting."""
        client = self.begin()
        volume, target = self.published(client, capability=client.capability(block=True))
        self.assertTrue(client.expand_device(volume.volume_id, GROWN).node_expansion_required)
        self.assertEqual(client.expand(volume, target, GROWN), GROWN)
        self.assertEqual([(one.unit, one.total) for one in client.stats(volume, target).usage], [(1, GROWN)])
        self.assertEqual(self.crust.query("SELECT * FROM audit_volumes"), [])
        self.crust.stop()
        with self.fails("UNAVAILABLE", ""):
            client.expand(volume, target, GROWN)
        with self.fails("UNAVAILABLE", ""):
            client.stats(volume, target)
        for _ in range(2):
            client.unpublish(volume, target)
        client.unstage(volume, self.staging)

    def test_staging_again_writes_nothing(self):
        """The kubelet does so for running pods when it restarts: a guest has the file system then."""
        client = self.begin()
        volume, target = self.published(client)
        self.pod(target)
        file = next(self.host.files.iterdir())
        before = hashlib.sha256(file.read_bytes()).digest()
        client.stage(volume, self.staging)
        client.publish(volume, target, self.staging)
        self.assertEqual(hashlib.sha256(file.read_bytes()).digest(), before)
        self.assertEqual(self.host.mounts(), [(target, "tmpfs")])

    def test_the_record_is_gone(self):
        """The guard alone says that a guest has the volume."""
        client = self.begin()
        volume, target = self.published(client)
        record, = (self.host.directory / "state").iterdir()
        record.unlink()
        volume.volume_context["runtime"] = "host"
        client.publish(volume, target, self.staging)
        self.assertEqual(self.host.mounts(), [(target, "tmpfs")])
        record.unlink()
        client.unpublish(volume, target)
        self.nothing_is_published(target)

    def test_mount_info_has_filtered_options_and_group(self):
        client = self.begin()
        capability = client.capability(
            mount_flags=["noatime,_netdev", "x-systemd.automount", "nofail", "discard"],
            volume_mount_group="4059")
        _, target = self.published(client, capability=capability)
        told = self.mount_info(target)
        self.assertEqual(told["options"], ["noatime", "discard"])
        self.assertEqual((told["fstype"], told["metadata"]["fsGroup"]), ("ext4", "4059"))
        _, target = self.published(client, capability=capability, readonly=True)
        told = self.mount_info(target)
        self.assertEqual(told["options"], ["noatime", "discard", "ro"])
        self.assertNotIn("fsGroup", told["metadata"])  # Kata's agent would fail at the first file

    def test_one_pod_at_a_time(self):
        client = self.begin()
        shared = client.capability(mode="SINGLE_NODE_MULTI_WRITER")
        volume, target = self.published(client, capability=shared)
        for runtime in ("vm", "host"):
            volume.volume_context["runtime"] = runtime
            with self.fails("FAILED_PRECONDITION", target):
                client.publish(volume, self.target(pod="other"), self.staging, shared)
        client.unpublish(volume, target)
        client.publish(volume, target, self.staging, shared)
        self.assertEqual(self.host.mounts(), [(target, "ext4")])
        volume.volume_context["runtime"] = "vm"
        with self.fails("FAILED_PRECONDITION", target):
            client.publish(volume, self.target(pod="other"), self.staging, shared)

    def test_crustd_is_down(self):
        """Nothing is done in its place: not for a new volume, and not for one that a guest has."""
        client = self.begin()
        volume, target = self.published(client)
        pod = self.pod(target)
        other = client.create("pvc-2", parameters={"runtime": "vm"})
        client.stage(other, self.staging)
        self.crust.kill()
        self.host.stop()
        self.host.start()
        client.expand_device(volume.volume_id, GROWN)
        for call in (lambda: client.stats(volume, target), lambda: client.expand(volume, target, GROWN),
                     lambda: client.unpublish(volume, target),
                     lambda: client.publish(volume, target, self.staging),
                     lambda: client.publish(other, self.target("pvc-2"), self.staging)):
            with self.fails("UNAVAILABLE"):
                call()
        self.assertNotIn("ext4", [fs_type for _, fs_type in self.host.mounts()])
        self.crust.start()
        self.crust.wait(lambda: self.served(client, volume, target), 60, "the driver to find crustd")
        self.assertEqual(client.expand(volume, target, GROWN), GROWN)
        client.publish(other, self.target("pvc-2"), self.staging)
        pod.end()
        for one, path in ((volume, target), (other, self.target("pvc-2"))):
            client.unpublish(one, path)
        self.nothing_is_published(target)

    def served(self, client, volume, target):
        try:
            return client.stats(volume, target)
        except Exception as error:
            if "UNAVAILABLE" not in str(error):
                raise
        return None

    def test_a_refusal_is_handed_on(self):
        """crustd refuses to write a secret to disk; the driver does not print it either."""
        client = self.begin()
        with self.fails("INVALID_ARGUMENT"):
            self.published(client, capability=client.capability(mount_flags=["password=do-not-print-me"]))
        self.nothing_is_published(self.target())
        self.assertNotIn("do-not-print-me", self.host.log.read_text())


class Api(http.server.BaseHTTPRequestHandler):
    """An API server with one pod."""

    pod: dict | None = None

    def do_GET(self):
        found = self.pod and self.path == f"/api/v1/namespaces/{POD['namespace']}/pods/{POD['name']}"
        body = json.dumps(self.pod).encode() if found else b"{}"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ByTheRuntimeClass(DriverTest):
    def setUp(self):
        super().setUp()
        crustd = self.node()
        crustd.start()
        self.crust = crustd
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        client = self.begin(crustd, [f"--kubernetes-api=http://127.0.0.1:{server.server_port}",
                                     "--vm-runtime-classes=kata*,runv"])
        self.volume = client.create()
        client.stage(self.volume, self.staging)

    def publish(self, runtime_class, uid=UID, **options):
        Api.pod = {"metadata": {"uid": uid}, "spec": {"runtimeClassName": runtime_class}}
        if runtime_class is None:
            del Api.pod["spec"]["runtimeClassName"]
        self.csi_client.publish(self.volume, self.target(), self.staging, **{"pod": POD} | options)

    def test_a_vms(self):
        for name in ("kata", "kata-qemu", "runv"):
            self.publish(name)
            self.assertTrue(self.crust.directory(self.target()).exists(), name)
            self.publish("runc")  # what was decided for this pod stays
            self.assertEqual(self.host.mounts(), [(self.target(), "tmpfs")])
            self.csi_client.unpublish(self.volume, self.target())

    def test_another_one(self):
        for name in (None, "gvisor", "my-kata"):
            self.publish(name)
            self.assertFalse(self.crust.directory(self.target()).exists(), name)
            self.assertEqual(self.host.mounts(), [(self.target(), "ext4")])
            self.csi_client.unpublish(self.volume, self.target())

    def test_nobody_can_tell(self):
        with self.fails("UNAVAILABLE", "another one by now"):
            self.publish("kata", uid="another")
        with self.fails("FAILED_PRECONDITION", "podInfoOnMount"):
            self.publish("kata", pod={})
        with self.fails("UNAVAILABLE", "404"):
            self.publish("kata", pod=POD | {"name": "gone"})
        self.assertEqual(self.host.mounts(), [])


class TheSource(unittest.TestCase):
    def test_generated_code_is_that_of_the_proto_file(self):
        needs("protoc")
        with locked("crust-csi"):
            go = find_go()
            before = {path: path.read_text() for path in SOURCE.glob("crustv1/*.go")}
            os.environ["PATH"], path = f"{os.path.dirname(go)}:{os.environ['PATH']}", os.environ["PATH"]
            try:
                done = run(str(SOURCE / "crustv1/generate.sh"))
            finally:
                os.environ["PATH"] = path
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({path: path.read_text() for path in before}, before)

    def test_vet(self):
        with locked("crust-csi"):
            go = find_go()
            done = run(go, "vet", "./...", cwd=SOURCE)
            unformatted = run(os.path.join(os.path.dirname(os.path.realpath(go)), "gofmt"), "-l", ".",
                              cwd=SOURCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(unformatted.stdout, "")


class TheManifests(unittest.TestCase):
    """No API server is here: they are held against each other, and against the program's own flags."""

    def setUp(self):
        if yaml is None:
            self.skipTest("needs python3-yaml")
        self.kustomization = yaml.safe_load((SOURCE / "deploy/kustomization.yaml").read_text())
        self.objects = [one for file in self.kustomization["resources"]
                        for one in yaml.safe_load_all((SOURCE / "deploy" / file).read_text())]

    def of_kind(self, kind):
        return [one for one in self.objects if one["kind"] == kind]

    def test_the_program_has_all_flags(self):
        usage = subprocess.run([program(), "--help"], capture_output=True, text=True).stderr
        known = set(re.findall(r"^  -([a-z-]+)", usage, re.M))
        driver = self.containers()["driver"]
        for argument in driver["args"]:
            self.assertIn(re.match(r"--([a-z-]+)", argument)[1], known)

    def containers(self):
        daemon_set, = self.of_kind("DaemonSet")
        return {one["name"]: one for one in daemon_set["spec"]["template"]["spec"]["containers"]}

    def test_each_image_has_a_place(self):
        """No image names a registry: kustomization.yaml is the place for that."""
        images = {one["image"] for one in self.containers().values()}
        self.assertEqual(images, {one["name"] for one in self.kustomization["images"]})
        for image in images:
            self.assertRegex(image, "^[a-z-]+$")

    def test_names_agree(self):
        driver, = self.of_kind("CSIDriver")
        name = driver["metadata"]["name"]
        containers = self.containers()
        self.assertIn(f"--driver-name={name}", containers["driver"]["args"])
        self.assertIn(f"--kubelet-registration-path=/var/lib/kubelet/plugins/{name}/csi.sock",
                      containers["registrar"]["args"])
        storage_class, = self.of_kind("StorageClass")
        self.assertEqual(storage_class["provisioner"], name)
        volumes = {one["name"]: one["hostPath"]["path"]
                   for one in self.of_kind("DaemonSet")[0]["spec"]["template"]["spec"]["volumes"]}
        self.assertEqual(volumes["socket"], f"/var/lib/kubelet/plugins/{name}")
        for container in containers.values():
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)

    def test_example_is_in_its_users_namespace(self):
        """kustomization.yaml puts what it has beside the driver, where kubectl does not look for a claim."""
        self.assertEqual(self.of_kind("PersistentVolumeClaim") + self.of_kind("Pod"), [])
        claim, pod = yaml.safe_load_all((SOURCE / "deploy/example.yaml").read_text())
        storage_class, = self.of_kind("StorageClass")
        self.assertEqual(claim["spec"]["storageClassName"], storage_class["metadata"]["name"])
        volume, = pod["spec"]["volumes"]
        self.assertEqual(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
        self.assertIn("runtimeClassName", pod["spec"])
