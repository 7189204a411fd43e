# SPDX-License-Identifier: Apache-2.0
"""Guests whose way in is the shim, in both dialects: what the shim is told that a volume is, a shim that hangs, and
VMMs that nothing can tell of a resize. What a shim can answer is in report_failures_test.py.
"""


from report_guest import NOBODY, SidesTest, resizes, sandbox_id
from rust_runtime import GUEST_MOUNTS, RustPod, guest_name
from scratch_node import AFTER, BEFORE, status

ODD = "data 50%25+\"\u00fc"  # for JSON, and for decoding once or twice


class ShimTest(SidesTest):

    def grows(self, node, side):
        self.start(node, [side.volume])
        side.volume.loop.resize(AFTER)
        return node.wait_for(side.volume.path, "in_sync", "none", guest_bytes=AFTER)

    def test_device_as_mount_info_has_it(self):
        """Go's shim compares texts."""
        node = self.node()
        side = self.go_side(node)
        device = f"/dev/disk/{ODD}"
        node.path("/dev/disk").mkdir()
        node.path(device).symlink_to(side.volume.loop.device)
        node.stage(side.volume.path, device)
        side.set(side.peer, {"root": str(node.root), "volumes": {device: "/mnt/x"}})
        self.grows(node, side)

    def test_path_in_the_guest(self):
        node = self.node()
        side = self.rust_side(node, destination=ODD)
        self.grows(node, side)
        self.assertTrue(side.peer.calls[-1][1].endswith(ODD))

    def test_go_needs_no_path_in_the_guest_and_no_address_of_the_agent(self):
        for case in {"address": ""}, {"agent": "remote:///run/peerpod/hypervisor.sock:1024"}:
            with self.subTest(case):
                node = self.node()
                self.grows(node, self.go_side(node, **case))
                node.close()

    def test_rust_needs_one(self):
        """Two mounts of that name: which one it is, nothing tells."""
        node = self.node()
        side = self.rust_side(node)
        (RustPod(node, sandbox_id(0)).passthrough / guest_name("data")).mkdir()
        self.start(node, [side.volume], "unverified")
        side.volume.loop.resize(AFTER)
        node.wait_for(side.volume.path, "block_grown", "guest_path_unknown")
        self.assertEqual(side.asked(), [])

    def test_rust_container_restarts(self):
        """The directory of the one that has ended stays; the next one has another device."""
        node = self.node()
        side = self.rust_side(node)
        volume = side.volume
        self.start(node, [volume])
        pod = RustPod(node, sandbox_id(0))
        ended, = {one.name for one in pod.bundle(pod.id).parent.iterdir()} - {pod.id}
        pod.end_container(ended)
        node.wait_for(volume.path, "unbound", "none")
        pod.write_bundle("c" * 64, [(volume.path, "/srv/data")])
        node.wait_for(volume.path, "in_sync", sandbox_id=pod.id)
        name = guest_name("data")
        (pod.passthrough / name).mkdir()
        side.peer.volumes = {volume.loop.device: f"{GUEST_MOUNTS}/{name}"}
        node.grow(volume, AFTER)
        self.assertTrue(side.peer.calls[-1][1].endswith(name))

    def test_status_of_the_agent_outweighs_a_closed_connection(self):
        node = self.node()
        side = self.rust_side(node)
        side.peer.status = (12, "no")
        self.agent(node).behave("ResizeVolume", "status:12:not implemented")
        side.peer.agent_url = "unix:///agent.sock"
        self.start(node, [side.volume], "unverified")
        side.volume.loop.resize(AFTER)
        node.wait_for(side.volume.path, "block_grown", "agent_unsupported", next_attempt_at=None,
                      hypervisor_bytes=AFTER)

    def test_a_hung_shim_holds_up_no_other(self):
        """64 guests grow at once, half of them by each dialect; the others are through while one
        shim still does not answer."""
        node = self.node({"resize.call_timeout_seconds": 600})
        sides = [(self.go_side, self.rust_side)[number % 2](node, number) for number in range(64)]
        self.start(node, [side.volume for side in sides])
        hung, others = sides[0], sides[1:]
        hung.breaks({"silent_on": "POST"})
        hung.volume.loop.resize(AFTER)
        node.wait(hung.asked, 60, "the one to be asked")
        for side in others:
            side.volume.loop.resize(AFTER)
        for side in others:
            node.wait_for(side.volume.path, "in_sync", "none", guest_bytes=AFTER)
        node.wait(lambda: status(node)["acts_in_flight"] == 1, 60, "all acts but the hung one to end")
        node.wait_for(hung.volume.path, "block_grown", "none", hypervisor_bytes=AFTER)


# The runtime, the VMM, and why nothing can tell it of a resize.
UNSUPPORTED = (
    ("rust", "dragonball", "no control socket"), ("rust", "openvmm", "no known call"),
    ("rust", "remote", "on another machine"), ("go", "stratovirt", "which the shim holds"),
    ("go", "remote", "on another machine"))


class UnsupportedVmmTest(SidesTest):
    """VMMs that are recognised, and that nothing can tell of a resize: said, and not tried. Their
    guests are not asked either, because they cannot have the new size."""

    def test_unsupported(self):
        node = self.node()
        rows = []
        for number, (runtime, kind, error) in enumerate(UNSUPPORTED):
            volume = self.volume(node, f"pv-{number}")
            if runtime == "rust":
                pod, shim = self.pod(node, number, kind, vmm=kind == "openvmm")
                self.mount(pod, shim, volume)
                shim = shim.server
            else:
                vmm = node.start_vmm(sandbox_id(number))
                node.add_sandbox(sandbox_id(number), vmm.pid, hypervisor=kind, agent=NOBODY, drives=[volume.record()])
                node.record(volume.path, sandbox_id(number))
                shim = self.shim_of(node, volume, sandbox_id=sandbox_id(number))
            rows.append((kind, error, volume, shim))
        node.start()
        for kind, error, volume, shim in rows:
            with self.subTest(kind):
                node.wait_for(volume.path, "unknown", "hypervisor_unsupported", next_attempt_at=None)
                volume.loop.resize(AFTER)
                row = node.wait_for(volume.path, "blocked", "hypervisor_unsupported", next_attempt_at=None)
                self.assertEqual(node.query("SELECT hypervisor, status FROM audit_sandboxes"
                                            f" WHERE sandbox_id = '{row['sandbox_id']}'"),
                                 [{"hypervisor": kind, "status": "alive"}])
                resize = self.resize_row(node, volume.path)
                self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
                self.assertIn(error, resize["error"])
                self.explains(node, volume.path, "hypervisor_unsupported", "Restart the pod")
                self.assertEqual(resizes(shim), [])
