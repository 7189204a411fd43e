# SPDX-License-Identifier: Apache-2.0
"""What is said of a volume whose drive is not in its VM, or which was not seen there: Kata's Go
runtime shares the directory instead of attaching the device, drives come and go with containers,
metadata is rewritten. The monitor's answers and Kata's records are as seen on a real node."""

import json

from node import encode
from rust_runtime import RustPod, guest_name
from scratch_node import AFTER, BEFORE, MIB, SANDBOX, ScratchNodeTest, curl, fake_monitor, metrics_of

OTHER = "b" * 64


class AttachmentTest(ScratchNodeTest):
    """A sandbox of the Go runtime with one app container."""

    def scene(self, monitor=True, attached=True, names=("pv",)):
        """(node, volumes): sandbox and container run; nothing is recorded of the container yet."""
        node = self.node()
        self.guest = self.agent(node)
        volumes = [self.volume(node, name) for name in names]
        self.vmm = self.sandbox(node)
        self.monitor_of = self.monitor(node, *(volumes if attached else ())) if monitor else None
        self.engine = self.containers(node)
        return node, volumes

    def run_container(self, node, *volumes, attached=True, drives=None):
        """What containerd and Kata leave of a container that mounts the volumes."""
        mounts = [(volume.path, f"/data-{number}") for number, volume in enumerate(volumes)]
        bundle = self.engine.run(*mounts)
        if attached:
            drives = drives or [volume.record() for volume in volumes]
            node.add_sandbox(SANDBOX, self.vmm.pid, agent="unix:///agent.sock", drives=drives)
        self.write_record(node, bundle.name, [
            {"Source": volume.loop.device if attached else path, "Destination": to,
             "BlockDeviceID": f"device-{number}" if attached else "", "ReadOnly": False}
            for number, (volume, (path, to)) in enumerate(zip(volumes, mounts))])
        for volume in volumes if attached else ():
            node.record(volume.path, SANDBOX)
        return bundle

    def write_record(self, node, container, mounts, state="running"):
        directory = node.root / "run/vc/sbs" / SANDBOX / container
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "persist.json").write_text(json.dumps({"State": state, "Mounts": mounts}))
        persist = node.root / "run/vc/sbs" / SANDBOX / "persist.json"
        persist.write_text(persist.read_text())  # the runtime writes both

    def end_container(self, node, bundle):
        """Kata unplugs the drives and the sandbox lives on; the engine removes the bundle."""
        for file in bundle.iterdir():
            file.unlink()
        bundle.rmdir()
        record = node.root / "run/vc/sbs" / SANDBOX / bundle.name
        (record / "persist.json").unlink()
        record.rmdir()
        node.add_sandbox(SANDBOX, self.vmm.pid, agent="unix:///agent.sock")

    def running(self):
        """(node, volume, the container's bundle), once the daemon has seen the drive in the VM."""
        node, (volume,) = self.scene()
        bundle = self.run_container(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE, resizable="yes")
        return node, volume, bundle

    def bypassed(self, **scene):
        """(node, volume) of a container that got a directory in the device's place."""
        node, (volume,) = self.scene(**scene)
        self.run_container(node, volume, attached=False)
        node.start()
        return node, volume

    def unplug(self, node, bundle):
        self.monitor_of.drives = []
        self.end_container(node, bundle)

    def plug_again(self, node, volume):
        """For the container's next life, under another name and address."""
        again = fake_monitor.Drive("drive-again", volume.loop.device)
        self.monitor_of.drives = [again]
        self.run_container(node, volume, drives=[volume.record(id=again.node, address="02/1f")])

    def end_sandbox(self, node, volume, bundle):
        self.end_container(node, bundle)
        node.end_sandbox(SANDBOX)
        self.vmm.stop()
        node.wait_for(volume.path, "unbound")
        (node.directory(volume.path) / SANDBOX).unlink()

    def mapping(self, node):
        """The newest."""
        return node.query("SELECT * FROM audit_mappings ORDER BY since DESC LIMIT 1")[0]

    def asked(self):
        return len(self.monitor_of.sent("query-block"))

    def grown(self):
        return [request.size for request in self.guest.requests if request.method == "ResizeVolume"]

    def expand(self, node, volume):
        body = json.dumps({"VolumePath": volume.path, "Size": str(BEFORE)})
        return curl(node, "/direct-volume/resize", "--request", "POST", "--data", body)[0]


class BypassedTest(AttachmentTest):
    """disable_block_device_use = true, the Go runtime's default."""

    def check_bypassed(self, node, volume, *evidence):
        row = node.wait_for(volume.path, "blocked", "bypassed")
        self.assertIsNone(row["hypervisor_bytes"])
        for word in (volume.path, SANDBOX, *evidence):
            self.assertIn(word, row["evidence"])
        self.explains(node, volume.path, "disable_block_device_use",
                      'io.katacontainers.config.hypervisor.disable_block_device_use: "false"',
                      "enable_annotations", "host has mounted")
        self.assertEqual(self.grown(), [])
        self.assertEqual([number for name, number in metrics_of(node).items()
                          if name.startswith("crustd_volumes{") and 'reason="bypassed"' in name], ["1"])

    def attached(self, node):
        """Of each binding, as an auditor reads it."""
        return [row["attached"] for row in node.query("SELECT attached FROM audit_mappings")]

    def test_directory_in_the_place_of_the_device(self):
        node, volume = self.bypassed(attached=False)
        self.check_bypassed(node, volume, "none of the VMM's 0 drives")
        self.assertEqual(self.attached(node), ["no"])

    def test_stock_sandbox_without_a_monitor(self):
        """The runtime's own record says it, where the VMM cannot be asked."""
        node, volume = self.bypassed(monitor=False)
        self.check_bypassed(node, volume, "monitor_missing")
        self.assertEqual(self.attached(node), ["unknown"])

    def test_driver_gets_an_abnormal_condition(self):
        node, volume = self.bypassed(attached=False)
        self.check_bypassed(node, volume)
        code, body = curl(node, f"/direct-volume/stats/{encode(volume.path)}")
        stats = json.loads(body)
        self.assertEqual((code, stats["usage"]), (200, []))
        self.assertTrue(stats["volume_condition"]["abnormal"])
        self.assertIn("(blocked/bypassed)", stats["volume_condition"]["message"])
        self.assertEqual(self.expand(node, volume), 503)
        self.assertEqual(node.volume(volume.path)["reason"], "bypassed")

    def test_container_that_is_starting_is_none(self):
        """The bundle is there before Kata has plugged the drive and written its record."""
        node, (volume,) = self.scene(attached=False)
        node.record(volume.path, SANDBOX)
        bundle = self.engine.run((volume.path, "/data-0"))
        node.start()
        row = node.wait_for(volume.path, "unknown", "drive_not_found")
        self.assertIsNone(row["evidence"])
        self.monitor_of.drives = [fake_monitor.Drive(volume.drive, volume.loop.device)]
        node.add_sandbox(SANDBOX, self.vmm.pid, agent="unix:///agent.sock", drives=[volume.record()])
        self.write_record(node, bundle.name, [
            {"Source": volume.loop.device, "Destination": "/data-0", "BlockDeviceID": "device-0"}])
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)

    def test_unplugged_drive(self):
        node, volume, _ = self.running()
        self.monitor_of.drives = []
        node.crustctl("resync")
        row = node.wait_for(volume.path, "blocked", "bypassed", hypervisor_bytes=None,
                            resizable="no", resizable_reason="bypassed")
        self.assertIn(volume.drive, row["evidence"])
        self.explains(node, volume.path, f"Kata calls the drive {volume.drive}.")
        self.monitor_of.drives = [fake_monitor.Drive(volume.drive, volume.loop.device)]
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE, evidence=None, resizable="yes")
        self.explains(node, volume.path, f"The hypervisor calls the drive {volume.drive}.")
        changes = [json.loads(row["detail"])["to"] for row in node.query(
            "SELECT detail FROM audit_journal WHERE kind = 'resizable_changed' ORDER BY seq")]
        self.assertEqual((changes[0], changes[-1]), ("no/drive_not_found", "yes"))
        self.assertIn("no/bypassed", changes)  # by the third reading

    def test_rust_runtime(self):
        """A directory of the node is shared under the container's id, a device has one of its own."""
        node = self.node()
        self.guest = self.agent(node)
        volume = self.volume(node)
        pod = RustPod(node, SANDBOX)
        pod.start(self, *pod.monitor_arguments, agent_url="unix:///agent.sock")
        container = "c" * 64
        (pod.passthrough / f"{container[:10]}-01234567-data").mkdir()
        pod.write_bundle(container, [(volume.path, "/srv/data")])
        node.start()
        row = node.wait_for(volume.path, "blocked", "bypassed")
        self.assertIn(volume.path, row["evidence"])


class DetachedTest(AttachmentTest):
    """A container ends and is started again, in a sandbox that lives on."""

    def test_container_ends_and_is_restarted(self):
        node, volume, bundle = self.running()
        self.assertEqual(self.grown(), [BEFORE])

        self.unplug(node, bundle)
        node.wait_for(volume.path, "detached", "none", hypervisor_bytes=None, sandbox_id=SANDBOX, stalled=0,
                      next_attempt_at=None, resizable="unknown", resizable_reason="detached")
        self.explains(node, volume.path, "Kata unplugs a container's drives")
        asked = self.asked()
        self.settle(node)
        self.assertEqual(self.asked(), asked)  # nobody polls

        self.plug_again(node, volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE, resizable="yes")
        self.assertEqual(self.grown(), [BEFORE])  # the file system is known to fill it
        mapping = self.mapping(node)
        self.assertEqual((mapping["drive_id"], mapping["until"]), ("drive-again", None))
        self.assertEqual(node.log.read_text().count("sandbox is alive"), 1)

    def test_resize_meanwhile_is_carried_out(self):
        node, volume, bundle = self.running()
        first = self.mapping(node)
        self.assertEqual((first["drive_id"], first["source"]), (volume.drive, "persist"))
        self.unplug(node, bundle)
        node.wait_for(volume.path, "detached")
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "detached", device_bytes=AFTER)
        self.assertEqual((row["reason"], row["stalled"]), ("none", 0))
        self.assertIsNone(self.resize_row(node, volume.path)["finished_at"])

        self.plug_again(node, volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["from_bytes"], resize["to_bytes"], resize["state"]), (BEFORE, AFTER, "in_sync"))
        self.assertIsNotNone(resize["finished_at"])
        self.assertIn(AFTER, self.grown())

        second = self.mapping(node)
        self.assertEqual((second["drive_id"], second["source"]), ("drive-again", "persist"))
        self.assertNotEqual(second["guest_path"], first["guest_path"])
        node.grow(volume, 2 * AFTER)
        self.assertEqual(self.monitor_of.sent("block_resize")[-1].arguments["node-name"], "drive-again")
        self.assertIn(second["guest_path"], [request.path for request in self.guest.requests])

    def test_stopped_container_that_is_not_removed(self):
        node, volume, bundle = self.running()
        self.monitor_of.drives = []
        node.add_sandbox(SANDBOX, self.vmm.pid, agent="unix:///agent.sock")
        self.write_record(node, bundle.name, [
            {"Source": volume.loop.device, "Destination": "/data-0", "BlockDeviceID": "device-0"}],
            state="stopped")
        node.wait_for(volume.path, "detached")


class RewrittenTest(AttachmentTest):

    def test_metadata_names_the_device_of_the_other_volume(self):
        node, volumes = self.scene(names=("pv-a", "pv-b"))
        self.run_container(node, *volumes)
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        attached = node.query("SELECT DISTINCT attached FROM audit_mappings")
        self.assertEqual(attached, [{"attached": "yes"}])
        first, second = volumes
        node.stage(first.path, second.loop.device)
        row = node.wait_for(first.path, "blocked", "identity_mismatch")
        for name in (first.loop.device, second.loop.device):
            self.assertIn(name, row["evidence"])
        explained = node.crustctl("explain", first.path).stdout
        self.assertIn(f"Its device is {second.loop.device}.", explained)
        self.assertNotIn("which leads to", explained)
        row = node.wait_for(second.path, "blocked", "device_shared")
        for name in (first.path, second.path):
            self.assertIn(name, row["evidence"])
        node.stage(first.path, first.loop.device)
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        self.assertEqual(self.monitor_of.sent("block_resize"), [])

    def test_two_volumes_of_one_sandbox_on_one_device(self):
        node, (volume,) = self.scene()
        twin = self.volume(node, "pv-twin")
        node.stage(twin.path, volume.loop.device)
        self.run_container(node, volume)
        node.record(twin.path, SANDBOX)
        node.start()
        for path in (volume.path, twin.path):
            row = node.wait_for(path, "blocked", "device_shared")
            self.assertIn(volume.path, row["evidence"])
            self.assertIn(twin.path, row["evidence"])


class SeenTest(AttachmentTest):
    """In sync is what was seen."""

    def test_vmm_is_asked_once_for_each_binding(self):
        node, volume, _ = self.running()
        asked = self.asked()
        self.assertEqual(asked, 1)
        self.settle(node)
        self.assertEqual(self.asked(), asked)

    def test_vmm_that_cannot_be_asked(self):
        """The VMM opened the device at this size, but nobody has seen it there."""
        node = self.node()
        self.guest = self.agent(node)
        volume = self.volume(node)
        node.start()
        node.wait_for(volume.path, "unbound")  # the device is seen before the VMM starts
        self.sandbox(node, volume)
        row = node.wait_for(volume.path, "in_sync", "unverified", guest_bytes=BEFORE)
        self.assertIsNone(row["hypervisor_bytes"])
        self.assertEqual(self.grown(), [BEFORE])
        self.explains(node, volume.path, "crustd could not check everything")

    def test_file_system_is_grown_once_where_it_is_not_known_to_fill_its_device(self):
        node, (volume,) = self.scene()
        bundle = self.run_container(node, volume)
        self.guest.stats.total = BEFORE
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        self.assertEqual(self.grown(), [BEFORE])
        self.assertIsNone(self.resize_row(node, volume.path))  # nobody waited for a resize

        # Another sandbox has the volume. The file system is known to fill its device, and the guest
        # is asked once all the same: what this guest can do is not known.
        self.end_sandbox(node, volume, bundle)
        second = self.monitor(node, volume, sandbox_id=OTHER)
        self.sandbox(node, volume, sandbox_id=OTHER)
        node.wait_for(volume.path, "in_sync", "none", sandbox_id=OTHER, hypervisor_bytes=BEFORE, resizable="yes")
        self.settle(node)
        self.assertEqual(self.grown(), [BEFORE] * 2)
        self.assertEqual(len(second.sent("query-block")), 1)

        # The device is cut and has its size again: nothing is known of what is on it.
        volume.loop.resize(BEFORE - MIB)
        node.wait_for(volume.path, "shrunk")
        volume.loop.resize(BEFORE)
        node.wait_for(volume.path, "in_sync", "none", device_bytes=BEFORE)
        self.assertEqual(self.grown(), [BEFORE] * 3)

    def test_claim_grown_while_no_pod_ran(self):
        """The device grew between two pods; each VM opens it at the size that it has."""
        node, volume, bundle = self.running()
        self.end_sandbox(node, volume, bundle)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "unbound", device_bytes=AFTER)
        second = self.monitor(node, volume, sandbox_id=OTHER)
        self.sandbox(node, volume, sandbox_id=OTHER)
        node.wait_for(volume.path, "in_sync", "none", sandbox_id=OTHER, hypervisor_bytes=AFTER)
        self.assertEqual(self.grown(), [BEFORE, AFTER])
        self.assertEqual(second.sent("block_resize"), [])


class GuestPathTest(ScratchNodeTest):

    def test_directory_that_was_not_there_at_first(self):
        """runtime-rs makes it when the container exists, long after its bundle."""
        node = self.node({"resize.sweep_seconds": 3600})
        agent = self.agent(node)
        volume = self.volume(node)
        pod = RustPod(node, SANDBOX)
        pod.start(self, *pod.monitor_arguments, agent_url="unix:///agent.sock")
        self.monitor(node, volume, path=pod.monitor_path)
        pod.write_bundle("c" * 64, [(volume.path, "/srv/data")])
        node.start()
        node.wait_for(volume.path, "in_sync", "unverified", hypervisor_bytes=BEFORE)
        node.wait(lambda: self.acts(node, "grow_guest") > 1, 120, "the guest to be tried again")
        name = guest_name("data")
        (pod.passthrough / name).mkdir()
        node.grow(volume, AFTER)
        self.assertIn(name, agent.wait_for_requests(1, method="ResizeVolume")[-1].path)
