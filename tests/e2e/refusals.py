# SPDX-License-Identifier: Apache-2.0
"""Tables "request -> status -> words", asked by gRPC, HTTP and crustctl.

    ROWS = (
        (Expand("pv", limit=1), "OUT_OF_RANGE", "limit_bytes"),
        (Http("GET", "/v1/nothing"), "NOT_FOUND"),
        (Crustctl("volume", "nobody"), NOT_FOUND),
    )

    class Something(RefusalsTest):
        def test_it(self):
            self.host = ...
            self.check(ROWS)

A request knows each way in which a client can make it, and the status of gRPC says what the other ways answer. A volume
is named by its PV; another text is a path as it stands.
"""

import dataclasses
import json
import urllib.parse

from grpc_client import SECONDS, GrpcTest, grpc
from scratch_node import SANDBOX, curl, publish_path

OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE, REFUSED, NOT_NOW = range(7)  # exit codes of crustctl
SECRET = "hunter2-of-the-test"

# Of each gRPC status: that of HTTP, and crustctl's exit code.
STATUSES = {
    "OK": (200, OK), "INVALID_ARGUMENT": (400, REFUSED), "OUT_OF_RANGE": (400, REFUSED),
    "FAILED_PRECONDITION": (400, REFUSED), "PERMISSION_DENIED": (403, REFUSED), "NOT_FOUND": (404, NOT_FOUND),
    "UNIMPLEMENTED": (405, REFUSED), "RESOURCE_EXHAUSTED": (429, NOT_NOW), "UNAVAILABLE": (503, NOT_NOW)}


def path_of(name):
    return publish_path(name) if name.startswith("pv") else name


@dataclasses.dataclass
class Http:
    """Made by HTTP alone."""

    method: str
    path: str
    body: object = None

    def by_http(self, test):
        return test.http(self.method, self.path, self.body)


class Crustctl:
    """A command; its row has the exit code in the status' place."""

    def __init__(self, *words):
        self.words = words

    def __repr__(self):
        return f"crustctl {' '.join(self.words)}"

    def by_crustctl(self, test):
        return test.crustctl(*self.words)


class Call:
    """A method of gRPC with these fields, which neither HTTP nor crustctl has."""

    def __init__(self, method, **fields):
        self.method, self.fields = method, fields

    def __repr__(self):
        return f"{self.method}({str(self.fields)[:200]})"

    def by_grpc(self, test):
        return test.call(self.method, **self.fields)


def stage(path="pv-staged", device="/dev/some-device", fs_type="ext4", kind="BLOCK", policy=None, **more):
    more |= {} if kind is None else {"volume_type": {"type": kind}}
    more |= {"volume_supplemental_group_change_policy": {"policy": policy}} if policy else {}
    return Call("Runtime/RuntimeStageVolume", volume_target_path=path_of(path), volume_backing_path=device,
                fs_type=fs_type, **more)


def unstage(path):
    return Call("Runtime/RuntimeUnstageVolume", volume_target_path=path_of(path))


def publish(device, sandbox=SANDBOX, path="pv-published", file_system="ext4", **more):
    return Call("RuntimeAssistedStorageManagement/RuntimePublishVolume", sandbox_id=sandbox, host_volume_id=device,
                host_target_path=path_of(path), file_system=file_system, **more)


@dataclasses.dataclass
class Expand:
    volume: str
    required: int = 0
    limit: int = 0
    exit: int | None = None  # of crustctl, where it finds the fault by itself

    def by_grpc(self, test):
        return test.call("Runtime/RuntimeExpandVolume", volume_target_path=path_of(self.volume),
                         capacity_range={"required_bytes": self.required, "limit_bytes": self.limit})

    def by_http(self, test):
        row = path_of(self.volume).isprintable() and test.host.volume(path_of(self.volume))
        if row and row["status"] != "removed":
            return test.http("POST", f"/v1/volumes/{row['volume_id']}/resize",
                             {"required_bytes": self.required, "limit_bytes": self.limit})
        return test.http("POST", "/direct-volume/resize", {"volumePath": path_of(self.volume), "size": self.required})

    def by_crustctl(self, test):
        return test.crustctl("crust", "resize", path_of(self.volume), str(self.required), str(self.limit))


@dataclasses.dataclass
class Stats:
    volume: str
    exit: int | None = None

    def by_grpc(self, test):
        return test.call("Runtime/RuntimeGetVolumeStats", volume_target_path=path_of(self.volume))

    def by_http(self, test):
        return test.http("GET", f"/direct-volume/stats?path={urllib.parse.quote(path_of(self.volume))}")

    def by_crustctl(self, test):
        return test.crustctl("crust", "stats", path_of(self.volume))


@dataclasses.dataclass
class OfDevice:
    """Stats or a resize of a volume by its device, as a kubelet and a shim have them."""

    what: str  # "stats", "resize"
    device: str
    sandbox: str = SANDBOX
    required: int = 0
    exit: int | None = None

    def by_grpc(self, test):
        method, more = (("RuntimeGetVolumeStats", {}) if self.what == "stats" else
                        ("RuntimeExpandVolume", {"required_bytes": self.required}))
        return test.call(f"RuntimeAssistedStorageManagement/{method}", sandbox_id=self.sandbox,
                         host_volume_id=self.device, **more)


@dataclasses.dataclass
class Attach:
    """A drive that is to be attached."""

    fields: dict
    crustctl: bool = True  # whether it is asked for by crustctl, too

    def by_grpc(self, test):
        return test.call("Drives/AttachDrive", **WHOLE | self.fields)

    def by_http(self, test):
        return test.http("POST", "/v1/drives", WHOLE | self.fields)

    def by_crustctl(self, test):
        """Of its options those that are plain words."""
        fields = WHOLE | self.fields
        if not self.crustctl or not set(self.fields) <= {*WHOLE, "options"}:
            return None
        return test.crustctl("drive", "attach", fields["drive_id"], "--sandbox", fields["sandbox_id"], "--host-path",
                             fields["host_path"], "--vm-path", fields["vm_path"], "--type", fields["filesystem_type"],
                             *(word for one in fields.get("options", ()) for word in ("--option", one)))


WHOLE = {"drive_id": "data-1", "sandbox_id": "nobody", "host_path": "/dev/crust-no-such-disk", "vm_path": "/mnt/data",
         "filesystem_type": "ext4"}
SERVICES = {"Runtime": "crust_runtime", "RuntimeAssistedStorageManagement": "crust_management",
            "Drives": "crust_drive_v1"}


class RefusalsTest(GrpcTest):
    """The node that is asked is self.host."""

    connected = None, None  # to a node, by a channel

    def call(self, method, **fields):
        """(status, message)"""
        service, name = method.split("/")
        request = getattr(self.messages(SERVICES[service]), f"{name}Request")(**fields)
        if self.connected[0] is not self.host:
            self.connected = self.host, self.channel(self.host)
        try:
            getattr(self.stub(None, SERVICES[service], service, self.connected[1]), name)(request, timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", ""

    def http(self, method, path, body=None):
        """((status, code), message)"""
        data = [] if body is None else ["--data-binary", json.dumps(body)]
        status, answer = curl(self.host, path, "-X", method, *data)
        answer = json.loads(answer)
        if status == 200:
            return (status, "OK"), ""
        self.assertEqual(set(answer), {"code", "reason", "message"})
        self.assertTrue(answer["reason"] and answer["message"])
        return (status, answer["code"]), answer["message"]

    def crustctl(self, *words):
        """(exit code, message)"""
        done = self.host.crustctl(*words, check=False)
        if done.returncode != OK:
            self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr == "", done.returncode == OK)
        return done.returncode, done.stderr

    def check(self, rows):
        for request, code, *words in rows:
            status, exit_code = STATUSES.get(code, (None, code))
            own = getattr(request, "exit", None)
            for way, expected in (("by_grpc", code), ("by_http", (status, code)),
                                  ("by_crustctl", exit_code if own is None else own)):
                answer = getattr(request, way, lambda test: None)(self)
                if answer:
                    with self.subTest(request=request, way=way):
                        self.assertEqual(answer[0], expected, answer[1])
                        self.assertNotIn(SECRET, answer[1])
                        for word in () if way == "by_crustctl" and own is not None else words:
                            self.assertIn(word, answer[1])
