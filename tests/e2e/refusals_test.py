# SPDX-License-Identifier: Apache-2.0
"""What clients are refused, by each way in which they can ask: see refusals.py."""

import os
import stat

from node import VOLUMES
from refusals import (NOT_FOUND, NOT_NOW, OK, REFUSED, SECRET, UNREACHABLE, USAGE, Crustctl, Expand, Http, OfDevice,
                      RefusalsTest, Stats, publish, stage, unstage)
from report_guest import SidesTest, sandbox_id
from scratch_node import AFTER, BEFORE, SANDBOX, publish_path

TOO_LONG = "/" + "x" * 4095
LONGEST = "/" + "x" * 188  # that base64 can name

STAGES = (
    (stage(kind=None), "INVALID_ARGUMENT", "volume_type"),
    (stage(kind=7), "INVALID_ARGUMENT", "volume_type"),
    (stage(kind="UNKNOWN"), "INVALID_ARGUMENT", "volume_type"),
    (stage(kind="NETWORK"), "FAILED_PRECONDITION", "NETWORK"),
    (stage(path=""), "INVALID_ARGUMENT", "target path is missing"),
    (stage(path="var/lib"), "INVALID_ARGUMENT", "absolute"),
    (stage(path=LONGEST + "x"), "INVALID_ARGUMENT", "189"),
    (stage(path="/" + "x" * 5000), "INVALID_ARGUMENT", "too long"),
    *((stage(path=path), "INVALID_ARGUMENT", "components") for path in ("/a/../b", "/a/./b", "/a//b", "/a/b/", "/")),
    (stage(path="/a\0b"), "INVALID_ARGUMENT", "NUL"),
    (stage(device=""), "INVALID_ARGUMENT", "device is missing"),
    (stage(device="sda"), "INVALID_ARGUMENT", "absolute"),
    *((stage(device=device), "INVALID_ARGUMENT", "block device") for device in (
        "/etc", "/dev/image", "/dev/fifo", "/dev/null", "/dev/to-null", "/dev", "/")),
    (stage(device="/dev/a\0"), "INVALID_ARGUMENT", "NUL"),
    *((stage(fs_type=name), "INVALID_ARGUMENT", "the file system type is missing, or no name") for name in (
        "", "ext4 ", "ext 4", "ext4,rw", "../ext4", "a" * 65)),
    (stage(fs_type="ntfs"), "INVALID_ARGUMENT", "ntfs", "ext4, xfs", "crust.file_systems"),
    (stage(mount_flags=["ro", ""]), "INVALID_ARGUMENT", "option"),
    (stage(mount_flags=["x"] * 257), "INVALID_ARGUMENT", "mount_flags"),
    (stage(mount_flags=["x" * 4000] * 10), "INVALID_ARGUMENT", "bytes"),
    *((stage(mount_flags=["ro", option.format(SECRET)]), "INVALID_ARGUMENT", f"{name} carries") for option, name in (
        ("password={}", "password"), ("pass={}", "pass"), ("ro,credentials=/etc/{}", "credentials"),
        ("secret={}", "secret"), ("encryptionKey={},rw", "Key"))),
    *((stage(volume_supplemental_group=group), "INVALID_ARGUMENT", "group") for group in (
        "users", "-1", "4294967295", "99999999999", "1 ")),
    (stage(policy="ALWAYS"), "INVALID_ARGUMENT", "without a group"),
    (stage(volume_supplemental_group="1", policy=9), "INVALID_ARGUMENT", "policy"),
    *((unstage(path), "INVALID_ARGUMENT") for path in ("", "x", TOO_LONG)),
)

PUBLISHED = "/dev/published"
PUBLISHES = (
    *((publish(PUBLISHED, sandbox), "INVALID_ARGUMENT") for sandbox in (
        "", "..", "../x", "a/b", "x" * 129, "mountInfo.json", "runtime-cli", "csiPlugin.json")),
    (publish(""), "INVALID_ARGUMENT"),
    (publish("sda"), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, path="/a/../b"), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, file_system=""), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, file_system="ntfs"), "INVALID_ARGUMENT", "ntfs", "ext4, xfs", "crust.file_systems"),
    (publish(PUBLISHED, fsgroup_gid=-1), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, fsgroup_policy="Always"), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, fsgroup_gid=1, fsgroup_policy="Never"), "INVALID_ARGUMENT"),
    (publish(PUBLISHED, mount_options=[""]), "INVALID_ARGUMENT"),
    *((OfDevice(what, device, sandbox), "INVALID_ARGUMENT") for what in ("stats", "resize") for device, sandbox in (
        ("", SANDBOX), ("sda", SANDBOX), (PUBLISHED, ""), (PUBLISHED, "a/b"))),
    (OfDevice("resize", PUBLISHED, required=-1), "INVALID_ARGUMENT"),
)

# How the guest's agent answers a resize; the client is told so the second time as well, when it is remembered.
AGENTS = {
    "pv-unable": ("status:12:not implemented", "UNAVAILABLE", "agent_unsupported"),
    "pv-denied": ("status:7:blocked by policy", "FAILED_PRECONDITION", "agent_denied"),
    "pv-layered": ("status:9:dm-0 lies between", "FAILED_PRECONDITION", "guest_layer_unsupported"),
    "pv-deaf": ("close", "UNAVAILABLE", "agent_unreachable"),
}
STATS_AGENTS = (
    ("status:12:not implemented", "UNAVAILABLE", "agent_unsupported"),
    ("status:7:blocked by policy", "FAILED_PRECONDITION", "agent_denied"),
    ("status:13:statfs: EIO", "UNAVAILABLE", "agent_failed"),
    ("close", "UNAVAILABLE", "agent_unreachable"),
    ("garbage", "UNAVAILABLE", "agent_unreachable"),
)

EXPANDS = (
    *((Expand(path, exit=NOT_FOUND), "INVALID_ARGUMENT") for path in ("", "relative", TOO_LONG, "/a/../b")),
    (Expand("pv", -1, exit=USAGE), "INVALID_ARGUMENT"),
    (Expand("pv", 0, -1, exit=USAGE), "INVALID_ARGUMENT"),
    (Expand("pv", 2, 1), "INVALID_ARGUMENT"),
    (Expand("pv", AFTER), "UNAVAILABLE", "required_bytes", "on the host"),
    (Expand("pv", 1, 2), "OUT_OF_RANGE", "limit_bytes"),
    (Expand("pv", 0, BEFORE - 1), "OUT_OF_RANGE", "limit_bytes"),
    (Expand("pv-shrunk"), "OUT_OF_RANGE", "only grows"),
    (Expand("pv-another", exit=NOT_FOUND), "UNAVAILABLE", "no such volume"),
    (Expand("pv-gone", exit=NOT_NOW), "UNAVAILABLE", "no such volume"),
    (Expand("pv-nowhere"), "UNAVAILABLE", "no_device"),
    (Expand("pv-lonely", AFTER), "UNAVAILABLE", "monitor_missing"),
)
STATS = (
    *((Stats(path, exit=NOT_FOUND), "INVALID_ARGUMENT") for path in ("", "relative", TOO_LONG)),
    (Stats("pv-another"), "NOT_FOUND"),
    (Stats("pv-nowhere"), "UNAVAILABLE", "no sandbox"),
)

PV, LONELY, NOWHERE = map(publish_path, ("pv", "pv-lonely", "pv-nowhere"))
HTTP = (
    (Http("POST", "/direct-volume/resize", {}), "INVALID_ARGUMENT"),
    (Http("POST", "/direct-volume/resize", {"volumePath": PV}), "INVALID_ARGUMENT"),
    *((Http("POST", "/direct-volume/resize", body), "INVALID_ARGUMENT") for body in (
        {"size": 1}, {"volumePath": 1, "size": 1}, {"volumePath": PV, "size": True}, {"volumePath": PV, "size": "8GB"},
        {"volumePath": PV, "size": 1.5}, {"volumePath": PV, "size": 1, "Size": 1})),
    *((Http("POST", f"/v1/volumes/{number}/resize"), "INVALID_ARGUMENT") for number in (
        "0", "x", "-1", "1x", "99999999999999999999")),
    *((Http("POST", "/v1/volumes/1/resize", body), "INVALID_ARGUMENT") for body in (
        [], {"required_bytes": -1}, {"required_bytes": "8GB"}, {"limit_bytes": ""},
        {"limit_bytes": 1, "LIMIT_bytes": 2}, {"limit_bytes": "9223372036854775808"})),
    (Http("POST", "/direct-volume/resize", {"volumePath": PV, "size": "8Gi"}), "UNAVAILABLE"),
    (Http("POST", "/direct-volume/resize", {"VolumePath": PV, "Size": str(1 << 40)}), "UNAVAILABLE"),
    *((Http("PUT", "/fs-resize", body), "INVALID_ARGUMENT") for body in ([1], {}, {"block-device": "/dev/sdb"})),
    *((Http("PUT", "/fs-stats", body), "INVALID_ARGUMENT") for body in ({}, {"block-device": ""})),
    (Http("PUT", "/fs-stats", {"block-device": "/dev/x"}), "NOT_FOUND"),
    *((Http("GET", f"/direct-volume/stats{path}"), "INVALID_ARGUMENT") for path in (
        "", "?paht=x", "?path=", "/L2EvYg")),
    (Http("POST", "/v1/volumes/4711/resize"), "NOT_FOUND"),
    *((Http("GET", f"/v1/volumes?{argument}"), "INVALID_ARGUMENT") for argument in (
        "id=x", "id=-1", "id=", "id=1x", "id", "id=1&id=2", "live=2", "vol=1", "last=1e3", "blocked=1",
        "not_resizable=2", "volume=a%00b", "a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&i=1")),
    *((Http("GET", path), "NOT_FOUND") for path in (
        "/index.html", "/metricz", "/v1", "/v1/", "/v1/nothing", "/v1/volume", "/v1/volumes/", "/v1/volumes/4711",
        "/v1/volumes/4711/explain", "/v1/volumes/1/burn")),
    *((Http("GET", f"/v1/{path}"), "INVALID_ARGUMENT") for path in (
        "volumes/pv", "volumes/1x/explain", "volumes/1?live=1", "resizes?not_resizable=1", "journal?volume=pv-1",
        "sandboxes?volume=pv-1", "devices?after=1", "status?x=1", "journal?after=99999999999999999999")),
    (Http("POST", "/v1/gc?dry_run=1&dry_run=0"), "INVALID_ARGUMENT"),
    *((Http(method, path, body), "UNIMPLEMENTED") for method, path, body in (
        ("GET", "/v1/resync", None), ("DELETE", "/v1/volumes", None), ("POST", "/healthz", None),
        ("GET", "/direct-volume/resize", None), ("POST", "/fs-stats", {"block-device": "/dev/x"}))),
)

CRUSTCTL = (
    (Crustctl("wait", LONELY, "--for", "blocked"), OK),
    (Crustctl("wait", LONELY, "--for", "blocked/monitor_missing", "-o", "json"), OK),
    (Crustctl("wait", LONELY, "--for", "in_sync", "--timeout", "0"), REFUSED),
    (Crustctl("wait", NOWHERE, "--for", "in_sync", "--timeout", "0"), NOT_NOW),
    (Crustctl("wait", "/nobody", "--for", "in_sync", "--timeout", "0"), NOT_FOUND),
    (Crustctl("wait", LONELY, "--for", "perfect", "--timeout", "0"), USAGE),
    (Crustctl("wait", LONELY), USAGE),
    (Crustctl("volume", "/nobody"), NOT_FOUND),
    (Crustctl("volume"), USAGE, "volume wants VOL"),
    (Crustctl("explain", "x", "--size", "1"), USAGE, "explain does not take --size"),
    (Crustctl("explain", "/nobody"), NOT_FOUND),
    (Crustctl("explain", "4711"), NOT_FOUND),
    (Crustctl("explain"), USAGE),
    (Crustctl("explain", "a", "b"), USAGE),
    (Crustctl("volumes", "--nonsense"), USAGE, "there is no option --nonsense"),
    (Crustctl("volumes", "-o", "xml"), USAGE, "-o wants text, wide or json"),
    (Crustctl("-x", "status"), USAGE, "-x"),
    (Crustctl("status", "--root"), USAGE, "--root wants a value"),
    (Crustctl("volumes", "--blocked=yes"), USAGE, "--blocked takes no value"),
    (Crustctl("wait", "x", "--for", "in_sync", "--timeout", "5s"), USAGE, "--timeout wants a number"),
    (Crustctl("a", "b", "c", "d", "e", "f"), USAGE, 'too many arguments, from "f" on'),
    *((Crustctl(*words), OK) for words in (
        ("volumes", "--blocked"), ("volumes", "--stalled"), ("volumes", "--not-resizable"), ("resizes", "-n", "3"))),
    *((Crustctl(*words), USAGE) for words in (
        ("sandboxes", "--stalled"), ("sandboxes", "--not-resizable"), ("volume", "x", "y"), ("status", "-f"),
        ("devices", "-n", "3"), ("wait", "--for", "in_sync"), ("explain", "x", "-n", "1"))),
    (Crustctl("volumes", "a"), USAGE, 'unexpected argument "a"'),
    (Crustctl("sandboxes", "--blocked"), USAGE, "sandboxes does not take --blocked"),
    (Crustctl("journal", "-n"), USAGE, "-n wants a value"),
    (Crustctl("journal", "-n", "many"), USAGE, '-n wants a number, not "many"'),
    (Crustctl("journal", "-n", "-3"), USAGE, "-n wants a number"),
    (Crustctl("nonsense"), USAGE, 'there is no command "nonsense"'),
    (Crustctl("crust", "burn"), USAGE, 'there is no command "crust burn"'),
    (Crustctl("help", "nonsense"), USAGE, 'there is no command "nonsense"'),
    (Crustctl("direct-volume"), USAGE),
    (Crustctl(), USAGE),
    *((Crustctl(*words), OK) for words in (("fs", "--help"), ("--help",), ("explain", "--help"), ("--version",))),
    (Crustctl("resize", "nobody"), NOT_FOUND),
    (Crustctl("crust", "resize", PV, "8GB", "0"), USAGE),
    (Crustctl("crust", "resize", PV, "0.1Ki", "0"), USAGE),
    (Crustctl("crust", "resize", PV), USAGE),
    (Crustctl("fs", "get-stats", SANDBOX, "/dev/none"), NOT_FOUND),
)


class VolumesTest(RefusalsTest, SidesTest):

    def test_requests(self):
        node = self.host = self.node()
        dev = node.root / "dev"
        (dev / "image").write_bytes(bytes(4096))
        os.mkfifo(dev / "fifo")
        os.mknod(dev / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        (dev / "to-null").symlink_to("null")
        node.start()
        self.check(STAGES)
        self.check(PUBLISHES)
        self.assertEqual(os.listdir(node.root / VOLUMES), [])
        self.assertEqual(node.query("SELECT * FROM audit_volumes"), [])
        self.check(((stage(path=LONGEST), "OK"),))
        self.assertEqual(node.volume(LONGEST)["status"], "present")
        self.assertEqual(len(node.query("SELECT 1 FROM audit_journal WHERE kind = 'volume_staged'")), 1)

    def test_volumes(self):
        """Each is in a state of its own."""
        node = self.host = self.node({"resize.call_timeout_seconds": 3})
        names = {name: number for number, name in enumerate(("pv", "pv-shrunk", *AGENTS))}
        sides = {name: self.agent_side(node, number, name) for name, number in names.items()}
        lonely, gone = self.volume(node, "pv-lonely"), self.volume(node, "pv-gone")
        self.sandbox(node, lonely)
        node.stage(publish_path("pv-nowhere"), "/dev/nowhere")
        self.start(node, [side.volume for side in sides.values()])
        node.wait_for(lonely.path, "unknown", "monitor_missing")
        node.unstage(gone.path)
        node.wait_for(gone.path, "unmanaged", status="removed")
        self.settle(node)
        sides["pv-shrunk"].volume.loop.resize(BEFORE // 2)
        node.wait_for(sides["pv-shrunk"].volume.path, "shrunk")
        lonely.loop.resize(AFTER)
        for name, (behaviour, _, _) in AGENTS.items():
            sides[name].breaks(behaviour)
            sides[name].volume.loop.resize(AFTER)
        self.check(EXPANDS)
        for name, (_, code, reason) in AGENTS.items():
            self.check([(Expand(name, AFTER), code, reason)] * 2)
        self.check(STATS)
        for behaviour, code, reason in STATS_AGENTS:
            sides["pv"].peer.behave("GetVolumeStats", behaviour)
            self.check(((Stats("pv"), code, reason),))
        self.check(HTTP)
        device = sides["pv"].volume.loop.device
        self.check((
            (Http("POST", "/direct-volume/resize", {"volumepath": device, "SIZE": 1 << 40}), "UNAVAILABLE"),
            (Http("PUT", "/fs-resize", {"block-device": device, "pod-id": sandbox_id(0), "volume-size": str(1 << 40)}),
             "UNAVAILABLE")))
        self.check(CRUSTCTL)
        node.stop()
        self.check(((Crustctl("resize", PV), UNREACHABLE),))

    def test_policy(self):
        """No resize, and none that is owed to the next sandbox."""
        for mode in "never", "observe":
            node = self.host = self.node({"resize.mode": mode})
            side, free = self.agent_side(node, 0, "pv"), self.volume(node, "pv-free")
            node.start()
            node.wait_bound(side.volume.path)
            side.volume.loop.resize(AFTER)
            self.check(((Expand("pv", AFTER), "FAILED_PRECONDITION", "policy"),
                        (Expand("pv-free", BEFORE), "FAILED_PRECONDITION", "policy")))
            self.assertEqual(node.query(f"SELECT 1 FROM audit_resizes WHERE target_path = '{free.path}'"), [])
            node.stop()
