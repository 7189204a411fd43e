# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md and docs/getting-started.md show what crustd really prints: of each block below a mark "<!-- scene: NAME -->" the
commands are given on a node on which the scene was brought about, and what the block has of their output must be in
it, in its order. A line "..." stands for what is left out; how lines are broken does not matter."""

import re

from doctor_test import CONTAINERD, KATA, QEMU
from node import REPOSITORY
from scratch_node import AFTER, BEFORE, SANDBOX
from report_attachment_test import AttachmentTest
from vmm import cloud_hypervisor, record

PAGES = (REPOSITORY / "docs/troubleshooting.md", REPOSITORY / "docs/getting-started.md")
BLOCK = re.compile(r"<!-- scene: ([\w-]+) -->\n\n((?:    .*\n|\n)+)")
UNSUPPORTED = "status:12:resize_volume is not implemented in kata-agent"
SHOWN = "3f9c1b4e"  # how the page calls the sandbox
VOLUME = "pvc-7"


def settled(text, node, volumes):
    """In one line, without what differs between two runs: ids, devices, times, processes, builds."""
    text = re.sub(SANDBOX[:8] + r"[0-9a-f.]*", f"{SHOWN}...", text.replace(str(node.root), ""))
    for volume in volumes:
        text = text.replace(volume.loop.device, "/dev/dm-3")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-24 08:15:30", text)
    text = re.sub(r"\bprocess \d+", "process 4711", text)
    text = re.sub(r"~git\w+\.\w+", "", text)
    return " ".join(text.split())


def shown(block):
    """What a block has, as (command, [its parts that stand without a gap])."""
    for text in re.split(r"^    # ", block, flags=re.M)[1:]:
        command, _, output = text.partition("\n")
        yield command, [" ".join(part.split()) for part in re.split(r"^    \.\.\.$", output, flags=re.M)]


class TroubleshootingTest(AttachmentTest):

    def blocks(self):
        return {name: block for page in PAGES for name, block in BLOCK.findall(page.read_text())}

    def shows(self, name, node, *volumes):
        for command, parts in shown(self.blocks()[name]):
            program, *arguments = command.split()
            self.assertEqual(program, "crustctl")
            done = node.crustctl(*(volumes[0].path if one == VOLUME else one for one in arguments), check=False)
            text = settled(done.stdout + done.stderr, node, volumes)
            at = 0
            for part in parts:
                self.assertIn(part, text[at:], f"{name}: {command}\n{done.stdout}{done.stderr}")
                at = text.index(part, at) + len(part)

    def scene_of(self, **options):
        node, volumes = self.scene(names=(VOLUME,), **options)
        self.run_container(node, *volumes, attached=options.get("attached", True))
        return node, volumes

    def grow(self, node, volume, state, reason, **columns):
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, state, reason, **columns)
        self.settle(node)

    def test_monitor_missing(self):
        node, (volume,) = self.scene_of(monitor=False)
        node.start()
        node.wait_for(volume.path, "unknown", "monitor_missing")
        self.grow(node, volume, "blocked", "monitor_missing")
        self.shows("monitor-missing", node, volume)

    def test_bypassed(self):
        node, (volume,) = self.scene_of(attached=False)
        node.start()
        node.wait_for(volume.path, "blocked", "bypassed")
        self.settle(node)
        self.shows("bypassed", node, volume)

    def test_agent_unsupported(self):
        node, (volume,) = self.scene_of()
        node.configure(guest__helper="off", agent__routes="agent")
        self.guest.behave("ResizeVolume", UNSUPPORTED)
        node.start()
        node.wait_for(volume.path, "in_sync")
        self.grow(node, volume, "block_grown", "agent_unsupported")
        self.shows("agent-unsupported", node, volume)

    def test_old_cloud_hypervisor(self):
        node, volume = self.node_with_volume(name=VOLUME)
        vmm = cloud_hypervisor(self, node, SANDBOX, volume, "v51.1")
        record(node, vmm, volume)
        self.agent(node)
        node.start()
        node.wait_for(volume.path, "unknown", "hypervisor_version")
        self.settle(node)
        self.shows("old-cloud-hypervisor", node, volume)

    def test_not_used(self):
        """A sandbox runs and its volume is not seen in it."""
        node, volume = self.node_with_volume(name=VOLUME)
        node.start()
        node.wait_for(volume.path, "unbound")
        self.settle(node)
        self.shows("not-used", node, volume)

    def test_nothing(self):
        node = self.running_node()
        self.shows("nothing", node)

    def test_no_daemon(self):
        self.shows("no-daemon", self.node())

    def test_bad_metadata(self):
        node, volume = self.node_with_volume(name=VOLUME)
        (node.directory(volume.path) / "mountInfo.json").write_text('{"volume-type": "directvol", "device": "/dev/x"')
        node.start()
        node.wait_for(volume.path, "unmanaged", "invalid_mount_info")
        self.settle(node)
        self.shows("bad-metadata", node, volume)

    def kata(self, drop_in=None):
        """A node with the Go runtime's configuration as kata-deploy leaves it; drop_in: with its last line taken in."""
        node = self.node()
        self.write(node, "etc/containerd/config.toml", CONTAINERD)
        self.write(node, f"{KATA}/runtimes/qemu/configuration-qemu.toml",
                   QEMU.replace("[agent.kata]", "disable_block_device_use = true\n[agent.kata]"))
        node.path(f"/{KATA}/configuration-qemu.toml").symlink_to("runtimes/qemu/configuration-qemu.toml")
        for program in ("/opt/kata/bin/qemu-system-x86_64", "/usr/libexec/crustd/crust-qemu-system-x86_64"):
            self.write(node, program, "")
            node.path(program).chmod(0o755)
        if drop_in:
            node.path("/run/crustd/qemu").mkdir(mode=0o700)
            self.write(node, f"{KATA}/runtimes/qemu/config.d/50-crust-qemu.toml",
                       drop_in.read_text().replace("# disable_block_device_use", "disable_block_device_use"))
        return node

    def write(self, node, name, text):
        path = node.path(f"/{name.lstrip('/')}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_doctor_before(self):
        self.shows("doctor-before", self.kata())

    def test_doctor_after(self):
        self.shows("doctor-after", self.kata(REPOSITORY / "config/deploy/kata/crust-qemu.toml"))

    def test_before_resize(self):
        """And test_after_resize."""
        node, (volume,) = self.scene_of()
        self.guest.stats.total = BEFORE
        node.start()
        node.wait_for(volume.path, "in_sync", "none", guest_bytes=BEFORE)
        self.shows("before-resize", node, volume)
        self.guest.stats.total = AFTER
        self.grow(node, volume, "in_sync", "none", guest_bytes=AFTER)
        self.shows("after-resize", node, volume)

    def test_every_scene_is_tried(self):
        tried = {name.removeprefix("test_").replace("_", "-") for name in dir(self) if name.startswith("test_")}
        self.assertLessEqual(set(self.blocks()), tried | {"after-resize"})
        self.assertGreater(len(self.blocks()), 6)
