# SPDX-License-Identifier: Apache-2.0
"""A guest whose helper lies: what is refused, and what is shown of it."""

import json

from helper_case import HelperCase
from kata_agent import KataAgent
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE

HUGE = 2 ** 63


def entry(path="/vol/0", **changes):
    """/vol/0 stands for the path that it was given."""
    return {"path": path, "file_system": "ext4", "device_bytes": AFTER, "layer": "", "total": AFTER,
            "used": 4096, "available": AFTER - 4096, "total_inodes": 1024, "used_inodes": 11,
            "available_inodes": 1013, "condition": "normal", "message": "", "error": "",
            "error_text": ""} | changes


def report(*volumes, version=1):
    return json.dumps({"version": version, "volumes": list(volumes)}) + "\n"


def nested(depth):
    return '{"version":1,"volumes":' + "[" * depth + "]" * depth + "}\n"


# What it writes and how it ends; the reason that follows, and what the error says.
LIES = {
    "nothing": ("", 0, "agent_policy_denied", "hides what it printed"),
    "no JSON": ("grown\n", 0, "helper_failed", "the helper's report"),
    "half a line": (report(entry())[:100], 0, "helper_failed", "the helper's report"),
    "two objects": (report(entry()) * 2, 0, "helper_failed", "after the value"),
    "a key twice": (report(entry()).replace('"used"', '"total"'), 0, "helper_failed", "second time"),
    "nested": (nested(1000), 0, "helper_failed", "nested too deeply"),
    "too much": (" " * 70000 + report(entry()), 0, "helper_failed", "bytes of JSON"),
    "much too much": (" " * 300000, 0, "helper_failed", "wrote more than 262144 bytes"),
    "no UTF-8": (report(entry()).replace("ext4", "\udcff\udcfe"), 0, "helper_failed", "UTF-8"),
    "another version": (report(entry(), version=2), 0, "helper_failed", "version"),
    "another path": (report(entry("/vol/1")), 0, "helper_failed", "another path than /run/"),
    "the guest's path": (report(entry("/etc")), 0, "helper_failed", "another path"),
    "more paths": (report(*(entry(f"/vol/{i}") for i in range(32))), 0, "helper_failed", "more than 1"),
    "no path": (report(), 0, "helper_failed", "0 paths of 1"),
    "a signal": (report(entry()), 137, "helper_failed", "ended with 137"),
    "an old size": (report(entry(device_bytes=BEFORE)), 0, "agent_failed", f"not yet {AFTER}"),
    "an unknown code": (report(entry(error="\u001b[2Jboom\r\n")), 1, "agent_failed", "boom"),
    "a text for terminals": (report(entry(error="failed", error_text="\u001b]0;x\u0007\u202eevil")), 1,
                             "agent_failed", "evil"),
    "a long text": (report(entry(error="failed", error_text="x" * 9000)), 1, "agent_failed", "xxxx"),
    "a layer": (report(entry(device_bytes=BEFORE, layer="dm-crypt on vdb")), 0,
                "guest_layer_unsupported", "dm-crypt"),
}
# Taken for what can be believed: the volume has grown, and no figure is on record that is none.
FIGURES = {
    "sizes beyond any": dict(device_bytes=HUGE, total=HUGE, used=HUGE, available=HUGE),
    "negative": dict(device_bytes=-1, total=-1, used=-1, available=-1, total_inodes=-1),
    "not whole": dict(device_bytes=1.5, total=1e300, used=0.1),
    "no numbers": dict(device_bytes="1", total=[1], used={}, available=None, total_inodes=True),
}


class Liar(KataAgent):
    lie = None

    def report(self, container):
        if self.lie is None or "--report" in container.args:
            return super().report(container)
        output, status = self.lie
        return status, output.replace("/vol/0", container.args[-1]).encode(errors="surrogateescape"), b""


class Swapper(KataAgent):
    """Says of each of two volumes what is so of the other one."""
    swaps = False

    def report(self, container):
        status, output, errors = super().report(container)
        if self.swaps and status == 0:
            said = json.loads(output)
            one, other = said["volumes"]
            one["path"], other["path"] = other["path"], one["path"]
            said["volumes"] = [other, one]
            output = json.dumps(said).encode() + b"\n"
        return status, output, errors


class LiesTest(HelperCase):
    hostile = in_memory = True

    def test_what_is_no_report(self):
        node, scenes = self.build_all(LIES, Liar)
        for name, scene in scenes.items():
            scene.agent.lie = LIES[name][:2]
            self.grow(scene)
        for name, scene in scenes.items():
            with self.subTest(name):
                *_, reason, said = LIES[name]
                node.wait_for(scene.volume.path, "block_grown", reason, 120)
                error = self.resize_row(node, scene.volume.path)["error"]
                self.assertIn(said, error)
                self.assertTrue(error.isprintable(), error)
                self.assertLess(len(error), 300)
                self.explains(node, scene.volume.path, "block_grown", reason)
                self.nothing_left(node, scene)
        for scene in scenes.values():
            scene.agent.lie = None
        del scenes["nothing"]
        node.crustctl("resync")
        for scene in scenes.values():
            self.in_sync(node, scene, AFTER, LONGEST_PAUSE)

    def test_figures_that_are_none(self):
        node, scenes = self.build_all(FIGURES, Liar)
        for name, scene in scenes.items():
            scene.agent.lie = (report(entry(**FIGURES[name])), 0)
            self.grow(scene)
        for name, scene in scenes.items():
            with self.subTest(name):
                row = node.wait_for(scene.volume.path, "in_sync", "unverified", 120)
                self.assertEqual(row["hypervisor_bytes"], AFTER)
                for column in ("guest_bytes", "used_bytes", "available_bytes"):
                    self.assertIn(row[column], (None, BEFORE, 4096, BEFORE - 4096))
                self.nothing_left(node, scene)

    def test_another_volumes_size(self):
        """What is so of another volume of the sandbox does not count as the resize of this one, and is not
        recorded for the one that was only taken along."""
        node = self.helper_node()
        scene = self.scene(node, volumes=2, agent_class=Swapper)
        node.start()
        self.in_sync(node, scene, BEFORE)
        scene.agent.swaps = True
        grown, other = scene.volumes
        grown.loop.resize(AFTER)
        node.wait_for(grown.path, "block_grown", "agent_failed", 120)
        self.assertIn(f"not yet {AFTER}", self.resize_row(node, grown.path)["error"])
        self.assertEqual(node.volume(grown.path)["guest_bytes"], BEFORE)
        self.assertEqual(node.volume(other.path)["guest_bytes"], BEFORE)
        scene.agent.swaps = False
        node.crustctl("resync")
        node.wait_for(grown.path, "in_sync", "none", LONGEST_PAUSE, guest_bytes=AFTER)
        node.wait_for(other.path, "in_sync", "none", 60, guest_bytes=BEFORE)
