# SPDX-License-Identifier: Apache-2.0
"""What the shipped manifests are to a real API server, without any node: the rendered chart is taken as it is, validated
and not changed by another apply; the policy of config/deploy/guest-agent adds the sidecar to the pods that need it."""

import json
import subprocess
import tempfile
import unittest

import cluster_disk
import go_programs
import yaml
from control_plane import ControlPlane, free_ports
from node_test_case import REPOSITORY
from programs import wait_until

DELIVERY = REPOSITORY / "config/deploy/guest-agent"
CHART = REPOSITORY / "config/helm/crustd"
VALUES = {"canary": {"enabled": True}, "crustQemu": {"enabled": True}, "metrics": {"dashboards": {"enabled": True}}}
PODS = "/api/v1/namespaces/default/pods?dryRun=All"
SECONDS = 120


def rendered(**values):
    """What helm would apply, as one list."""
    renderer = go_programs.build(REPOSITORY / "tests/helm", ".", "render-chart")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        done = subprocess.run([renderer, CHART, file.name], capture_output=True, text=True, check=True)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": json.loads(done.stdout)})


class ApiServerTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.control_plane = cls.enterClassContext(ControlPlane(cluster_disk.programs(), free_ports(1)[0]))
        cls.control_plane.begin()
        cls.control_plane.start()
        cls.control_plane.kubectl("apply", "-f", "-", given=json.dumps(
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata-qemu"}, "handler": "kata"}))

    def kubectl(self, *arguments, **options):
        return self.control_plane.kubectl(*arguments, **options)

    # -- the chart

    def apply(self, objects):
        return self.kubectl("apply", "--server-side", "-f", "-", given=objects)

    def test_chart_is_taken_strictly(self):
        """No field is unknown, none comes twice."""
        for one in json.loads(rendered(**VALUES))["items"]:
            group = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
            path = f"{group}/namespaces/kube-system/{one['kind'].lower()}s?dryRun=All&fieldValidation=Strict"
            with self.subTest(path):
                self.assertEqual(self.control_plane.request("POST", path, one)[0], 201)

    def names(self):
        found = self.kubectl("-n", "kube-system", "get", "daemonset,configmap", "-o", "name").split()
        return {name for name in found if "crustd" in name}

    def generation(self, name="crustd"):
        return self.control_plane.request(
            "GET", f"/apis/apps/v1/namespaces/kube-system/daemonsets/{name}")[1]["metadata"]["generation"]

    def test_chart(self):
        """A changed value is another pod template; what is deleted leaves nothing."""
        first = rendered(**VALUES)
        self.addCleanup(self.kubectl, "delete", "--ignore-not-found", "-f", "-", given=first)
        self.apply(first)
        self.assertEqual(self.names(), {
            "daemonset.apps/crustd", "daemonset.apps/crustd-canary", "configmap/crustd", "configmap/crustd-canary",
            "configmap/crustd-dashboards"})
        before = self.generation()
        self.apply(first)
        self.assertEqual(self.generation(), before)
        self.apply(rendered(**VALUES, config={"resize": {"settle_ms": 500}}))
        self.assertEqual(self.generation(), before + 1)
        self.kubectl("delete", "-f", "-", given=first)
        self.assertEqual(self.names(), set())

    # -- the sidecar by policy

    def admitted(self, pod):
        """Its init containers, as the API server would keep them."""
        return self.control_plane.request("POST", PODS, pod)[1]["spec"].get("initContainers", [])

    def pod(self, **changes):
        pod = yaml.safe_load((DELIVERY / "sidecar.yaml").read_text())
        del pod["spec"]["initContainers"]
        pod["spec"].update(changes)
        return pod

    def enforce(self):
        """As shipped, but that a fault of its own refuses the pod instead of being ignored."""
        text = (DELIVERY / "admission.yaml").read_text()
        self.assertIn("failurePolicy: Ignore", text)
        text = text.replace("failurePolicy: Ignore", "failurePolicy: Fail")
        self.addCleanup(self.kubectl, "delete", "--ignore-not-found", "-f", "-", given=text)
        self.kubectl("apply", "-f", "-", given=text)
        self.assertEqual(self.admitted(self.pod()), [])  # the namespace has no label
        self.kubectl("label", "namespace", "default", "crustd-guest-agent=enabled")
        self.addCleanup(self.kubectl, "label", "namespace", "default", "crustd-guest-agent-")
        wait_until(lambda: self.admitted(self.pod()), SECONDS, "the policy to be in force", AssertionError, 0.5)

    def test_policy(self):
        self.enforce()
        by_hand = yaml.safe_load((DELIVERY / "sidecar.yaml").read_text())
        self.assertEqual(self.admitted(self.pod())[0] | {"volumeMounts": None},
                         self.admitted(by_hand)[0] | {"volumeMounts": None})
        self.assertEqual(len(self.admitted(by_hand)), 1)
        self.assertEqual(self.mounted(self.pod()), {"data": "/volumes/data"})

    def mounted(self, pod):
        sidecar = self.admitted(pod)[-1]
        self.assertEqual(sidecar["name"], "crust-guest-agent")
        return {one["name"]: one["mountPath"] for one in sidecar["volumeMounts"]}

    def test_policy_takes_claims_that_are_mounted(self):
        self.enforce()
        claim, empty = {"name": "data", "persistentVolumeClaim": {"claimName": "web"}}, {"name": "data", "emptyDir": {}}
        raw = {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}}
        container = self.pod()["spec"]["containers"][0]
        with_raw = container | {"volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}]}
        self.assertEqual(self.mounted(self.pod(volumes=[claim, raw], containers=[with_raw])), {"data": "/volumes/data"})
        first = {"name": "first", "image": "x", "command": ["true"]}
        self.assertEqual([one["name"] for one in self.admitted(self.pod(initContainers=[first]))],
                         ["first", "crust-guest-agent"])
        for what, pod in (("no claim", self.pod(volumes=[empty])), ("runc", self.pod(runtimeClassName=None)),
                          ("a raw device alone", self.pod(volumes=[raw], containers=[
                              with_raw | {"volumeMounts": []}]))):
            with self.subTest(what):
                self.assertEqual(self.admitted(pod), [])
