# SPDX-License-Identifier: Apache-2.0
"""A CSI driver is upgraded and downgraded while pods run (stories 5 and 6 of KEP-2857).

The newer version defers the mount: it stages metadata, and takes it away again at NodeUnpublish. The older
one knows nothing of that: it mounts on the host, and finds nothing to do where nothing is mounted. The
kubelet calls either and believes the answer; to a driver that cannot defer it does not bring a pod that
was scheduled for that.
"""

import json
import secrets
import shutil

from cleanups import CleanupTest
from scratch_node import publish_path

BOUND = "SELECT target_path FROM audit_volumes WHERE sandbox_id IS NOT NULL"


class Pod:
    """A pod with one volume, scheduled for a runtime that mounts it in the guest."""

    def __init__(self, number):
        self.uid = f"aaaaaaaa-0000-0000-0000-{number:012}"
        self.path = publish_path("pv", self.uid)
        self.sandbox_id = secrets.token_hex(32)
        self.vmm = None


class Kubelet:
    """The kubelet, with the driver that is installed."""

    def __init__(self, test, node, layout):
        self.test, self.node, self.layout = test, node, layout
        self.defers = True

    def volume(self, pod):
        return self.node.path(pod.path).parent

    def try_to_start(self, pod):
        """What it writes down before it asks the driver, and whether the pod runs then."""
        self.volume(pod).mkdir(parents=True, exist_ok=True)
        (self.volume(pod) / "vol_data.json").write_text(
            '{"driverName":"plugin1.example.com","deferFSMount":"true"}')
        if not self.defers:
            return False
        self.node.path(pod.path).mkdir(exist_ok=True)
        self.node.stage(pod.path, "/dev/none", layout=self.layout, metadata={"pod": pod.uid})
        return True

    def run(self, pod):
        self.test.assertTrue(self.try_to_start(pod))
        pod.vmm = self.node.start_vmm(pod.sandbox_id)
        self.node.add_sandbox(pod.sandbox_id, pod.vmm.pid)
        if self.layout == "kata":
            self.node.record(pod.path, pod.sandbox_id)

    def end(self, pod):
        """StopPodSandbox, NodeUnpublishVolume, and the pod's directory is removed."""
        if pod.vmm:
            pod.vmm.stop()
            self.node.end_sandbox(pod.sandbox_id)
        if self.defers:
            shutil.rmtree(self.node.directory(pod.path, self.layout))
        shutil.rmtree(self.volume(pod).parents[2])


class Versions(CleanupTest):
    def play(self, layout, reason):
        node = self.kubelet_node()
        kubelet = Kubelet(self, node, layout)
        early, late, waiting, failing, after = (Pod(number) for number in range(5))
        for pod in (early, late):
            kubelet.run(pod)
        kubelet.try_to_start(failing)  # its image is nowhere to be found
        node.start()
        self.wait_used(node, layout, early, late)

        kubelet.defers = False  # downgraded, without a drain
        kubelet.end(early)
        row = self.wait_gone(node, layout, early, reason)
        self.assertEqual(json.loads(row["mount_info"])["metadata"], {"pod": early.uid})
        self.assertFalse(kubelet.try_to_start(waiting))  # story 6: it is tried until it works
        self.assert_untouched(node, layout, late, failing)
        kubelet.end(failing)
        self.wait_gone(node, layout, failing, "never_used")

        kubelet.defers = True  # upgraded
        kubelet.run(waiting)
        kubelet.end(late)
        node.wait_for(late.path, "unmanaged", status="removed")
        self.wait_used(node, layout, waiting)

        kubelet.defers = False  # and downgraded once more
        self.assertFalse(kubelet.try_to_start(after))
        kubelet.end(after)
        self.assert_untouched(node, layout, waiting)
        kubelet.end(waiting)
        self.wait_gone(node, layout, waiting, reason)
        self.check_end(node, layout, early, failing, waiting)
        self.assertEqual(self.rows(node, late.path) + self.rows(node, after.path), [])

    def wait_used(self, node, layout, *pods):
        if layout == "kata":
            paths = {pod.path for pod in pods}
            node.wait(lambda: paths <= {row["target_path"] for row in node.query(BOUND)}, 60,
                      "the volumes to be used")
        for pod in pods:
            node.wait(lambda path=pod.path: (node.volume(path) or {}).get("status") == "present", 60,
                      f"{pod.path} to be seen")

    def wait_gone(self, node, layout, pod, reason):
        row = self.wait_row(node, pod.path, "removed", reason)
        self.assertFalse(node.directory(pod.path, layout).exists())
        return row

    def assert_untouched(self, node, layout, *pods):
        """A whole pass later there is nothing to be said about them."""
        found = self.gc(node)
        for pod in pods:
            self.assertTrue(node.directory(pod.path, layout).exists())
            self.assertNotIn(pod.path, [row["target_path"] for row in found])
            self.assertEqual(self.rows(node, pod.path, "removed"), [])

    def check_end(self, node, layout, *removed):
        """Each can be had back; nothing else is left."""
        root = node.root / ("run/crust" if layout == "crust" else
                            "run/kata-containers/shared/direct-volumes")
        self.assertEqual(list(root.iterdir()), [])
        for pod in removed:
            row, = self.rows(node, pod.path, "removed")
            node.crustctl("restore", str(row["cleanup_id"]))
            text = (node.directory(pod.path, layout) / "mountInfo.json").read_text()
            self.assertEqual(json.loads(text)["metadata"], {"pod": pod.uid})

    def test_kata_layout(self):
        self.play("kata", "sandbox_ended")

    def test_crust_layout(self):
        """No sandbox is on record here, so the pod's directory alone keeps it."""
        self.play("crust", "never_used")

    def test_same_pod_again(self):
        """A static pod keeps its uid, so the next one's metadata has the same name."""
        node = self.kubelet_node()
        kubelet = Kubelet(self, node, "kata")
        pod = Pod(1)
        node.start()
        for removed in (1, 2):
            kubelet.defers = True
            kubelet.run(pod)
            node.wait(lambda: (node.volume(pod.path) or {}).get("sandbox_id") == pod.sandbox_id, 60,
                      "it to be used")
            kubelet.defers = False
            kubelet.end(pod)
            node.wait(lambda: len(self.rows(node, pod.path, "removed")) == removed, 60,
                      "it to be removed")
            pod.sandbox_id = secrets.token_hex(32)
        first, second = self.rows(node, pod.path, "removed")
        self.assertNotEqual(first["volume_id"], second["volume_id"])
        node.crustctl("restore", str(second["cleanup_id"]))
        done = node.crustctl("restore", str(first["cleanup_id"]), check=False)
        self.assertEqual(done.returncode, 5, done.stderr)


class Witness(CleanupTest):
    """crustd is upgraded itself: what the last daemon saw is on the record."""

    def test_exit_seen_before_a_restart(self):
        """The shim died too and left its directories; that the VMM ended was seen."""
        node, path, vmm = self.used()
        vmm.stop()
        self.wait_kept(node, path, "published")
        node.stop()
        self.unpublish(node)
        node.start()
        row = self.wait_removed(node, path)
        self.assertEqual(row["reason"], "sandbox_ended")
        sandbox, = json.loads(row["evidence"])["sandboxes"]
        self.assertEqual((sandbox["exit_seen"], sandbox["state_directory"]), (True, True))

    def test_alive_at_a_restart(self):
        """The sandbox lived on while no daemon ran, and the next daemon sees it end."""
        node, path, vmm = self.used()
        node.kill()
        self.unpublish(node)
        node.start()
        self.wait_kept(node, path, "sandbox_alive")
        vmm.stop()
        self.assertEqual(self.wait_removed(node, path)["reason"], "sandbox_ended")
