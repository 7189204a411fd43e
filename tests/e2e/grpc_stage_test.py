# SPDX-License-Identifier: Apache-2.0
"""crust.v1.Runtime: staging and unstaging as a CSI driver asks for it."""

import base64
import concurrent.futures
import hashlib
import json
import os
import shutil
import stat
import subprocess
import threading

from grpc_client import SECONDS, GrpcTest, Runtime
from node import VOLUMES, encode
from rust_runtime import RustPod, guest_name
from scratch_node import SANDBOX, curl, publish_path, status

DEVICE = "/dev/some-device"
PATH = publish_path("pv-staged")


class StageTest(GrpcTest):
    def start(self, **settings):
        node = self.node({key.replace("__", "."): value for key, value in settings.items()})
        self.daemon(node)
        return node

    def daemon(self, node):
        node.start()
        self.client = Runtime(self, node)

    def stage(self, path=PATH, device=DEVICE, **more):
        self.client.stage(path, device, **more)

    def unstage(self, path=PATH):
        self.client.unstage(path)

    def kinds(self, node):
        return [row["kind"] for row in node.query(
            "SELECT kind FROM audit_journal WHERE kind IN ('volume_staged', 'volume_unstaged')"
            " ORDER BY seq")]

    def read(self, node, layout="kata", path=PATH):
        return json.loads((node.directory(path, layout) / "mountInfo.json").read_text())

    def nothing_is_left(self, node):
        """No name of ours stands in the watched roots or beside them."""
        for workshop in ("run/kata-containers/shared/.crust-stage", "run/.crust-stage"):
            if (node.root / workshop).exists():
                self.assertEqual(os.listdir(node.root / workshop), [])


class Staging(StageTest):
    def test_the_files_that_a_runtime_reads(self):
        node = self.start()
        loop = self.loop()
        node.add_device(loop.device)
        self.stage(device=loop.device, fs_type="xfs", mount_flags=["noatime", 'x="ä,\\'],
                   volume_supplemental_group="4059", policy="ON_ROOT_MISMATCH")
        self.assertEqual(self.read(node), {
            "volume-type": "directvol", "device": loop.device, "fstype": "xfs",
            "metadata": {"fsGroup": "4059", "fsGroupChangePolicy": "OnRootMismatch"},
            "options": ["noatime", 'x="ä,\\']})
        directory = node.directory(PATH)
        self.assertEqual(os.listdir(directory), ["mountInfo.json"])
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE((directory / "mountInfo.json").stat().st_mode), 0o600)
        row = node.volume(PATH)  # on the record by the time of the reply
        self.assertEqual((row["layout"], row["key"], row["status"], row["device"], row["fs_type"],
                          row["pv"]),
                         ("kata", encode(PATH), "present", loop.device, "xfs", "pv-staged"))
        node.wait_for(PATH, "unbound")
        self.assertEqual(self.kinds(node), ["volume_staged"])
        self.nothing_is_left(node)

    def test_a_group_in_both_layouts(self):
        """Group 0 is root's, one like any other. A read-only volume gets none: its files stay as
        they are, and Kata's agent would fail on the first one."""
        node = self.start(crust__stage_layout="both")
        self.stage(volume_supplemental_group="0", policy="ALWAYS")
        for layout in ("kata", "crust"):
            self.assertEqual(self.read(node, layout)["metadata"], {"fsGroup": "0", "fsGroupChangePolicy": "Always"})
        self.stage(volume_supplemental_group="4059", policy="ALWAYS", mount_flags=["ro"])
        for layout in ("kata", "crust"):
            self.assertEqual(self.read(node, layout)["metadata"], {})
        self.stage(volume_supplemental_group="4059", policy="ALWAYS", mount_flags=["ro", "noatime,rw"])  # the last one
        self.assertEqual(self.read(node)["metadata"], {"fsGroup": "4059", "fsGroupChangePolicy": "Always"})

    def test_the_least(self):
        node = self.start()
        self.stage()
        self.assertEqual(self.read(node), {"volume-type": "directvol", "device": DEVICE,
                                           "fstype": "ext4", "metadata": {}, "options": []})

    def test_again(self):
        node = self.start()
        self.stage()
        before = (node.directory(PATH) / "mountInfo.json").stat()
        volume = node.volume(PATH)["volume_id"]
        self.stage()
        self.assertEqual((node.directory(PATH) / "mountInfo.json").stat(), before)
        self.assertEqual(self.kinds(node), ["volume_staged"])
        node.record(PATH, SANDBOX)  # what the runtime puts beside it stays
        self.stage(fs_type="xfs")
        self.assertEqual(self.read(node)["fstype"], "xfs")
        self.assertEqual(set(os.listdir(node.directory(PATH))), {"mountInfo.json", SANDBOX})
        row = node.volume(PATH)
        self.assertEqual((row["volume_id"], row["fs_type"]), (volume, "xfs"))
        self.assertEqual(self.kinds(node), ["volume_staged"] * 2)
        self.nothing_is_left(node)

    def test_unstage(self):
        node = self.start()
        self.stage()
        node.record(PATH, SANDBOX)
        self.unstage()
        self.assertFalse(node.directory(PATH).exists())
        self.assertEqual(node.volume(PATH)["status"], "removed")
        self.unstage()
        self.assertEqual(self.kinds(node), ["volume_staged", "volume_unstaged"])
        self.unstage(publish_path("never"))
        self.stage()
        self.assertEqual(node.volume(PATH)["status"], "present")
        self.nothing_is_left(node)

    def check_unstaged(self, node, volume, vmm):
        """It is visible, with the VM that has it."""
        evidence = f"sandbox {SANDBOX} still has it, in process {vmm.pid}"
        row = node.wait_for(volume.path, "unmanaged", "unstaged", status="removed", sandbox_id=SANDBOX)
        self.assertEqual((row["evidence"], row["resizable"]), (evidence, None))
        self.assertIsNotNone(row["removed_at"])
        self.assertIn("unmanaged/unstaged", node.crustctl("volumes").stdout)
        self.explains(node, volume.path, "that sandbox's VM has not ended", evidence)
        listed = [row["reason"] for row in json.loads(curl(node, "/v1/volumes?live=1")[1])
                  if row["target_path"] == volume.path]
        self.assertEqual(listed, ["unstaged"])

    def check_free(self, node, volume):
        """Nobody has it any more, once crustd has seen why."""
        node.wait(lambda: node.volume(volume.path)["reason"] == "none", 60, "the unstaged volume to end")
        self.assertNotIn("unstaged", node.crustctl("volumes").stdout)
        self.assertRegex(node.crustctl("volumes", "-a").stdout, r" removed\b")
        self.stage(publish_path("pv-other"), volume.loop.device)

    def used_volume(self, node):
        volume = self.volume(node)
        vmm, *_ = self.equip(node, volume)
        node.wait_for(volume.path, "in_sync", "none")
        return volume, vmm

    def test_unstage_beside_a_live_sandbox(self):
        """OK, because a pod must be able to end beside a VMM that hangs. The volume stays visible and its device is given to
        nobody else until the VM has ended."""
        node = self.start()
        volume, vmm = self.used_volume(node)
        self.unstage(volume.path)
        self.assertFalse(node.directory(volume.path).exists())
        self.check_unstaged(node, volume, vmm)
        lines = node.query("SELECT kind, sandbox_id FROM audit_journal WHERE kind IN ('volume_removed', 'volume_unstaged')"
                           " ORDER BY seq")
        self.assertEqual([(line["kind"], line["sandbox_id"]) for line in lines],
                         [("volume_removed", SANDBOX), ("volume_unstaged", SANDBOX)])
        self.assertRegex(node.log.read_text(), f"level=warning .*{SANDBOX}.*its metadata was removed while")
        self.unstage(volume.path)
        for path in publish_path("pv-other"), volume.path:
            with self.fails("UNAVAILABLE", f"in sandbox {SANDBOX} as the unstaged volume {volume.path}"):
                self.stage(path, volume.loop.device)
        node.stop()
        self.daemon(node)
        self.check_unstaged(node, volume, vmm)
        vmm.stop()
        self.check_free(node, volume)

    def test_unstage_of_a_drive_that_is_unplugged(self):
        """Its VM lives on, and has it no more."""
        node = self.start()
        volume, _ = self.used_volume(node)
        self.unstage(volume.path)
        node.wait_for(volume.path, "unmanaged", "unstaged")
        node.add_sandbox(SANDBOX, node.vmms[0].pid, agent="unix:///agent.sock", drives=[])
        self.check_free(node, volume)

    def test_metadata_that_is_removed_by_hand(self):
        node = self.start()
        volume, vmm = self.used_volume(node)
        node.unstage(volume.path)
        self.check_unstaged(node, volume, vmm)
        node.stage(volume.path, volume.loop.device)  # a driver that does not ask crustd
        node.wait(lambda: node.volume(volume.path)["status"] == "present", 60, "the new volume")
        self.assertNotIn("unstaged", node.crustctl("volumes", "-a").stdout)

    def test_a_mount_inside_is_not_emptied(self):
        """Nothing else is taken away either, whichever server is asked."""
        node = self.start()
        self.stage()
        precious = self.scratch / "precious"
        precious.mkdir()
        (precious / "file").write_text("of somebody else")
        inside = node.directory(PATH) / "inside"
        self.mount_for_the_test("--bind", precious, inside)
        for _ in range(2):
            with self.fails("UNAVAILABLE", "inside: something is mounted there", "unmount"):
                self.unstage()
        by_hand = node.crustctl("direct-volume", "remove", "--volume-path", PATH, check=False)
        self.assertEqual((by_hand.returncode, by_hand.stdout), (1, ""))
        self.assertIn("inside: ", by_hand.stderr)
        self.assertEqual((precious / "file").read_text(), "of somebody else")
        self.assertEqual(self.read(node)["device"], DEVICE)
        subprocess.run(["umount", inside], check=True)
        self.unstage()
        self.assertFalse(node.directory(PATH).exists())
        self.nothing_is_left(node)
        self.assert_served(node)

    def test_layouts(self):
        for layout, where in (("kata", {"kata"}), ("crust", {"crust"}), ("both", {"kata", "crust"})):
            node = self.start(crust__stage_layout=layout)
            self.stage()
            self.assertEqual({name for name in ("kata", "crust") if node.directory(PATH, name).exists()}, where)
            row = node.volume(PATH)
            self.assertEqual((row["layout"], row["status"]), (layout, "present"))
            self.assertEqual(len(node.query("SELECT 1 FROM audit_volumes")), 1)
            if layout == "both":
                self.assertEqual(self.read(node), self.read(node, "crust"))
            self.unstage()
            self.assertFalse(any(node.directory(PATH, name).exists() for name in where))
            self.assertEqual(node.volume(PATH)["status"], "removed")

    def test_paths_longer_than_a_name_in_base64(self):
        """Their hash names them, so they work where nothing has to be named in base64."""
        longest = "/" + "/".join("x" * 127 for _ in range(32))[:4094]
        self.assertEqual(len(longest), 4095)
        for path in (publish_path("pv-" + "y" * 150), longest):
            node = self.start(crust__stage_layout="crust")
            self.stage(path=path)
            row = node.wait_for(path, "unbound", status="present")
            self.assertEqual((row["layout"], row["key"]), ("crust", hashlib.sha256(path.encode()).hexdigest()))
            said = json.loads(node.crustctl("-o", "json", "volume", path).stdout)
            self.assertEqual(said["target_path"], path)
            node.stop()
            self.daemon(node)
            self.assertEqual(node.wait_for(path, "unbound")["volume_id"], row["volume_id"])
            self.assertIn("unbound", node.crustctl("explain", path).stdout)
            self.unstage(path)
            self.assertFalse(node.directory(path, "crust").exists())
            node.stop()
        for layout in ("kata", "both"):
            node = self.start(crust__stage_layout=layout)
            with self.fails("INVALID_ARGUMENT", "189", "crust.stage_layout = crust"):
                self.stage(path=longest)
            self.assertEqual(node.query("SELECT * FROM audit_volumes"), [])
            self.unstage(longest)  # nothing to be done is done
            node.stop()

    def test_the_documents_own_service_names(self):
        """They name no package, so neither do clients that are generated from them."""
        node = self.start()
        channel = self.channel(node)

        def call(path, request, reply):
            return channel.unary_unary(path, request_serializer=type(request).SerializeToString,
                                       response_deserializer=reply.FromString)(
                                           request, timeout=SECONDS)

        request, crust = self.client.stage_request(PATH, DEVICE), self.client.messages
        call("/Runtime/RuntimeStageVolume", request, crust.RuntimeStageVolumeResponse)
        self.assertEqual(node.wait_for(PATH, "unbound")["status"], "present")
        management = self.messages("crust_management")
        reply = call("/RuntimeAssistedStorageManagement/RuntimeGetSupportedFileSystems",
                     management.RuntimeGetSupportedFileSystemsRequest(),
                     management.RuntimeGetSupportedFileSystemsResponse)
        self.assertTrue(reply.file_systems)
        health = self.messages("health")
        for service in ("Runtime", "RuntimeAssistedStorageManagement", "crust.v1.Runtime"):
            self.assertEqual(call("/grpc.health.v1.Health/Check",
                                  health.HealthCheckRequest(service=service),
                                  health.HealthCheckResponse).status,
                             health.HealthCheckResponse.SERVING)
        for path in ("/v1.Runtime/RuntimeStageVolume", "/Health/Check", "Runtime/RuntimeStageVolume",
                     "/RuntimeStageVolume"):
            with self.subTest(path), self.fails("UNIMPLEMENTED"):
                call(path, request, crust.RuntimeStageVolumeResponse)

    def test_unstage_in_a_layout_of_yesterday(self):
        node = self.start(crust__stage_layout="both")
        self.stage()
        node.stop()
        node.configure(crust__stage_layout="kata")
        self.daemon(node)
        self.unstage()
        self.assertFalse(node.directory(PATH, "crust").exists())

    def test_unstage_what_a_driver_has_written(self):
        """Under either kind of name, in either root."""
        node = self.start()
        names = encode(PATH), hashlib.sha256(PATH.encode()).hexdigest()
        roots = node.root / VOLUMES, node.root / "run/crust"
        roots[1].mkdir(mode=0o700)
        for directory in (root / name for root in roots for name in names):
            with self.subTest(directory):
                shutil.copytree(node.stage(publish_path("model"), DEVICE), directory)
                node.wait(lambda: (node.volume(PATH) or {}).get("status") == "present", SECONDS, "the volume")
                self.unstage()
                self.assertFalse(directory.exists())
                self.assertEqual(node.volume(PATH)["status"], "removed")
        self.assertEqual(self.kinds(node), ["volume_unstaged"] * 4)
        self.nothing_is_left(node)

    def test_devices(self):
        """A missing device may still appear; a link counts as the device that it leads to."""
        node = self.start()
        loop = self.loop()
        node.add_device(loop.device)
        dev = node.root / "dev"
        (dev / "link").symlink_to(loop.device)
        (dev / "dangling").symlink_to("nothing")
        for device in (loop.device, "/dev/link", "/dev/dangling", "/dev/none"):
            self.stage(device=device)
            self.assertEqual(node.volume(PATH)["device"], device)

    def test_a_device_that_another_pod_has(self):
        node = self.start()
        loop = self.loop()
        node.add_device(loop.device)
        uids = [f"{number}" * 8 + "-0000-4000-8000-000000000000" for number in (1, 2)]
        paths = [publish_path("pv-shared", uid) for uid in uids]
        pods = [node.root / "var/lib/kubelet/pods" / uid for uid in uids]
        for pod in pods:
            pod.mkdir(parents=True)
        calls = [Runtime(self, node).stage(path, loop.device, later=True) for path in paths]
        codes = [call.code().name for call in calls]
        self.assertEqual(sorted(codes), ["OK", "UNAVAILABLE"])
        first = codes.index("OK")
        self.assertIn(f"staged at {paths[first]} for pod {uids[first]}", calls[1 - first].details())
        self.stage(paths[first], loop.device)
        for more in ({}, {"mount_flags": ["ro"]}):
            with self.fails("UNAVAILABLE", paths[first], uids[first]):
                self.stage(paths[1 - first], loop.device, **more)
        self.stage(paths[first], loop.device, mount_flags=["ro"])
        self.stage(paths[1 - first], loop.device, mount_flags=["ro"])
        self.unstage(paths[1 - first])
        self.stage(paths[first], loop.device)
        pods[first].rmdir()
        self.stage(paths[1 - first], loop.device)

    def test_foreign_files_in_the_way(self):
        node = self.start()
        directory = node.directory(PATH)
        directory.symlink_to("/etc")
        with self.fails("UNAVAILABLE", "not a directory"):
            self.stage()
        self.unstage()
        self.assertFalse(os.path.lexists(directory))
        directory.mkdir(mode=0o700)
        (directory / "mountInfo.json").mkdir()
        with self.fails("UNAVAILABLE"):
            self.stage()
        (directory / "mountInfo.json").rmdir()
        (directory / "not a sandbox").write_text("x")
        self.stage()
        row = node.volume(PATH)
        self.assertEqual(row["status"], "present")
        self.assertIn("not a sandbox: not a name that belongs here", row["problem"])
        (directory / "not a sandbox").unlink()
        for number in range(17):
            (directory / f"sandbox-{number}").touch(0o600)
        with self.fails("UNAVAILABLE", "crustctl volume"):
            self.stage()
        self.unstage()
        self.stage()

    def test_a_cut_file_is_replaced(self):
        node = self.start()
        node.stage(PATH, DEVICE, text='{"volume-type"')
        self.stage()
        self.assertEqual(node.volume(PATH)["status"], "present")
        self.assertEqual(self.read(node)["device"], DEVICE)

    def test_roots_are_made(self):
        node = self.start(crust__stage_layout="both")
        os.rmdir(node.root / VOLUMES)
        os.rmdir(node.root / "run/kata-containers/shared")
        self.stage()
        self.assertEqual(self.read(node), self.read(node, "crust"))
        self.assertEqual(stat.S_IMODE((node.root / "run/crust").stat().st_mode), 0o700)

    def test_explain_names_the_runtime_that_ignores_the_group(self):
        node = self.start()
        self.stage(volume_supplemental_group="4059", policy="ALWAYS")
        self.explains(node, PATH, "group 4059 (fsGroup, Always)", "Rust runtime ignores")
        self.sandbox(node)
        node.record(PATH, SANDBOX)
        node.wait_for(PATH, "blocked", "no_device")
        self.assertNotIn("ignores", self.explains(node, PATH, "group 4059"))

    def test_explain_reports_a_group_that_the_runtime_ignores(self):
        node = self.start()
        self.stage(volume_supplemental_group="4059")
        pod = RustPod(node, SANDBOX)
        pod.start(self)
        pod.run_container(PATH, guest_name("data"))
        node.wait_for(PATH, "blocked", "no_device", sandbox_id=SANDBOX)
        self.explains(node, PATH, "group 4059 (fsGroup)", "Kata's in Rust, ignores fsGroup")

    def test_many_at_once(self):
        node = self.start()
        paths = [publish_path(f"pv-{number}") for number in range(200)]
        failures = []

        def work(mine):
            client = Runtime(self, node)
            for path in mine:
                try:
                    client.stage(path, DEVICE)
                except Exception as error:  # told by the main thread
                    failures.append(error)

        threads = [threading.Thread(target=work, args=(paths[start::8],)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        rows = node.query("SELECT target_path FROM audit_volumes WHERE status = 'present'")
        self.assertEqual({row["target_path"] for row in rows}, set(paths))
        self.assertEqual({base64.urlsafe_b64decode(name).decode()
                          for name in os.listdir(node.root / VOLUMES)}, set(paths))

    def test_each_record_of_a_call_names_its_volume(self):
        """Also when the watch has told of the directory's end before the call is recorded."""
        node = self.start()

        def work(number):
            client = Runtime(self, node)
            for count in range(300):
                path = publish_path(f"pv-{number}-{count}")
                client.stage(path, DEVICE)
                client.unstage(path)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        rows = node.query("SELECT j.kind, v.target_path FROM audit_journal j"
                          " LEFT JOIN audit_volumes v USING (volume_id)"
                          " WHERE j.kind IN ('volume_staged', 'volume_unstaged')")
        self.assertEqual(len(rows), 2 * 3 * 300)
        self.assertEqual([row for row in rows if not row["target_path"]], [])

    def test_nothing_is_promised_from_memory(self):
        node = self.start()
        database = node.path("/var/lib/crustd/crustd.db")
        database.unlink()
        database.mkdir()
        (database / "something").touch()
        node.wait(lambda: status(node).get("database") == "memory", SECONDS, "memory")
        with self.fails("UNAVAILABLE", "database"):
            self.stage()
        self.assertFalse(node.directory(PATH).exists())
        node.stage(PATH, DEVICE)
        with self.fails("UNAVAILABLE", "database"):
            self.unstage()
        self.assertTrue(node.directory(PATH).exists())
        health = self.messages("health")
        reply = self.stub(node, "health", "Health").Check(health.HealthCheckRequest(), timeout=SECONDS)
        self.assertEqual(reply.status, health.HealthCheckResponse.NOT_SERVING)

    def test_a_reply_outlives_the_daemon(self):
        node = self.start(crust__stage_layout="crust")
        self.stage()
        node.kill()
        node.start()
        row = node.volume(PATH)
        self.assertEqual((row["status"], row["key"], row["target_path"]),
                         ("present", hashlib.sha256(PATH.encode()).hexdigest(), PATH))
        self.assertEqual(self.kinds(node), ["volume_staged"])
