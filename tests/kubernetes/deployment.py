# SPDX-License-Identifier: Apache-2.0
"""crustd as the shipped manifests deploy it."""

import functools

from claims import GROWN, ClaimTest
from api_server_test import rendered
from cluster import BIN, NODE, START_SECONDS
from container_image import make_crustd
from node_test_case import RELEASE, REPOSITORY

MANIFESTS = REPOSITORY / "config/deploy"
IMAGE = f"docker.io/library/crustd:{RELEASE}"  # what kustomization.yaml has, as containerd writes it
LABEL = "katacontainers.io/kata-runtime"


class Deployment(ClaimTest):
    def replace_service(self):
        """A node that is to have crustd's pod instead of its service."""
        self.give_image()
        self.node.run("systemctl stop crustd")
        self.addCleanup(self.node.start_crustd)
        self.kubectl("label", "node", NODE, f"{LABEL}=true")
        self.addCleanup(self.kubectl, "label", "node", NODE, f"{LABEL}-")

    @classmethod
    @functools.cache
    def give_image(cls):
        """Once: an emulated node takes a minute for it."""
        make_crustd(cls.node.exchange / "crustd.tar", IMAGE)
        cls.import_image("/exchange/crustd.tar")
        (cls.node.exchange / "crustd.tar").unlink()

    def test_helm_chart(self):
        """Its pod becomes ready, a changed value is another pod with that configuration, and nothing is left of it."""
        self.replace_service()
        self.addCleanup(self.remove_chart, rendered())
        self.apply(rendered())
        self.wait_for(self.is_ready_everywhere, "crustd's pod to be ready", START_SECONDS)
        first, = self.pods()
        self.apply(rendered(config={"resize": {"settle_ms": 321}}))
        self.wait_for(lambda: self.is_another_pod(first), "another pod to be ready", START_SECONDS)
        pod, = self.pods()
        effective = self.node.output(f"{BIN}/ctr -n k8s.io tasks exec --exec-id look {self.container(pod)}"
                                     " crustd --check-config")
        self.assertIn("settle_ms = 321", effective)
        self.remove_chart(rendered())
        left = self.kubectl("-n", "kube-system", "get", "daemonset,configmap,pod", "-o", "name").split()
        self.assertEqual([name for name in left if "crustd" in name], [])

    def apply(self, objects):
        self.kubectl("apply", "--server-side", "-f", "-", given=objects)

    def is_another_pod(self, first):
        pods = self.pods()
        return len(pods) == 1 and pods[0]["metadata"]["uid"] != first["metadata"]["uid"] and self.is_ready_everywhere()

    @staticmethod
    def container(pod):
        status, = pod["status"]["containerStatuses"]
        return status["containerID"].removeprefix("containerd://")

    def remove_chart(self, objects):
        self.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", given=objects)
        self.wait_for(lambda: not self.pods(), "the end of crustd's pod")

    def test_daemonset(self):
        """Instead of the service: its pod becomes ready, and has a running pod's volume grow."""
        self.replace_service()
        self.addCleanup(self.remove)
        self.kubectl("apply", "-k", str(MANIFESTS))
        self.wait_for(self.is_ready_everywhere, "crustd's pod to be ready", START_SECONDS)
        volume, guest = self.start_vm("deployed")
        self.edit("deployed", GROWN)
        self.expand_device("deployed", volume, GROWN)
        self.wait_capacity("deployed", GROWN)
        self.wait_grown(guest, GROWN)
        pod, = self.pods()
        status, = pod["status"]["containerStatuses"]
        self.assertEqual((status["ready"], status["restartCount"]), (True, 0))

    def is_ready_everywhere(self):
        status = self.daemon_set()["status"]
        return status.get("desiredNumberScheduled") == status.get("numberReady") == 1

    def daemon_set(self):
        return self.control_plane.request("GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/crustd")[1]

    def pods(self):
        return self.control_plane.request(
            "GET", "/api/v1/namespaces/kube-system/pods?labelSelector=app.kubernetes.io/name=crustd")[1]["items"]

    def remove(self):
        self.kubectl("delete", "-k", str(MANIFESTS), "--ignore-not-found", "--wait=false")
        self.wait_for(lambda: not self.pods(), "the end of crustd's pod")
