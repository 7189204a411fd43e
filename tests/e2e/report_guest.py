# SPDX-License-Identifier: Apache-2.0
"""What is reported of a resize that stops in the guest, and of its success later."""

import dataclasses

from scratch_node import AFTER, BEFORE, LONGEST_PAUSE, ScratchNodeTest, fake_agent

POLICY = ("ResizeVolumeRequest: internal error policy check: unexpected eval_query result len 0, "
          "expected 1")


@dataclasses.dataclass
class Case:
    """How ResizeVolume is answered, and what is then said."""

    behaviour: object
    reason: str
    error: str
    retried: bool = True
    explained: tuple = ()


class HybridVsock(fake_agent.UnixServer):
    """One socket for all ports of a guest, as Cloud Hypervisor and Firecracker have it: hands a
    connection on to the agent that listens on the port, and closes it where none does."""

    def __init__(self, path, agents):
        super().__init__(path)
        self.ports = []  # every port that was asked for
        self.agents = agents
        self.start()

    def _talk(self, client):
        port = int(fake_agent.read_line(client).split()[1])
        self.ports.append(port)
        if port in self.agents:
            client.sendall(b"OK 1073741824\n")
            self.agents[port]._talk(client)


class GuestTest(ScratchNodeTest):

    def check(self, case, node, volume):
        row = node.wait_for(volume.path, "block_grown", case.reason)
        self.assertEqual((row["device_bytes"], row["hypervisor_bytes"]), (AFTER, AFTER))
        resize = self.resize_row(node, volume.path)
        self.assertEqual((resize["state"], resize["reason"]), ("block_grown", case.reason))
        self.assertEqual((resize["from_bytes"], resize["to_bytes"]), (BEFORE, AFTER))
        self.assertIsNotNone(resize["hypervisor_at"])
        self.assertIsNone(resize["guest_at"])
        self.assertIsNone(resize["finished_at"])
        self.assertRegex(resize["error"], case.error)
        self.assertNotRegex(resize["error"], r"[\x00-\x1f\x7f-\x9f]")
        if not case.retried:
            self.assertIsNone(row["next_attempt_at"])
        self.explains(node, volume.path, "block_grown", case.reason, *case.explained)

    def finish(self, node, volumes):
        """Grown; whether verified too is not asked where calls are given little time."""
        for volume in volumes:
            node.wait_for(volume.path, "in_sync", seconds=LONGEST_PAUSE, hypervisor_bytes=AFTER,
                          next_attempt_at=None)
            resize = self.resize_row(node, volume.path)
            self.assertEqual(resize["state"], "in_sync")
            self.assertIsNotNone(resize["guest_at"])
            self.assertIsNotNone(resize["finished_at"])
