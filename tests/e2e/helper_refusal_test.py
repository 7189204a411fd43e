# SPDX-License-Identifier: Apache-2.0
"""What keeps a helper from its work: each has its reason, its sentence, and nothing is left behind."""

import dataclasses
import os
import threading

from helper_case import HOST_SANDBOXES, HelperCase, OURS
from kata_agent import POLICY
from scratch_node import AFTER, BEFORE, LONGEST_PAUSE

CALLS = ("CreateContainer", "StartContainer", "ReadStdout", "ReadStderr", "WaitProcess",
         "RemoveContainer")


@dataclasses.dataclass
class Refusal:
    reason: str
    error: str
    call: str = "CreateContainer"
    behaviour: str = ""
    fault: str = ""
    retried: bool = True
    explained: tuple = ()


REFUSALS = {
    "the policy forbids to create": Refusal(
        "agent_policy_denied", "CreateContainer.*policy", retried=False,
        behaviour=f"status:13:{POLICY.format('CreateContainer')}",
        explained=("CreateContainerRequest", "crust-", "crust-guest-agent")),
    "the policy forbids to read": Refusal(
        "agent_policy_denied", "ReadStdout", "ReadStdout", retried=False,
        behaviour="status:7:ReadStreamRequest is blocked by policy",
        explained=("ReadStreamRequest",)),
    "no cgroups": Refusal(
        "helper_no_cgroups", "cgroup", retried=False,
        behaviour="status:13:failed to create cgroup: No such file or directory",
        explained=("CONFIG_CGROUPS",)),
    "an older agent": Refusal(
        "agent_denied", "found unable before|policy", retried=False,
        behaviour="status:12:/grpc.AgentService/CreateContainer is not supported"),
    "an error": Refusal("helper_failed", "CreateContainer.*no space", explained=("journalctl",),
                        behaviour="status:13:no space left on device"),
    "cannot start": Refusal("helper_failed", "StartContainer.*EPERM", "StartContainer",
                            behaviour="status:13:EPERM"),
    "read-only": Refusal("read_only", "says read_only", fault="read_only",
                         explained=("remount", "crustctl resync")),
    "shut down": Refusal("file_system_shut_down", "says shut_down", fault="shut_down",
                         explained=("xfs_repair", "tries again")),
    "errors on record": Refusal("file_system_not_growable", "says errors", fault="errors",
                                retried=False, explained=("fsck",)),
    "cannot grow": Refusal("file_system_not_growable", "says unsupported", fault="unsupported",
                           retried=False),
    "still growing": Refusal("agent_failed", "says timed_out", fault="timed_out"),
    "at its limit": Refusal("file_system_limit", "says limit", fault="limit", retried=False,
                            explained=("Make a new one",)),
    "not mounted": Refusal("guest_path_unknown", "says not_mounted", fault="not_mounted"),
}


class RefusalTest(HelperCase):

    def refused(self, node, scene, refusal):
        row = node.wait_for(scene.volume.path, "block_grown", refusal.reason, 120)
        self.assertRegex(self.resize_row(node, scene.volume.path)["error"], refusal.error)
        self.assertEqual(row["hypervisor_bytes"], AFTER)
        if not refusal.retried:
            self.assertIsNone(row["next_attempt_at"])
        self.explains(node, scene.volume.path, "block_grown", refusal.reason, *refusal.explained)

    def heals(self, node, scenes):
        node.crustctl("resync")
        for scene in scenes:
            self.in_sync(node, scene, AFTER, LONGEST_PAUSE)

    def test_answers(self):
        node, scenes = self.build_all(REFUSALS)
        for name, scene in scenes.items():
            refusal = REFUSALS[name]
            if refusal.fault:
                scene.agent.faults = dict.fromkeys(scene.agent.mounts, refusal.fault)
            else:
                scene.agent.behave(refusal.call, refusal.behaviour)
            self.grow(scene)
        for name, scene in scenes.items():
            with self.subTest(name):
                self.refused(node, scene, REFUSALS[name])
                self.nothing_left(node, scene)
        with self.subTest("what a sandbox's guest is remembered for is not tried again"):
            scene = scenes["the policy forbids to create"]
            tries = len(scene.created())
            scene.volume.loop.resize(2 * AFTER)
            node.wait_for(scene.volume.path, "block_grown", "agent_policy_denied",
                          hypervisor_bytes=2 * AFTER)
            self.settle(node)
            self.assertEqual(len(scene.created()), tries)
        for scene in scenes.values():
            scene.agent.faults = {}
            for call in CALLS:
                scene.agent.behave(call, "ok")
        del scenes["the policy forbids to create"]
        self.heals(node, scenes.values())

    def test_hangs_and_deaths_at_each_call(self):
        """The reason names the call; what hangs is killed and removed."""
        names = [f"{call} {end}" for call in CALLS for end in ("silent", "close")]
        node, scenes = self.build_all(names, resize__call_timeout_seconds=4)
        for name, scene in scenes.items():
            call, end = name.split()
            # The first of them only: what follows, such as removing, is answered.
            scene.agent.behave(call, end, "ok")
            self.grow(scene)
        said = {}
        for name, scene in scenes.items():
            with self.subTest(name):
                self.in_sync(node, scene, AFTER, LONGEST_PAUSE)
                said[name] = [row["detail"] or "" for row in node.query(
                    "SELECT j.detail FROM audit_journal j JOIN audit_volumes v USING (volume_id)"
                    f" WHERE v.target_path = '{scene.volume.path}' AND j.kind = 'guest_answered'"
                    " AND j.detail LIKE '%reason%'")]
                call = name.split()[0]
                if call != "RemoveContainer":  # then the resize was through
                    self.assertIn(call, "".join(said[name]))

    def test_who_waits_for_a_helper_holds_up_nobody_else(self):
        """Other sandboxes' VMMs are told meanwhile, although one act at a time is allowed."""
        node, scenes = self.build_all(["hangs", "grows"], guest__helpers=1, resize__parallel=1,
                                      resize__call_timeout_seconds=60)
        hangs, grows = scenes.values()
        created = [len(scene.created()) for scene in (hangs, grows)]
        hangs.agent.behave("CreateContainer", "silent", "ok")
        self.grow(hangs)
        hangs.agent.wait_for_requests(created[0] + 1, 60, method="CreateContainer")
        self.grow(grows)
        node.wait_for(grows.volume.path, "block_grown", seconds=30, hypervisor_bytes=AFTER)
        self.assertEqual(len(grows.created()), created[1])

    def test_a_program_that_hangs(self):
        """The helper is killed when its time is over, and so is its container."""
        node, scenes = self.build_all(["hangs"], resize__call_timeout_seconds=4)
        scene = scenes["hangs"]
        scene.agent.hold = hold = threading.Event()
        self.grow(scene)
        self.refused(node, scene, Refusal("helper_failed", "Read|program"))
        self.nothing_left(node, scene)
        self.assertTrue(scene.agent.matching(lambda one: one.method == "SignalProcess"))
        hold.set()
        self.heals(node, [scene])


class PlaceTest(HelperCase):
    """The node's side: the program, and the share that it is placed in."""

    def refused(self, node, scene, reason, error, *explained):
        node.wait_for(scene.volume.path, "block_grown", reason)
        self.assertRegex(self.resize_row(node, scene.volume.path)["error"], error)
        self.explains(node, scene.volume.path, "block_grown", reason, *explained)
        self.assertEqual(sorted(scene.agent.containers), [])

    def heals(self, node, scene):
        node.crustctl("resync")
        self.in_sync(node, scene, AFTER)

    def test_no_program(self):
        node, scene = self.build()
        (self.scratch / "crust-guest-agent").rename(self.scratch / "away")
        self.grow(scene)
        self.refused(node, scene, "helper_missing", "crust-guest-agent: No such file",
                     "guest.helper_file", "make install")
        self.nothing_left(node, scene)
        (self.scratch / "away").rename(self.scratch / "crust-guest-agent")
        self.heals(node, scene)

    def test_a_program_that_others_may_write(self):
        node, scene = self.build()
        (self.scratch / "crust-guest-agent").chmod(0o777)
        self.grow(scene)
        self.refused(node, scene, "helper_missing", "writable by nobody else")
        (self.scratch / "crust-guest-agent").chmod(0o755)
        self.heals(node, scene)

    def test_wrong_architecture(self):
        node, scene = self.build()
        program = self.scratch / "crust-guest-agent"
        right = program.read_bytes()
        program.write_bytes(right[:18] + b"\xf3\x00" + right[20:])  # e_machine: RISC-V
        self.grow(scene)
        self.refused(node, scene, "helper_wrong_architecture", "ELF machine 243", "another architecture")
        program.write_bytes(right)
        self.heals(node, scene)

    def test_no_share(self):
        node, scene = self.build()
        scene.share.rename(scene.share.with_name("away"))
        self.grow(scene)
        self.refused(node, scene, "helper_no_share", "mounts: No such file", "df /run")
        scene.share.with_name("away").rename(scene.share)
        self.heals(node, scene)

    def test_a_share_behind_a_link(self):
        """Nothing is written where the link leads."""
        node, scene = self.build()
        victim = self.scratch / "victim"
        scene.share.rename(victim)
        scene.share.symlink_to(victim)
        before = sorted(os.listdir(victim))
        self.grow(scene)
        self.refused(node, scene, "helper_no_share", "symbolic links")
        self.assertEqual(sorted(os.listdir(victim)), before)
        scene.share.unlink()
        victim.rename(scene.share)
        self.heals(node, scene)

    def test_a_full_share(self):
        node = self.helper_node()
        shared = node.root / HOST_SANDBOXES
        shared.mkdir(parents=True)
        self.mount_for_the_test("-t", "tmpfs", "-o", "size=8m", "tmpfs", shared)
        scene = self.scene(node)
        node.start()
        self.in_sync(node, scene, BEFORE)
        filler = scene.share / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 65536)
            except OSError:
                pass
        self.grow(scene)
        self.refused(node, scene, "helper_no_share", "No space left", "df /run")
        self.assertEqual([name for name in os.listdir(scene.share) if name.startswith(OURS)], [])
        filler.unlink()
        self.heals(node, scene)

    def test_confidential_guest(self):
        """Known by QEMU's arguments; nothing is brought into it, and what its agent says stands."""
        node = self.helper_node()
        scene = self.scene(node)
        scene.vmm.stop()
        vmm = node.start_vmm(scene.sandbox_id, "-machine", "q35,confidential-guest-support=snp0")
        node.add_sandbox(scene.sandbox_id, vmm.pid,
                         agent=f"unix:///{os.path.basename(scene.agent.socket_path)}",
                         drives=[volume.record() for volume in scene.volumes])
        node.start()
        node.wait_for(scene.volume.path, "in_sync", "unverified")
        self.grow(scene)
        node.wait_for(scene.volume.path, "block_grown", "agent_denied")
        self.assertEqual(scene.agent.matching(lambda one: one.method in CALLS), [])
        self.nothing_left(node, scene)
