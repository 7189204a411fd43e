# SPDX-License-Identifier: Apache-2.0
"""crust.v1.Runtime/RuntimeExpandVolume: what a CSI driver that asks for a resize is told, and when."""

import struct

from lower_devices import HEADER, stack
from grpc_client import SECONDS, GrpcTest, Runtime, grpc, socket_of
from http2_client import ACK, CANCEL, PING, RST_STREAM, Http2, frame, message
from programs import needs
from scratch_node import AFTER, BEFORE, SANDBOX, curl, publish_path, status


class ExpandTest(GrpcTest):
    def scene(self, settings=None, behaviour=None):
        """A volume in a sandbox, in sync; returns node and volume."""
        node, volume = self.node_with_volume(settings)
        _, _, self.fake_agent = self.equip(node, volume)
        node.start()
        node.wait_bound(volume.path)
        node.wait_rest()
        if behaviour:
            self.fake_agent.behave("ResizeVolume", behaviour)
        return node, volume

    def expand(self, node, path, *sizes, **options):
        return Runtime(self, node).expand(path, *sizes, **options)


class Grows(ExpandTest):
    def test_it_returns_when_the_guest_has_grown(self):
        node, volume = self.scene()
        volume.loop.resize(AFTER)
        self.assertEqual(self.expand(node, volume.path, AFTER), AFTER)
        row = node.volume(volume.path)  # by the time of the reply
        self.assertEqual((row["state"], row["hypervisor_bytes"], row["guest_bytes"]), ("in_sync", AFTER, AFTER))
        self.assertEqual(self.expand(node, volume.path), AFTER)
        self.assertEqual(self.expand(node, volume.path, BEFORE), AFTER)
        self.assertEqual(self.expand(node, volume.path, AFTER, AFTER), AFTER)
        self.assertEqual(len(node.query("SELECT 1 FROM audit_resizes")), 1)

    def test_many_ask_at_once(self):
        node, volume = self.scene(behaviour="delay=0.5,ok")
        volume.loop.resize(AFTER)
        calls = [self.expand(node, volume.path, AFTER, later=True) for _ in range(20)]
        self.assertEqual({call.result().capacity_bytes for call in calls}, {AFTER})
        self.assertEqual(self.acts(node, "grow_guest"), self.acts(node, "resize_hypervisor") + 1)

    def test_a_volume_known_by_its_hash(self):
        node, volume = self.scene()
        hidden = publish_path("hidden")
        node.stage(hidden, volume.loop.device, layout="crust")
        self.assertEqual(self.expand(node, hidden), BEFORE)
        self.assertEqual(node.volume(hidden)["layout"], "crust")

    def test_a_pause_is_cut_short(self):
        """What waits for its next attempt is tried at once when somebody asks."""
        node, volume = self.scene(behaviour="status:13:resize2fs: bad magic")
        volume.loop.resize(AFTER)
        with self.fails("UNAVAILABLE", "agent_failed", "crustctl explain"):
            self.expand(node, volume.path, AFTER)
        before = self.acts(node, "grow_guest")
        for _ in range(5):
            with self.fails("UNAVAILABLE", "agent_failed"):
                self.expand(node, volume.path, AFTER)
        self.assertGreaterEqual(self.acts(node, "grow_guest"), before + 5)
        self.fake_agent.behave("ResizeVolume", "ok")
        self.assertEqual(self.expand(node, volume.path, AFTER), AFTER)


class BeforeTheSandbox(ExpandTest):
    """The kubelet asks after NodePublishVolume, and starts no sandbox until it is told OK."""

    def debts(self, node):
        return node.query("SELECT sandbox_id, from_bytes, to_bytes, state, finished_at IS NULL AS open"
                          " FROM audit_resizes")

    def owed(self, size, **more):
        return {"sandbox_id": None, "from_bytes": None, "to_bytes": size, "state": "unbound", "open": 1, **more}

    def test_a_debt_is_recorded_and_paid(self):
        node, volume = self.node_with_volume()
        node.start()
        with self.fails("UNAVAILABLE", "on the host"):
            self.expand(node, volume.path, AFTER)
        self.assertEqual(self.debts(node), [])
        for _ in range(2):
            self.assertEqual(self.expand(node, volume.path, BEFORE), BEFORE)
        self.assertEqual(self.debts(node), [self.owed(BEFORE)])
        volume.loop.resize(AFTER)
        self.assertEqual(self.expand(node, volume.path, AFTER), AFTER)
        self.assertEqual(self.debts(node), [self.owed(AFTER)])

        _, _, agent = self.equip(node, volume)
        node.wait_for(volume.path, "in_sync", "none")
        self.assertEqual([request.size for request in agent.requests if request.method == "ResizeVolume"], [AFTER])
        self.assertEqual(self.debts(node), [self.owed(AFTER, sandbox_id=SANDBOX, state="in_sync", open=0)])

    def test_a_debt_outlives_the_daemon(self):
        node, volume = self.node_with_volume()
        node.start()
        self.assertEqual(self.expand(node, volume.path, BEFORE), BEFORE)
        node.kill()
        node.start()
        self.assertEqual(self.debts(node), [self.owed(BEFORE)])

    def test_metadata_of_this_moment(self):
        """Written, and asked about before the watch can have told of it."""
        node = self.node()
        loop = self.loop()
        node.add_device(loop.device)
        node.start()
        for number in range(20):
            path = publish_path(f"pv-{number}")
            node.stage(path, loop.device)
            self.assertEqual(self.expand(node, path, BEFORE), BEFORE)

    def test_a_missing_device_makes_no_debt(self):
        node = self.running_node()
        node.stage(publish_path("nowhere"), "/dev/nowhere")
        with self.fails("UNAVAILABLE", "no_device"):
            self.expand(node, publish_path("nowhere"))
        self.assertEqual(self.debts(node), [])
        self.assertIn("unbound/no_device", node.crustctl("volumes").stdout)
        self.explains(node, publish_path("nowhere"), "leads to nothing on this node", "/dev/nowhere")

class Refusals(ExpandTest):
    def test_before_the_first_scan_is_done(self):
        """Something unknown at that moment may become known later."""
        needs("strace")
        node = self.node(wrapper=["strace", "-D", "-qq", "-o", "/dev/null", "-e", "trace=openat2",
                                  "-e", "inject=openat2:delay_exit=5000"])
        for number in range(60):
            node.stage(publish_path(f"pv-{number}"), "/dev/nothing")
        node.start(ready=False)
        node.wrapper = []  # with -D the process is crustd itself
        node.wait(socket_of(node).exists, SECONDS, "the socket")
        said = []
        while not said or "no such volume" not in said[-1][1]:
            with self.assertRaises(grpc.RpcError) as caught:
                self.expand(node, publish_path("another"))
            said.append((caught.exception.code().name, caught.exception.details()))
        self.assertIn(("UNAVAILABLE", "the first scan is not done yet"), said)
        self.assertEqual({code for code, _ in said}, {"UNAVAILABLE"})

class LowerDevices(ExpandTest):
    """required_bytes is a driver's word for what it has made, which LUKS takes a header from."""

    def stack(self, uuid):
        node = self.node({"resize.sweep_seconds": 3600})
        sysfs, volume, disks = stack(self, node, ["sda"], label="data", uuid=uuid)
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        return node, sysfs, disks["sda"], volume

    def test_a_luks_header_is_not_missing(self):
        node, sysfs, disk, volume = self.stack("CRYPT-LUKS2-0123-data")
        self.assertEqual(self.expand(node, volume.path, BEFORE + HEADER), BEFORE)
        with self.fails("UNAVAILABLE", "on the host"):
            self.expand(node, volume.path, BEFORE + HEADER + 1)
        sysfs.resize("sda", disk, AFTER + HEADER)
        with self.fails("UNAVAILABLE", "host_layer_pending"):
            self.expand(node, volume.path, AFTER + HEADER)
        sysfs.resize("dm-0", volume.loop, AFTER)
        self.assertEqual(self.expand(node, volume.path, AFTER + HEADER), AFTER)

    def test_the_rest_of_a_volume_group_is_no_part_of_a_volume(self):
        node, _, _, volume = self.stack("LVM-abcdef")
        with self.fails("UNAVAILABLE", "on the host"):
            self.expand(node, volume.path, BEFORE + 1)


class Patience(ExpandTest):
    def test_the_time_of_the_call(self):
        node, volume = self.scene(behaviour="silent")
        volume.loop.resize(AFTER)
        with self.fails("DEADLINE_EXCEEDED"):
            self.expand(node, volume.path, AFTER, seconds=1)
        self.is_served(node)
        self.fake_agent.behave("ResizeVolume", "ok")

    def test_a_client_that_gives_up(self):
        node, volume = self.scene(behaviour="delay=1,ok")
        volume.loop.resize(AFTER)
        calls = [self.expand(node, volume.path, AFTER, later=True) for _ in range(10)]
        node.wait(lambda: len(self.fake_agent.requests) > 0, SECONDS, "the agent to be called")
        for call in calls[:9]:
            call.cancel()
        self.assertEqual(calls[9].result().capacity_bytes, AFTER)
        node.wait_for(volume.path, "in_sync")

    def test_clients_that_give_up_are_counted(self):
        """Frames by hand, because only they tell when crustd has the calls: a PING is answered in its
        turn."""
        node, volume = self.scene(behaviour="silent")
        volume.loop.resize(AFTER)
        path = "/crust.v1.Runtime/RuntimeExpandVolume"
        request = self.messages("crust_runtime").RuntimeExpandVolumeRequest(volume_target_path=volume.path)
        line = (f'crustd_operations_seconds_count{{method_name="{path}",grpc_status_code="CANCELLED"}} 9').encode()
        with Http2(socket_of(node)) as client:
            client.begin()
            for stream in range(1, 19, 2):
                client.request(stream, path, message(request.SerializeToString()))
            client.send(frame(PING, 0, 0, bytes(8)))
            self.assertEqual(client.wait_for(PING).flags, ACK)
            for stream in range(1, 19, 2):
                client.send(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))
            node.wait(lambda: line in curl(node, "/metrics")[1].splitlines(), SECONDS, line)
        self.fake_agent.behave("ResizeVolume", "ok")

    def test_stopping_meanwhile(self):
        node, volume = self.scene({"resize.call_timeout_seconds": 3}, behaviour="silent")
        volume.loop.resize(AFTER)
        call = self.expand(node, volume.path, AFTER, later=True)
        node.wait_for(volume.path, "block_grown")
        node.wait(lambda: status(node)["acts_in_flight"], SECONDS, "the call into the guest")
        self.assertEqual(node.stop(), 0)
        with self.fails("UNAVAILABLE"):
            call.result()
