# SPDX-License-Identifier: Apache-2.0
"""A node whose sandboxes have a kata-agent that can neither grow nor count, but runs containers.

    class SomeTest(HelperCase):
        def test_it(self):
            node, scene = self.build(2)          # a sandbox with two volumes
            scene.volumes[0].loop.resize(AFTER)
"""

import base64
import dataclasses
import os
import pathlib
import shutil
import sys

from scratch_node import AFTER, BEFORE, SANDBOX, ScratchNodeTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fakes"))

from disks import KATA_STORAGE  # noqa: E402
from kata_agent import KataAgent  # noqa: E402
from node import BUILD  # noqa: E402

GUEST_SHARE = "/run/kata-containers/shared/containers"
HOST_SANDBOXES = "run/kata-containers/shared/sandboxes"
OURS = "crust-"


@dataclasses.dataclass
class Scene:
    sandbox_id: str
    volumes: list
    agent: KataAgent
    share: pathlib.Path
    vmm: object

    @property
    def volume(self):
        """Of a sandbox with one."""
        volume, = self.volumes
        return volume

    def created(self):
        """The containers that the agent was asked for."""
        return self.agent.matching(lambda one: one.method == "CreateContainer")

    def left(self):
        """What is left of helpers: containers, and names in the share."""
        return sorted(self.agent.containers) + [
            name for name in os.listdir(self.share) if name.startswith(OURS)]


def guest_path_of(volume):
    """As crustd derives it from Kata's record of the drive."""
    return KATA_STORAGE + base64.urlsafe_b64encode(volume.address.encode()).decode()


class HelperCase(ScratchNodeTest):
    MIB = 1 << 20

    def helper_node(self, **settings):
        program = self.scratch / "crust-guest-agent"
        if not program.exists():
            shutil.copy(BUILD / "crust-guest-agent", program)
        return self.node({"guest.helper": "on", "guest.helper_file": program, "resize.call_timeout_seconds": 20} |
                         {name.replace("__", "."): value for name, value in settings.items()})

    def share_of(self, node, sandbox_id):
        """As Kata's Go runtime makes it, with files of its own."""
        share = node.root / HOST_SANDBOXES / sandbox_id / "mounts"
        share.mkdir(parents=True)
        (share / "0123-resolv.conf").write_text("nameserver 192.0.2.1\n")
        return share

    def scene(self, node, volumes=1, sandbox_id=SANDBOX, size=BEFORE, agent_class=KataAgent):
        number = int(sandbox_id, 16) % 10000
        made = [self.volume(node, f"pv-{number}-{index}", size) for index in range(volumes)]
        self.monitor(node, *made, sandbox_id=sandbox_id)
        share = self.share_of(node, sandbox_id)
        agent = agent_class(node.root / f"agent{number}.sock", share, GUEST_SHARE)
        self.addCleanup(agent.close)
        vmm = self.sandbox(node, *made, sandbox_id=sandbox_id,
                           agent=f"unix:///agent{number}.sock")
        for volume in made:
            agent.mount(self.guest_path(node, volume), volume.loop)
        return Scene(sandbox_id, made, agent, share, vmm)

    def guest_path(self, node, volume):
        return guest_path_of(volume)

    def build(self, volumes=1, **settings):
        """A sandbox that is in sync, by a helper."""
        node = self.helper_node(**settings)
        scene = self.scene(node, volumes)
        node.start()
        self.in_sync(node, scene, BEFORE)
        return node, scene

    def build_all(self, names, agent_class=KataAgent, **settings):
        """A sandbox for each name, all in sync."""
        node = self.helper_node(**{"guest__helpers": 16} | settings)
        scenes = {name: self.scene(node, sandbox_id=f"{number + 1:064x}", agent_class=agent_class)
                  for number, name in enumerate(names)}
        node.start()
        for scene in scenes.values():
            self.in_sync(node, scene, BEFORE, 120)
        return node, scenes

    def stop_at(self, scene, call="StartContainer", when="after", size=AFTER):
        """The volumes grow, and their helper has come to this call."""
        scene.agent.stop_at(call, when)
        self.grow(scene, size)
        self.assertTrue(scene.agent.reached.wait(60), "the call was not made")

    def in_sync(self, node, scene, size, seconds=60):
        for volume in scene.volumes:
            node.wait_for(volume.path, "in_sync", "none", seconds, guest_bytes=size)
        self.nothing_left(node, scene)

    def grow(self, scene, size=AFTER):
        for volume in scene.volumes:
            volume.loop.resize(size)

    def nothing_left(self, node, scene, seconds=30):
        node.wait(lambda: scene.left() == [], seconds, f"nothing to be left, but {scene.left()}")
        node.wait(lambda: node.query("SELECT count(*) AS n FROM helper_runs")[0]["n"] == 0, seconds,
                  "no helper to be on record")
        self.assertIn("0123-resolv.conf", os.listdir(scene.share))
