# SPDX-License-Identifier: Apache-2.0
"""Cloud Hypervisor and Firecracker under Kata's Go runtime: what they are told, and what is said
and done when they cannot, will not or do not answer.

One daemon serves all cases of a test at once, each in a sandbox of its own.
"""

import dataclasses
import functools
import os
import re
import stat

from report_guest import UNREACHABLE, Case, Side, SidesTest
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, MIB, status
from vmm import DRIVE, cloud_hypervisor, firecracker, jail_of, record

ERROR = ["Error from API", "The disk could not be resized", "Error from device manager"]
MISSING = "Failed to find device corresponding to the given identifier"
RACED = ERROR + ["Disk resize error", "Disk resize failed", "Resize failed",
                 "Block device size 2 does not match requested size 1"]


def sandbox_id(number):
    """Firecracker sees the first 32 characters."""
    return f"{number + 1:032x}" + "f" * 32


CONNECTIONS = {
    "full": Case({"full": True}, "hypervisor_busy", "other clients hold all", ("ss -xp", "tries again by itself"),
                 asked=False),
    "hangs up": Case({"close_on": "GET"}, "hypervisor_unreachable", "the control socket: ", UNREACHABLE, asked=False),
    "hangs up, in pieces": Case({"close_on": "GET", "split": 1}, "hypervisor_unreachable", "the control socket: ",
                                asked=False),
    "never answers": Case({"silent_on": "GET"}, "hypervisor_unreachable", "the control socket: ", UNREACHABLE,
                          asked=False),
    "answers too late": Case({"delay": 5.0}, "hypervisor_unreachable", "the control socket: ", asked=False),
    "answers without an end": Case({"padding": 2 * MIB}, "hypervisor_unreachable", "the control socket: ", asked=False),
}


def of_change(method):
    """Faults of the request that changes something."""
    return {
        "never answers the resize": Case({"silent_on": method}, "hypervisor_unreachable", "the control socket: "),
        "hangs up instead of resizing": Case({"refuse": [500, ["x"]], "close_on": method}, "hypervisor_unreachable",
                                             "the control socket: "),
        "resizes and hangs up": Case({"close_on": method}, "hypervisor_unreachable", "the control socket: "),
        "resizes and hangs up, in pieces": Case({"close_on": method, "split": 1}, "hypervisor_unreachable",
                                                "the control socket: "),
        "is full when the new size is sent": Case({"refuse": [503, {"error": "Too many open connections"}]}, "hypervisor_busy",
                                        "other clients hold all"),
        "refuses without an end": Case({"refuse": [500, ["x" * 2 * MIB]]}, "hypervisor_unreachable",
                                       "the control socket: "),
    }


CLOUD_HYPERVISOR = CONNECTIONS | of_change("PUT") | {
    "no": Case({"refuse": [500, ERROR + ["the moon is not full"]]}, "hypervisor_refused", "the moon is not full",
               ("answered with an error", "restart the pod")),
    "grew meanwhile": Case({"refuse": [500, RACED]}, "hypervisor_refused", "does not match"),
    "disk is gone": Case({"refuse": [500, ERROR + [MISSING]]}, "drive_not_found", MISSING,
                         ("is known to be this device",)),
    "disk is gone, v53": Case({"refuse": [404, ERROR + [MISSING + ": x"]], "version": "v53.0"}, "drive_not_found",
                              MISSING + ": x"),
    "does not run": Case({"state": "Shutdown"}, "hypervisor_busy", "its state is Shutdown", asked=False),
    "no disks": Case({"disks": []}, "drive_not_found", "none of the VMM's 0 drives", asked=False),
}

FIRECRACKER = CONNECTIONS | of_change("PATCH") | {
    "no": Case({"refuse": [400, {"fault_message": "the moon is not full"}]}, "hypervisor_refused",
               "the moon is not full", ("answered with an error",)),
    "no drives": Case({"drives": []}, "drive_not_found", "none of the VMM's 0 drives", asked=False),
}


NOT_MENDED = ("no disks", "no drives")  # a fake cannot get its drives back


@dataclasses.dataclass
class VmmSide(Side):
    """A VMM that cannot report a drive's size and can only be told: by this method of HTTP."""

    change: str = ""
    state = "blocked"

    def breaks(self, hooks):
        self.peer.set(**hooks)

    def mend(self):
        self.peer.mend()

    def asked(self):
        """It was told once before: the size that it had."""
        return self.peer.sent(self.change)[1:]


class VmmTest(SidesTest):
    change = None  # the method of the request that changes something

    def run_cases(self, node, cases, makes):
        """Each is synchronised, broken, grown, checked, and mended at once, before its pauses grow; made in each way."""
        self.agent(node)
        rows = []
        for make in makes:
            for name, case in cases.items():
                volume = self.volume(node, f"pv-{len(rows)}")
                rows.append((name, case, VmmSide(volume, make(node, sandbox_id(len(rows)), volume), change=self.change)))
        node.start()
        for name, case, side in rows:
            node.wait_for(side.volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
            self.assertEqual(len(side.peer.sent(self.change)), 1, f"{name}: synchronised once")
            side.breaks(case.hooks)
        for _, _, side in rows:
            side.volume.loop.resize(AFTER)
        for name, case, side in rows:
            with self.subTest(name):
                self.check(side, case, node)
                node.wait(lambda path=side.volume.path: self.resize_row(node, path)["attempts"] >= 2, 60,
                          f"{name} to be tried again")
            side.mend()
        for name, _, side in rows:
            if name not in NOT_MENDED:
                with self.subTest(name):
                    node.wait_for(side.volume.path, "in_sync", "none", LONGEST_PAUSE, hypervisor_bytes=AFTER,
                                  next_attempt_at=None)
                    self.assertEqual(self.resize_row(node, side.volume.path)["state"], "in_sync")
                    self.check_resized(side.peer, side.volume)

    def check_resized(self, vmm, volume):
        raise NotImplementedError

    def scene(self, *options, node=None, **stage):
        """(node, volume, VMM), before the daemon starts."""
        node = node or self.node()
        self.agent(node)
        volume = self.volume(node, **stage)
        return node, volume, self.make(node, sandbox_id(0), volume, *options)

    def unable(self, reason, error, *explained, options=(), node=None):
        """Said before the device grows, and what is waited for then is no time. Returns (node, row of before)."""
        node, volume, vmm = self.scene(*options, node=node)
        node.start()
        row = node.wait_for(volume.path, "unknown", reason, next_attempt_at=None)
        volume.loop.resize(AFTER)
        self.waits(node, volume, reason, re.escape(error), *explained)
        self.assertEqual(vmm.sent(self.change), [])
        return node, row

    def waits(self, node, volume, reason, error, *explained):
        """Time does not heal it: one attempt, and none planned."""
        row = node.wait_for(volume.path, "blocked", reason, next_attempt_at=None)
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["state"], resize["reason"], resize["attempts"]), ("blocked", reason, 1))
        self.assertRegex(resize["error"], error)
        self.explains(node, volume.path, reason, *explained)
        self.settle(node)
        self.assertEqual(self.resize_row(node, volume.path)["attempts"], 1)
        return row


class CloudHypervisorTest(VmmTest):
    change = "PUT"

    def make(self, node, sandbox, volume, version="v52.0", *options):
        vmm = cloud_hypervisor(self, node, sandbox, volume, version, *options)
        record(node, vmm, volume)
        return vmm

    def check_resized(self, vmm, volume):
        """Never a size but the device's own."""
        self.assertEqual(vmm.sent("PUT")[-1], {"id": volume.drive, "desired_size": AFTER})
        self.assertEqual({body["desired_size"] for body in vmm.sent("PUT")}, {BEFORE, AFTER})
        self.assertEqual(set(vmm.targets("PUT")), {"/api/v1/vm.resize-disk"})

    def test_faults(self):
        self.run_cases(self.node({"resize.call_timeout_seconds": 2}), CLOUD_HYPERVISOR,
                       [functools.partial(self.make, version=version) for version in ("v52.0", "v53.0")])

    def test_faults_of_v51(self):
        """A VMM that does not answer is reported; once it answers, so is what its version cannot do."""
        node = self.node({"resize.call_timeout_seconds": 2})
        scene = []
        for number, case in enumerate(CONNECTIONS.values()):
            volume = self.volume(node, f"pv-{number}")
            scene.append((case, volume, self.make(node, sandbox_id(number), volume, "v51.2")))
        node.start()
        for case, volume, vmm in scene:
            row = node.wait_for(volume.path, "unknown", "hypervisor_version")
            self.assertIn("(this is 51.2)", row["evidence"])
            vmm.set(**case.hooks)
            volume.loop.resize(AFTER)
        for case, volume, vmm in scene:
            node.wait_for(volume.path, "blocked", case.reason)
            self.assertRegex(self.resize_row(node, volume.path)["error"], case.error)
            vmm.mend()
        for _, volume, vmm in scene:
            node.wait_for(volume.path, "blocked", "hypervisor_version", LONGEST_PAUSE, next_attempt_at=None)
            self.assertEqual(vmm.sent("PUT"), [])

    def test_resize_sends_the_exact_size(self):
        """At first sight, because it cannot be asked, and at each resize; not after a restart."""
        node = self.node()
        self.agent(node)
        volumes = {version: self.volume(node, f"pv-{version}") for version in ("v52.0", "v52.0-1-gabcdef", "v53.1")}
        vmms = {version: self.make(node, sandbox_id(number), volume, version)
                for number, (version, volume) in enumerate(volumes.items())}
        vmms["v53.1"].set(delay=0.05, split=1)
        node.start()
        for version, volume in volumes.items():
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
            self.assertIsNone(self.resize_row(node, volume.path))
            self.assertEqual(vmms[version].sent("PUT"), [{"id": volume.drive, "desired_size": BEFORE}])
        row = node.query("SELECT * FROM audit_sandboxes ORDER BY sandbox_id LIMIT 1")[0]
        self.assertEqual((row["runtime"], row["hypervisor"], row["vmm_pid"]),
                         ("kata-go", "cloud-hypervisor", vmms["v52.0"].pid))
        self.assertEqual(row["control_socket"], f"/run/vc/vm/{sandbox_id(0)}/clh-api.sock")
        for volume in volumes.values():
            volume.loop.resize(AFTER)
        for version, volume in volumes.items():
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
            self.check_resized(vmms[version], volume)
        node.stop()
        node.start()
        self.settle(node)
        for version, volume in volumes.items():
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
            self.assertEqual(len(vmms[version].sent("PUT")), 2)

    def test_versions_that_would_truncate(self):
        need = "needs Cloud Hypervisor 52 or later (this is 51.1, the one that Kata 4.1.0 ships)"
        node, row = self.unable("hypervisor_version", need, need, "restart the pod", options=["v51.1"])
        self.assertEqual(row["evidence"], need)
        self.assertIn(need, " ".join(node.crustctl("doctor", check=False).stdout.split()))

    def test_read_only(self):
        self.unable("read_only", "read-only", "a pod that starts anew", options=["v52.0", "--read-only"])

    def test_observed_only(self):
        """Telling is an act, so its size stays unknown."""
        node, volume, vmm = self.scene(metadata={"crust.resize": "observe"})
        node.start()
        node.wait_for(volume.path, "unknown")
        self.settle(node)
        volume.loop.resize(AFTER)
        node.wait_for(volume.path, "host_grown", "policy")
        self.settle(node)
        self.assertEqual(vmm.sent("PUT"), [])

    def test_paused(self):
        node, volume, vmm = self.scene()
        node.start()
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        vmm.set(state="Paused")
        volume.loop.resize(AFTER)
        row = node.wait_for(volume.path, "block_grown", "vm_paused", hypervisor_bytes=AFTER)
        self.assertEqual(row["evidence"], "the VM is paused")
        vmm.mend()
        node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, evidence=None)

    def test_a_guest_that_fills_the_device_shows_the_size(self):
        """The VMM tells no size, and needs none to be told: it opened the device at this one."""
        node = self.node()
        self.agent(node)
        volume = self.volume(node)
        node.start()
        node.wait_for(volume.path, "unbound")  # the device is seen before the VMM starts
        vmm = self.make(node, sandbox_id(0), volume)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=None, guest_bytes=BEFORE, resizable="yes")
        self.assertEqual(vmm.sent("PUT"), [])

    def test_no_socket(self):
        node, volume, vmm = self.scene()
        socket = node.vm_dir(sandbox_id(0)) / "clh-api.sock"
        socket.rename(socket.with_name("elsewhere"))
        node.start()
        node.wait_for(volume.path, "unknown", "monitor_missing", next_attempt_at=None)
        volume.loop.resize(AFTER)
        self.waits(node, volume, "monitor_missing", "no control socket")
        socket.with_name("elsewhere").rename(socket)
        node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
        self.assertEqual(vmm.sent("PUT"), [{"id": volume.drive, "desired_size": AFTER}])

    def test_a_hung_vmm_holds_up_no_other(self):
        """64 sandboxes grow at once; the others are through while one still does not answer."""
        node = self.node({"resize.call_timeout_seconds": 600})
        self.agent(node)
        volumes = [self.volume(node, f"pv-{number}") for number in range(64)]
        vmms = [cloud_hypervisor(self, node, sandbox_id(number), volume) for number, volume in enumerate(volumes)]
        for vmm, volume in zip(vmms, volumes):
            record(node, vmm, volume)
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        hung, others = volumes[0], volumes[1:]
        vmms[0].set(silent_on="PUT")
        hung.loop.resize(AFTER)
        node.wait(lambda: len(vmms[0].sent("PUT")) == 2, 60, "the one to be told")
        for volume in others:
            volume.loop.resize(AFTER)
        for volume in others:
            node.wait_for(volume.path, "in_sync", "none", 300, hypervisor_bytes=AFTER)
        self.assertEqual(status(node)["acts_in_flight"], 1)
        node.wait_for(hung.path, "host_grown", "none", hypervisor_bytes=BEFORE)
        waiting = self.resize_row(node, hung.path)
        self.assertEqual((waiting["hypervisor_at"], waiting["finished_at"]), (None, None))
        finished = node.query("SELECT * FROM audit_resizes WHERE finished_at IS NOT NULL")
        self.assertEqual(len(finished), 63)
        for resize in finished:
            self.assertEqual(resize["state"], "in_sync")
            self.assertLess(waiting["detected_at"], resize["detected_at"])
        vmms[0].stop()
        node.wait_for(hung.path, "unbound")


class FirecrackerTest(VmmTest):
    change = "PATCH"

    def make(self, node, sandbox, volume, *options, jailed=True, drive=None):
        vmm = firecracker(self, node, sandbox, volume, *options, jailed=jailed)
        record(node, vmm, volume, drive=drive)
        return vmm

    def on(self, **settings):
        return self.node({"resize.firecracker": "on"} | settings)

    def check_resized(self, vmm, volume):
        """Only the path that it already has, as the jail sees it."""
        path = "/" + DRIVE if "--jail" in vmm.process.args else volume.loop.device
        for body in vmm.sent("PATCH"):
            self.assertEqual(body, {"drive_id": DRIVE, "path_on_host": path})
        self.assertEqual(set(vmm.targets("PATCH")), {f"/drives/{DRIVE}"})

    def test_off(self):
        node = self.node()
        self.agent(node)
        volumes = [self.volume(node, f"pv-{number}") for number in range(2)]
        vmms = [self.make(node, sandbox_id(number), volume, jailed=number == 1)
                for number, volume in enumerate(volumes)]
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "unknown", "hypervisor_unsupported", next_attempt_at=None)
            volume.loop.resize(AFTER)
        for volume in volumes:
            self.waits(node, volume, "hypervisor_unsupported", "only with resize.firecracker = on",
                       "resize.firecracker = on", "Restart the pod")
        for vmm in vmms:
            self.assertEqual(vmm.sent("PATCH"), [])  # its list of drives may be read
        node.stop()
        node.configure(resize__firecracker="on")
        node.start()
        node.crustctl("resync")
        for vmm, volume in zip(vmms, volumes):
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
            self.check_resized(vmm, volume)

    def test_on(self):
        node = self.on()
        self.agent(node)
        volumes = [self.volume(node, f"pv-{number}") for number in range(4)]
        vmms = [self.make(node, sandbox_id(number), volume, jailed=number % 2 == 1)
                for number, volume in enumerate(volumes)]
        for vmm in vmms[2:]:
            vmm.set(delay=0.05, split=1)
        node.start()
        for number, volume in enumerate(volumes):
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
            self.assertEqual(len(vmms[number].sent("PATCH")), 1)
        for number, row in enumerate(node.query("SELECT * FROM audit_sandboxes ORDER BY sandbox_id")):
            self.assertEqual((row["runtime"], row["hypervisor"], row["vmm_pid"]),
                             ("kata-go", "firecracker", vmms[number].pid))
            self.assertEqual(row["control_socket"], f"/run/vc/firecracker/{sandbox_id(number)[:32]}"
                             "/root/run/firecracker.socket")
        for volume in volumes:
            volume.loop.resize(AFTER)
        for number, volume in enumerate(volumes):
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=AFTER)
            self.check_resized(vmms[number], volume)
            self.assertEqual(len(vmms[number].sent("PATCH")), 2)

    def test_faults(self):
        """In a jail and without one."""
        self.run_cases(self.on(**{"resize.call_timeout_seconds": 2}), FIRECRACKER,
                       [functools.partial(self.make, jailed=jailed) for jailed in (True, False)])

    def test_asynchronous_engine(self):
        """Re-reading the drive would lose requests that are under way."""
        self.unable("hypervisor_unsupported", "I/O engine is not Sync", "Restart the pod",
                    options=["--io-engine", "Async"], node=self.on())

    def turn_node(self, node, sandbox, device):
        """What the drive's path leads to within the jail."""
        path = jail_of(node, sandbox) / DRIVE
        path.unlink()
        os.mknod(path, 0o600 | stat.S_IFBLK, os.stat(device).st_rdev)

    def test_another_device_at_the_path(self):
        """A PATCH would make it the guest's disk. Whether the drive was on record or not."""
        node = self.on()
        self.agent(node)
        other = self.loop()
        volumes = [self.volume(node, name) for name in ("pv-known", "pv-unknown")]
        vmms = [self.make(node, sandbox_id(number), volume, drive=drive)
                for number, (volume, drive) in enumerate(zip(volumes, (DRIVE, None)))]
        node.start()
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", "none", hypervisor_bytes=BEFORE)
        for number, volume in enumerate(volumes):
            self.turn_node(node, sandbox_id(number), other.device)
            volume.loop.resize(AFTER)
        for vmm, volume, reason in zip(vmms, volumes, ("identity_mismatch", "drive_not_found")):
            node.wait_for(volume.path, "blocked", reason, hypervisor_bytes=BEFORE)
            node.wait(lambda path=volume.path: self.resize_row(node, path)["attempts"] >= 2, 60, "another attempt")
            self.explains(node, volume.path, reason)
            self.assertEqual(len(vmm.sent("PATCH")), 1)
        for number, volume in enumerate(volumes):
            self.turn_node(node, sandbox_id(number), volume.loop.device)
        for vmm, volume in zip(vmms, volumes):
            node.wait_for(volume.path, "in_sync", "none", LONGEST_PAUSE, hypervisor_bytes=AFTER)
            self.assertEqual(len(vmm.sent("PATCH")), 2)
