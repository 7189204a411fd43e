# SPDX-License-Identifier: Apache-2.0
"""Claims and pods with the example CSI driver, and crustd beside it.

    class SomethingTest(ClaimTest):
        def test_it(self):
            volume, guest = self.start_vm("web")        # a claim, a pod, a guest
            self.edit("web", GROWN)                     # what a person does
            self.expand_device("web", volume, GROWN)    # what external-resizer does
            self.wait_capacity("web", GROWN)            # what the kubelet does

A pod of the runtime class "kata" runs under runc. Its volume is in a guest on KVM that stands in Kata's
layout under the same sandbox id, which the test starts when the pod's sandbox appears and ends with it. So
the kubelet, containerd, the driver, crustd and the guest are all real. What a test makes goes with it.
"""

import json
import re

import yaml
from cluster import NODE
from cluster_disk import IMAGE
from controllers import DRIVER, MIB, SOCKET, STORAGE, TOOLS, ControllerTest, storage
from node import encode
from node_test_case import REPOSITORY
from sandboxes import BOOT_SECONDS

SIZE, GROWN, LARGER = 64 * MIB, 128 * MIB, 192 * MIB
TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
# A pod's sandbox, once it runs: the container of containerd's that says so.
SANDBOX = f"""
for config in $(grep -l {{}} {TASKS}/*/config.json); do
    ! grep -q '"io.kubernetes.cri.container-type":"sandbox"' $config || basename $(dirname $config)
done
"""
SETTINGS = {"resize__sweep_seconds": 5}


class ClaimTest(ControllerTest):
    @classmethod
    def prepare(cls):
        super().prepare()
        cls.create(*yaml.safe_load_all(STORAGE.read_text()), {
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
            "handler": "kata"})
        cls.wait_for(cls.is_registered, "the driver on CSINode")

    @classmethod
    def furnish(cls):
        super().furnish()
        cls.node.put(REPOSITORY / "tests/kubernetes/register.py", f"{TOOLS}/register.py")
        cls.node.put(REPOSITORY / "tests/fakes", f"{TOOLS}/fakes")
        cls.node.configure(**SETTINGS)

    @classmethod
    def start_node(cls):
        super().start_node()
        cls.node.start_crustd()
        cls.start_unit("registrar", "python3", f"{TOOLS}/register.py", DRIVER, SOCKET)

    @classmethod
    def is_registered(cls):
        node = cls.get("csinode", NODE)
        return node and any(one["name"] == DRIVER for one in node["spec"]["drivers"] or [])

    def configure(self, **settings):
        """crustd begins anew with these settings, and without them at the test's end."""
        def restart(changed):
            self.node.configure(**(SETTINGS | changed))
            self.node.run("systemctl restart crustd")
            self.node.wait(self.node.is_synced, 60, "crustd")

        restart(settings)
        self.addCleanup(restart, {})

    # -- pods

    def create_pod(self, name, claim=None, runtime="kata", command=None, has_volume=True, raw=False):
        """raw: the container has the claim's device, not a file system."""
        spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
                "dnsPolicy": "Default",
                "containers": [{"name": "work", "image": IMAGE, "imagePullPolicy": "Never",
                                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim or name}}]}
        if raw:
            del spec["containers"][0]["volumeMounts"]
            spec["containers"][0]["volumeDevices"] = [{"name": "data", "devicePath": "/dev/data"}]
        if not has_volume:
            del spec["volumes"], spec["containers"][0]["volumeMounts"]
        if runtime:
            spec["runtimeClassName"] = runtime
        if command:
            spec["containers"][0]["command"] = command
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        self.addCleanup(self.delete_pod, name)

    def phase(self, name):
        return self.get("pod", name)["status"]["phase"]

    def has_sandbox(self, name):
        return any(one["type"] == "PodReadyToStartContainers" and one["status"] == "True"
                   for one in self.get("pod", name)["status"].get("conditions", []))

    def wait_running(self, name):
        self.wait_for(lambda: self.phase(name) == "Running", f"pod {name}")

    def target(self, name, claim=None):
        """Where the driver publishes the pod's volume."""
        uid = self.get("pod", name)["metadata"]["uid"]
        return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pvc-{claim or name}/mount"

    def raw_target(self, name, claim=None):
        """Where it publishes the device of a claim of volumeMode Block."""
        uid = self.get("pod", name)["metadata"]["uid"]
        return f"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-{claim or name}/{uid}"

    def metadata_of(self, name, claim=None):
        return f"/run/kata-containers/shared/direct-volumes/{encode(self.target(name, claim))}"

    def start_guest(self, name, claim=None, raw=False, **options):
        """Kata's part of a pod's start: as soon as its sandbox is there, a guest has the volume. raw: the device that
        the driver has published, and not what metadata name."""
        uid = self.get("pod", name)["metadata"]["uid"]
        self.wait_for(lambda: self.has_sandbox(name), f"the kubelet to have started the sandbox of pod {name}")
        found = self.wait_for(lambda: self.node.output(SANDBOX.format(uid)).split(),
                              f"the sandbox of pod {name}")
        if raw:
            number = f"$(stat --format=%Hr:%Lr {self.raw_target(name, claim)})"
            disk = self.node.output(f"readlink -e /dev/block/{number}").strip(), None
        else:
            mount_info = json.loads(self.node.read(f"{self.metadata_of(name, claim)}/mountInfo.json"))
            disk = mount_info["device"], mount_info["fstype"]
        guest = self.add_sandbox({f"pvc-{claim or name}": disk}, staged=True, **options)
        guest.id, guest.pod = found[0], uid
        self.addCleanup(self.end_guest, guest)
        guest.start()
        guest.wait_ready()
        return guest

    def end_guest(self, guest):
        """With its records, as Kata ends it."""
        if guest in self.sandboxes:
            self.node.run(f"systemctl stop {guest.unit}; rm -rf {guest.control} /run/vc/sbs/{guest.id}"
                          f" /run/vc/vm/{guest.id}", seconds=BOOT_SECONDS)
            self.sandboxes.remove(guest)

    def delete_pod(self, name, guest=None, *options):
        """With its guest, which ends with the sandbox."""
        self.kubectl("delete", "pod", name, "--wait=false", "--ignore-not-found", *options)
        if guest:
            self.end_guest(guest)
        self.wait_for(lambda: self.get("pod", name) is None, f"the end of pod {name}")

    def start_vm(self, name, **options):
        """A claim, a pod that uses it, and its guest; returns the volume's id and the guest."""
        volume = self.provision(name, SIZE)
        self.create_pod(name)
        guest = self.start_guest(name, **options)
        self.wait_running(name)
        return volume, guest

    # -- what is seen

    def guest_size(self, guest):
        """Bytes of the only volume's file system, by the guest's statfs."""
        return guest.ask("sizes", 0)[1]

    def mounted_size(self, pod):
        """Bytes of the file system that a pod of the node has, by its own df."""
        line = self.kubectl("exec", pod, "--", "df", "-k", "/data").split("\n")[1]
        return int(line.split()[1]) << 10

    def resize_status(self, name):
        return self.claim(name)["status"].get("allocatedResourceStatuses", {}).get("storage")

    def wait_resize_status(self, name, status):
        self.wait_for(lambda: self.resize_status(name) == status, f"claim {name} to be {status}")

    def wait_resize_error(self, name, *texts):
        """Until the claim's owner can read why it has not grown."""
        def told():
            return any(one["type"] == "NodeResizeError" and all(text in one["message"] for text in texts)
                       for one in self.claim(name)["status"].get("conditions", []))

        self.wait_for(told, f"a NodeResizeError of claim {name} with {texts}")

    def wait_capacity(self, name, size):
        """Until the claim has that size, with nothing left to be done."""
        self.wait_for(lambda: self.claim(name)["status"]["capacity"] == storage(size),
                      f"claim {name} to have {storage(size)}")
        status = self.claim(name)["status"]
        self.assertEqual(status.get("conditions", []), [])
        self.assertNotIn("allocatedResourceStatuses", status)

    def wait_grown(self, guest, size):
        """Until the guest's file system nearly fills a disk of that size; what was on it is there."""
        self.wait_for(lambda: size * 3 // 4 < self.guest_size(guest) <= size, "the guest's file system")
        guest.ask("verify", 0)

    def grow(self, name, volume, guest):
        """Edits the claim, and waits until all has followed; guest: None for a volume that none has."""
        self.edit(name, GROWN)
        self.expand_device(name, volume, GROWN)
        self.wait_capacity(name, GROWN)
        if guest:
            self.wait_grown(guest, GROWN)

    def events(self, name):
        """(reason, message) of an object's events, in the order in which the API server had them."""
        found = self.list("event", f"?fieldSelector=involvedObject.name={name}")
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in found]

    def wait_event(self, name, reason, *texts):
        """Until there is one with all these texts; returns its message."""
        return self.wait_for(
            lambda: next((message for kind, message in self.events(name)
                          if kind == reason and all(text in message for text in texts)), None),
            f"an event {reason} of {name} with {texts}")

    def kubelet_metrics(self, name):
        """[(labels, value)] of a metric of the kubelet's own."""
        text = self.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/metrics")
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), float(value))
                for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)]

    def stats_of(self, pod):
        """What the kubelet's summary says of the pod's claim, or None."""
        summary = json.loads(self.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/stats/summary"))
        volumes = [volume for one in summary["pods"] if one["podRef"]["name"] == pod
                   for volume in one.get("volume", []) if "pvcRef" in volume]
        return volumes[0] if volumes else None

    def wait_stats(self, pod, size):
        """Until the kubelet's figures are those of a file system of that size."""
        def reached():
            stats = self.stats_of(pod)
            return stats if stats and stats.get("capacityBytes") == size else None

        return self.wait_for(reached, f"the kubelet's figures of pod {pod}")
