# SPDX-License-Identifier: Apache-2.0
"""Guests that do not stand still: agents with a will of their own, disks and sandboxes that come and
go, resizes that overtake each other."""


from resize_case import MIB, SECONDS, SERIAL_AGENT, ResizeCase

AUTOMATIC_AGENT = (*SERIAL_AGENT, "--auto")


class AgentTest(ResizeCase):
    """One sandbox whose agent grows on its own, one whose calls can be held up."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.automatic = cls.add_sandbox(agents=(AUTOMATIC_AGENT,), relayed=True)
        cls.plain = cls.add_sandbox(bus="scsi", relayed=True)
        cls.on_automatic = [cls.automatic.add_volume(name) for name in ("ext4", "xfs", "btrfs")]
        cls.on_plain = cls.plain.add_volume("ext4")
        cls.boot(cls.automatic, cls.plain)
        cls.node.start()

    def test_guest_grows_before_it_is_asked(self):
        relay = self.automatic.relay
        for volume in self.on_automatic:
            with self.subTest(volume.filesystem):
                self.settle(volume)
                relay.hold()
                resize = self.begin(volume)
                self.wait_guest_grown(resize)
                self.assertNotEqual(self.node.volume(volume.path)["state"], "in_sync")
                relay.release()
                self.finish(resize)

    def test_guest_has_grown_while_nobody_watched(self):
        """Somebody else told the hypervisor, and the guest grew on its own."""
        for volume in self.on_automatic:
            self.settle(volume)
        self.assertEqual(self.node.stop(), 0)
        resizes = [self.begin(volume, settled=None) for volume in self.on_automatic]
        for resize in resizes:
            self.automatic.vm.block_resize(resize.volume.disk, resize.to_bytes)
            self.wait_guest_grown(resize)
        self.node.start()
        for resize in resizes:
            self.finish(resize)

    def test_device_grows_again_before_the_guest_has(self):
        relay, volume = self.plain.relay, self.on_plain
        resize = self.begin_held(volume)
        first_bytes, resize.to_bytes = resize.to_bytes, resize.to_bytes + 24 * MIB
        volume.loop.resize(resize.to_bytes)
        self.wait(lambda: self.resizes(volume)[-1]["to_bytes"] == resize.to_bytes,
                  "the resize's goal to be raised")
        self.assertEqual(self.node.volume(volume.path)["hypervisor_bytes"], first_bytes)
        relay.release()
        self.finish(resize)
        raised = self.journal(volume, "kind = 'resize_raised'")
        self.assertEqual(len(raised), 1, raised)


class ErrorTest(ResizeCase):
    """File systems that an error has stopped, and one that is read-only because somebody wants it."""

    settings = ResizeCase.settings | {"guest.stats_seconds": 1}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.add_sandbox(agents=(AUTOMATIC_AGENT,))
        cls.boot(cls.sandbox)
        cls.node.start()

    def plug(self, filesystem, **options):
        volume = self.sandbox.make_volume(filesystem, **options)
        self.sandbox.plug(volume)
        self.settle(volume)
        return volume

    def stops(self, volume, resize, condition="abnormal"):
        """What is said of it until it is well again."""
        reason = "read_only" if condition == "normal" else "file_system_shut_down"
        row = self.node.wait_for(volume.path, "block_grown", reason, SECONDS, condition=condition,
                                 hypervisor_bytes=resize.to_bytes)
        text = "mounted read-only" if condition == "normal" else "was shut down after an error"
        if condition == "abnormal":
            self.assertIn(text, row["condition_message"])
        self.assertIn(text, self.resizes(volume)[-1]["error"])
        self.assertEqual((row["resizable"], row["resizable_reason"]), ("no", reason))
        stats = self.node.crustctl("stats", str(row["volume_id"])).stdout
        self.assertIn(f"{condition}: ", stats)
        self.assertEqual("inodes" in stats, volume.filesystem != "btrfs")
        self.assertIn("bytes", stats)

    def test_xfs_that_was_shut_down(self):
        volume = self.plug("xfs")
        self.sandbox.vm.ask("shutdown", volume.disk.mount_point)
        resize = self.begin(volume, settled=None)
        self.stops(volume, resize)
        self.wait(lambda: f"{volume.disk.mount_point} does not grow: the file system was shut down"
                  in self.sandbox.vm.console(), "the agent to say so by itself")
        self.sandbox.vm.ask("umount", volume.disk.mount_point)
        self.sandbox.vm.guest_mount(volume.disk)
        self.finish(resize)
        self.sandbox.unplug(volume)

    def test_ext4_that_an_error_made_read_only(self):
        volume = self.plug("ext4", options="errors=remount-ro")
        self.sandbox.vm.ask("error", volume.disk.guest_name)
        resize = self.begin(volume, settled=None)
        self.stops(volume, resize)
        self.sandbox.unplug(volume)

    def test_read_only_by_request(self):
        for filesystem in ("ext4", "btrfs"):
            with self.subTest(filesystem):
                volume = self.plug(filesystem)
                self.sandbox.vm.ask("remount", volume.disk.mount_point, "ro")
                resize = self.begin(volume, settled=None)
                self.stops(volume, resize, "normal")
                self.sandbox.vm.ask("remount", volume.disk.mount_point, "rw")
                self.finish(resize)
                self.sandbox.unplug(volume)


class SandboxTest(ResizeCase):
    """Each test has its own sandboxes."""

    def settle_bound(self, *sandboxes):
        for sandbox in sandboxes:
            for volume in sandbox.volumes:
                self.settle(volume)

    def move(self, volume, sandbox):
        """The volume's pod is started again elsewhere; the dead sandbox's id file stays."""
        volume.sandbox = sandbox
        sandbox.volumes.append(volume)
        volume.disk.address = volume.disk.mount_point = ""
        return volume

    def test_hotplugged_disk(self):
        sandbox = self.add_sandbox()
        self.boot(sandbox)
        for options in ({}, {"fdset": True}):
            with self.subTest(**options):
                volume = sandbox.make_volume("ext4", **options)
                sandbox.plug(volume)
                self.grow(volume)
                first = self.node.volume(volume.path)
                sandbox.unplug(volume)
                removed = self.node.wait_for(volume.path, "unmanaged", "none", status="removed")
                self.assertIsNotNone(removed["removed_at"])
                self.assertNotIn(None, [row["until"] for row in self.mappings(volume)])

                sandbox.plug(volume)
                self.wait(lambda: self.node.volume(volume.path)["volume_id"] > first["volume_id"],
                          "a new row")
                self.grow(volume)
                self.assertEqual(len(self.resizes(volume)), 1)
                sandbox.unplug(volume)

    def test_sandbox_ends_and_another_takes_its_volume(self):
        first = self.add_sandbox()
        volume = first.add_volume("ext4")
        self.boot(first)
        self.grow(volume)
        grown = volume.loop.size
        first.vm.power_off()
        row = self.node.wait_for(volume.path, "unbound", "none")
        self.assertIsNone(row["sandbox_id"])
        self.assertEqual([row["until"] is None for row in self.mappings(volume)], [False])
        gone = self.node.query(f"SELECT * FROM audit_sandboxes WHERE sandbox_id = '{first.id}'")
        self.assertEqual([row["status"] for row in gone], ["gone"])
        self.assertIsNotNone(gone[0]["gone_at"])

        second = self.add_sandbox()
        self.move(volume, second)
        self.boot(second)
        self.settle_bound(second)
        self.assertEqual(second.vm.guest_blocksize(volume.disk), grown)
        self.grow(volume)
        self.assertEqual([row["sandbox_id"] for row in self.mappings(volume)],
                         [first.id, second.id])

    def test_sandbox_ends_in_the_middle_of_a_resize(self):
        first = self.add_sandbox(relayed=True)
        volume = first.add_volume("ext4")
        self.boot(first)
        resize = self.begin_held(volume)
        first.vm.stop()
        first.relay.close()
        self.node.wait_for(volume.path, "unbound")
        self.assertEqual(self.node.query("SELECT * FROM audit_mappings WHERE until IS NULL"
                                         f" AND sandbox_id = '{first.id}'"), [])

        second = self.add_sandbox()
        self.move(volume, second)
        self.boot(second)
        self.node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=resize.to_bytes)
        self.wait(lambda: second.vm.guest_size(volume.disk.mount_point) > resize.guest_bytes,
                  "the file system to grow")
        self.wait(lambda: self.resizes(volume)[-1]["finished_at"], "the resize to be finished")
        self.grow(volume)


class OfflineTest(ResizeCase):
    """Claims that were grown while no pod ran: nobody saw their devices grow."""

    def test_file_systems_are_grown_by_the_first_binding(self):
        sandbox = self.add_sandbox()
        volumes = [sandbox.add_volume(name) for name in ("ext4", "xfs", "btrfs")]
        gained = {}
        for volume in volumes:
            gained[volume.path] = volume.loop.size // 2
            volume.loop.resize(volume.loop.size + gained[volume.path])
            self.node.stage(volume.path, volume.device, fstype=volume.filesystem)
        for volume in volumes:  # the devices have had their size since before the VM starts
            self.node.wait_for(volume.path, "unbound", device_bytes=volume.loop.size)
        sandbox.boot()
        sandbox.vm.wait_ready()
        before = {volume.path: sandbox.vm.guest_size(volume.disk.mount_point)
                  for volume in volumes}
        sandbox.take()
        for volume in volumes:
            with self.subTest(volume.filesystem):
                self.settle(volume)
                grown = sandbox.vm.guest_size(volume.disk.mount_point) - before[volume.path]
                self.assertGreater(grown, gained[volume.path] * 3 // 4)
                self.assertEqual(self.resizes(volume), [])
                sandbox.vm.guest_verify(volume.pattern, MIB)
