# SPDX-License-Identifier: Apache-2.0
"""crust.v1.Runtime/RuntimeGetVolumeStats: the guest's own numbers, by whichever way answers."""


from grpc_client import SECONDS, GrpcTest, Runtime
from scratch_node import AFTER, BEFORE, MIB, SANDBOX, fake_agent
from shim import FakeShim

BYTES, INODES = 1, 2
PER_SANDBOX = 8  # calls at a time


class StatsTest(GrpcTest):
    def scene(self, agent=True, address="unix:///agent.sock", fstype="ext4", **stats):
        node, volume = self.node_with_volume({"resize.call_timeout_seconds": 3}, fstype=fstype)
        self.monitor(node, volume)
        if agent:
            self.fake_agent = self.agent(node)
            self.fake_agent.stats = fake_agent.Stats(
                **{"total": BEFORE, "used": 5 * MIB, "total_inodes": 100, "used_inodes": 7} | stats)
        self.sandbox(node, volume, agent=address)
        node.start()
        node.wait_bound(volume.path)
        node.wait_rest()
        return node, volume

    def stats(self, node, path, **options):
        return Runtime(self, node).stats(path, **options)

    def usage(self, reply):
        return {one.unit: (one.total, one.used, one.available) for one in reply.usage}


class Answers(StatsTest):
    def test_numbers(self):
        node, volume = self.scene()
        reply = self.stats(node, volume.path)
        self.assertEqual(self.usage(reply), {BYTES: (BEFORE, 5 * MIB, BEFORE - 5 * MIB), INODES: (100, 7, 93)})
        self.assertFalse(reply.volume_condition.abnormal)
        self.assertEqual(reply.volume_condition.message, "the file system fills its device")

    def test_numbers_beyond_int64_are_capped(self):
        # Only a btrfs may be larger than its device.
        node, volume = self.scene(fstype="btrfs", total=(1 << 64) - 1, used=0)
        total, used, available = self.usage(self.stats(node, volume.path))[BYTES]
        self.assertEqual((total, used, available), ((1 << 63) - 1, 0, (1 << 63) - 1))

    def test_a_file_system_that_is_larger_than_its_device(self):
        node, volume = self.scene(total=BEFORE + 1)
        with self.fails("UNAVAILABLE", f"has {BEFORE + 1} bytes, and its device has {BEFORE}"):
            self.stats(node, volume.path)

    def test_conditions(self):
        node, volume = self.scene(abnormal=True, condition="read-only after errors")
        condition = self.stats(node, volume.path).volume_condition
        self.assertTrue(condition.abnormal)
        self.assertEqual(condition.message, "the guest says: read-only after errors")
        self.fake_agent.stats.condition = ""
        condition = self.stats(node, volume.path).volume_condition
        self.assertEqual(condition.message, "the guest says: abnormal")
        volume.loop.resize(BEFORE - MIB)
        node.wait_for(volume.path, "shrunk")
        condition = self.stats(node, volume.path).volume_condition
        self.assertTrue(condition.abnormal)
        self.assertRegex(condition.message, r"^The device is smaller .*\. \(shrunk/none\)$")

    def test_an_agent_that_cannot_grow_counts(self):
        """As Kata's own, which has no code behind ResizeVolume."""
        node, volume = self.scene()
        self.fake_agent.behave("ResizeVolume", "status:12:not implemented")
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "block_grown", "agent_unsupported")
        reply = self.stats(node, volume.path)
        self.assertEqual(self.usage(reply)[BYTES][0], BEFORE)
        self.assertRegex(reply.volume_condition.message, r"^[A-Z].*\. \(block_grown/agent_unsupported\)$")

    def test_by_the_shim(self):
        """Where nobody listens at the agent's address, or its policy forbids."""
        node, volume = self.scene(agent=False, address="unix:///nobody.sock")
        with self.fails("UNAVAILABLE", "agent_unreachable"):
            self.stats(node, volume.path)
        shim = FakeShim(node.root / "run/vc/sbs" / SANDBOX / "shim-monitor.sock", "go",
                        {volume.loop.device: "/mnt/data"})
        shim.stats.total = BEFORE
        self.addCleanup(shim.stop)
        shim.start()
        self.assertEqual(self.usage(self.stats(node, volume.path))[BYTES][0], BEFORE)
        shim.stop()
        with self.fails("UNAVAILABLE", "agent_unreachable"):
            self.stats(node, volume.path)


class Refusals(StatsTest):
    def test_a_guest_that_hangs_holds_up_a_few_calls(self):
        node, volume = self.scene()
        self.fake_agent.behave("GetVolumeStats", "silent")
        runtime = Runtime(self, node)
        waiting = [runtime.stats(volume.path, later=True) for _ in range(PER_SANDBOX)]
        self.fake_agent.wait_for_requests(PER_SANDBOX, SECONDS, "GetVolumeStats")
        with self.fails("UNAVAILABLE", "already"):
            self.stats(node, volume.path)
        for one in waiting:
            self.assertEqual(one.code().name, "UNAVAILABLE")
        self.fake_agent.behave("GetVolumeStats", "ok")
        self.assertEqual(self.usage(self.stats(node, volume.path))[BYTES][0], BEFORE)

    def test_a_text_arrives_as_the_guest_said_it(self):
        """It is escaped on its way, in the field grpc-message."""
        node, volume = self.scene()
        self.fake_agent.behave("GetVolumeStats", "status:13:50%41é")
        with self.fails("UNAVAILABLE", "50%41é"):
            self.stats(node, volume.path)

    def test_the_time_of_the_call(self):
        node, volume = self.scene()
        self.fake_agent.behave("GetVolumeStats", "silent")
        with self.fails("DEADLINE_EXCEEDED"):
            self.stats(node, volume.path, seconds=1)
        self.is_served(node)
