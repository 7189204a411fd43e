# SPDX-License-Identifier: Apache-2.0
"""The CRUST directory: volumes whose directory's name is a hash, the paths found behind it, and
what bypasses the metadata."""

import hashlib
import json
import os
import shutil

from scratch_node import AFTER, SANDBOX, ScratchNodeTest, Volume, publish_path


class CrustDirectoryTest(ScratchNodeTest):
    """Each test has a node of its own, with a volumes directory of the KEP's layout."""

    def make_node(self, **settings):
        node = self.node(settings)
        (node.root / "run/crust").mkdir(mode=0o700, parents=True)
        return node

    def wait_for_key(self, node, key, **columns):
        def reached():
            rows = node.query(f"SELECT * FROM audit_volumes WHERE key = '{key}'"
                              " ORDER BY volume_id DESC LIMIT 1")
            row = rows[0] if rows else {}
            return row if row and all(row[name] == value for name, value in columns.items()) \
                else None

        return node.wait(reached, 60, f"{key}: {columns}")

    def stage_hidden(self, node, path, device="/dev/absent"):
        """Staged in the CRUST directory; returns its volume once it is there, without a path."""
        key = node.stage(path, device, layout="crust").name
        return self.wait_for_key(node, key, target_path=None, state="unbound")

    def publish(self, node, path, **data):
        """What the kubelet makes before it calls the driver."""
        directory = node.path(os.path.dirname(path))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "vol_data.json").write_text(json.dumps(
            {"driverName": "csi.example", "volumeHandle": "vol-1"} | data))

    # names and paths

    def test_path_is_found_when_the_kubelet_makes_it(self):
        node = self.make_node()
        node.start()
        path = publish_path("pv-late")
        first = self.stage_hidden(node, path)
        self.publish(node, path)
        row = node.wait_for(path, "unbound", layout="crust", pv="pv-late", driver="csi.example",
                            volume_handle="vol-1")
        self.assertEqual(row["volume_id"], first["volume_id"])
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"), [{"n": 1}])

        node.stop()
        node.start()  # and stays known
        node.wait_for(path, "unbound", volume_id=first["volume_id"])

    def test_data_that_others_can_write(self):
        """The kubelet's file is not read then, and the volume says so; once it is root's alone, it is."""
        node = self.make_node()
        path = publish_path("pv-open")
        self.publish(node, path)
        data = node.path(path).with_name("vol_data.json")
        data.chmod(0o664)
        node.start()
        node.stage(path, "/dev/absent")
        row = node.wait_for(path, "unbound", driver=None, volume_handle=None)
        self.assertIn("vol_data.json: is writable by others than its owner: not read", row["problem"])
        self.explains(node, path, "vol_data.json: is writable by others")
        self.assertEqual(node.log.read_text().count("vol_data.json: is writable"), 1)
        data.chmod(0o644)
        node.wait_for(path, "unbound", driver="csi.example", problem=None)

    def test_the_kubelet_writes_after_the_driver(self):
        node = self.make_node()
        node.start()
        path = publish_path("pv-first")
        node.stage(path, "/dev/absent")
        node.wait_for(path, "unbound", driver=None)
        self.publish(node, path)
        node.wait_for(path, "unbound", driver="csi.example", volume_handle="vol-1")
        node.path(path).mkdir()
        node.path(path).joinpath("csiPlugin.json").touch()
        node.wait(lambda: "csiPlugin.json" in (node.volume(path)["problem"] or ""), 60,
                  "what a tenant wrote to be refused")

    def test_path_is_there_before_the_name(self):
        node = self.make_node(**{"resize.sweep_seconds": 3600})
        path = publish_path("pv-early")
        self.publish(node, path)
        node.start()
        node.stage(path, "/dev/absent", layout="crust")
        node.wait_for(path, "unbound", pv="pv-early")

    def test_path_is_a_prefix_of_what_a_container_mounts(self):
        node = self.make_node(**{"resize.sweep_seconds": 3600})
        above, later = "/srv/volumes/above", "/srv/volumes/later"
        run = self.containers(node).run
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid)
        run((f"{later}/deep/within", "/data"))
        node.start()
        node.wait_alive()
        first = self.stage_hidden(node, above)
        run((above, "/above"))
        node.wait_for(above, "blocked", "no_device", volume_id=first["volume_id"])
        node.stage(later, "/dev/absent", layout="crust")  # after its container
        self.wait_for_key(node, hashlib.sha256(later.encode()).hexdigest(), target_path=later)

    def test_hashed_and_plain_name_are_one_volume(self):
        node = self.make_node(**{"resize.sweep_seconds": 3600})
        node.start()
        for number, layouts in enumerate((("kata", "crust"), ("crust", "kata"))):
            path = f"/volumes/{number}"
            for layout in layouts:
                name = node.stage(path, "/dev/absent", layout=layout).name
                self.wait_for_key(node, name if layout == "kata" else
                                  node.directory(path, layouts[0]).name, state="unbound")
            first = node.wait_for(path, "unbound", layout="both")
            for directory in (node.directory(path), node.directory(path, "crust")):
                (directory / "mountInfo.json").unlink()
                directory.rmdir()
            node.wait_for(path, "unmanaged", status="removed", volume_id=first["volume_id"])
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"), [{"n": 2}])

    def test_hashed_name_in_both_roots(self):
        node = self.make_node()
        node.start()
        path = publish_path("pv-roots")
        first = self.stage_hidden(node, path)
        kata = node.directory(path).parent / node.directory(path, "crust").name
        kata.mkdir(mode=0o700)
        kata.joinpath("mountInfo.json").write_text(json.dumps({"device": "/dev/absent"}))
        kata.joinpath("mountInfo.json").chmod(0o600)
        self.wait_for_key(node, kata.name, layout="both", volume_id=first["volume_id"])
        self.publish(node, path)
        node.wait_for(path, "unbound", layout="both", volume_id=first["volume_id"])

    def test_resize_of_a_volume_that_is_in_the_crust_directory_only(self):
        node = self.make_node()
        agent = self.agent(node)
        loop = self.loop()
        node.add_device(loop.device)
        path = publish_path("pv-crust")
        self.publish(node, path)
        directory = node.stage(path, loop.device, layout="crust")
        (directory / "runtime-cli").write_text("/usr/bin/kata-runtime")
        (directory / "runtime-cli").chmod(0o600)
        (directory / SANDBOX).touch(mode=0o600)
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid, agent="unix:///agent.sock",
                         drives=[{"device": loop.device, "id": "drive-1", "address": "02/01"}])
        self.monitor(node, Volume(path, loop, "drive-1"))
        node.start()
        row = node.wait_for(path, "in_sync", "none", layout="crust")
        self.assertEqual(row["sandbox_id"], SANDBOX)
        loop.resize(AFTER)
        node.wait_for(path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(self.resize_row(node, path)["to_bytes"], AFTER)
        agent.wait_for_requests(1, method="ResizeVolume")

    # contradictions and bypasses

    def test_directories_that_name_two_devices(self):
        node = self.make_node()
        first, second = self.loop(), self.loop()
        for loop in (first, second):
            node.add_device(loop.device)
        path = publish_path("pv-two")
        node.stage(path, first.device)
        node.stage(path, second.device, layout="crust")
        self.sandbox(node, Volume(path, first, "drive-1"))
        node.start()
        row = node.wait_for(path, "blocked", "entries_disagree", layout="both")
        for device in (first.device, second.device):
            self.assertIn(device, row["evidence"])
        self.explains(node, path, first.device, second.device, "name different devices")
        link = node.path("/dev/disk-by-another-name")
        link.symlink_to(first.device)
        node.stage(path, "/dev/disk-by-another-name", layout="crust")
        row = node.wait_for(path, "unknown", "monitor_missing")
        self.assertNotIn(second.device, row["evidence"] or "")

    def test_bypassed(self):
        node = self.make_node(**{"resize.sweep_seconds": 3600})
        loop = self.loop()
        node.add_device(loop.device)
        path = publish_path("pv-part")
        pod = path.split("/volumes/")[0]
        run = self.containers(node).run
        vmm = node.start_vmm(SANDBOX)
        node.add_sandbox(SANDBOX, vmm.pid)
        node.stage(path, loop.device)
        node.start()
        node.wait_for(path, "unbound")
        for part in (f"{path}/sub", f"{pod}/volume-subpaths/pv-part/app/0"):
            with self.subTest(part):
                bundle = run((part, "/data"), ("/etc/hosts", "/etc/hosts"))
                row = node.wait_for(path, "blocked", "bypassed")
                self.assertIn(part, row["evidence"])
                self.assertIn(SANDBOX, row["evidence"])
                self.explains(node, path, part, "subPath")
                self.assertEqual(node.query("SELECT * FROM audit_mappings"), [])
                shutil.rmtree(bundle)
                node.wait_for(path, "unbound", "none", evidence=None)
        whole, part = run((path, "/data")), run((f"{path}/sub", "/data"))
        node.wait_for(path, "blocked", "bypassed", sandbox_id=SANDBOX)
        shutil.rmtree(part)
        node.wait_for(path, "unknown", sandbox_id=SANDBOX)
        shutil.rmtree(whole)
        node.wait_for(path, "unbound")
        run((f"{pod}/volume-subpaths/pv-part/app/0", "/data"))
        node.wait_for(path, "blocked", "bypassed")
        vmm.stop()
        node.wait_for(path, "unbound")

    def test_bypassed_where_the_name_hides_the_path(self):
        node = self.make_node(**{"resize.sweep_seconds": 3600})
        loop = self.loop()
        node.add_device(loop.device)
        node.start_vmm(SANDBOX)
        run = self.containers(node).run
        node.add_sandbox(SANDBOX, node.vmms[-1].pid)
        node.start()
        path = "/srv/volumes/data"
        first = self.stage_hidden(node, path, loop.device)
        run((f"{path}/sub/directory", "/data"))
        node.wait_for(path, "blocked", "bypassed", volume_id=first["volume_id"])

    def test_records_of_the_kubelet(self):
        node = self.make_node()
        path = publish_path("pv-records")
        self.publish(node, path, deferFSMount="true")
        node.path(path).mkdir()
        node.path(path).joinpath("csiPlugin.json").write_text('{"device": "/dev/sda"}')
        node.stage(path, "/dev/absent", layout="crust")
        node.start()
        row = node.wait_for(path, "unbound", defer_fs_mount=1, status="present",
                            device="/dev/absent")
        self.assertIn("csiPlugin.json", row["problem"])
        self.assertIn("refused", row["problem"])
        self.explains(node, path, "csiPlugin.json", "refused")
