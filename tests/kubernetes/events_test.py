# SPDX-License-Identifier: Apache-2.0
"""Events of crustd's at a real API server: over TLS, by its own certificate, and validated as it validates them."""

import json

import cluster_disk
from control_plane import TOKEN, ControlPlane, free_ports
from kubernetes_events_test import CLAIM, EventsCase

BEGIN = "-----BEGIN CERTIFICATE-----"


class EventsTest(EventsCase):

    def setUp(self):
        super().setUp()
        self.control_plane = self.enterContext(ControlPlane(cluster_disk.programs(), free_ports(1)[0]))
        self.control_plane.begin()
        self.control_plane.start()
        self.control_plane.kubectl("create", "namespace", "shop")
        certificates = (self.control_plane.directory / "certificates/apiserver.crt").read_text()
        (self.account / "ca.crt").write_text(BEGIN + certificates.split(BEGIN)[-1])  # its own is the first
        self.put_token(TOKEN)

    def kubectl(self, *arguments, **options):
        return self.control_plane.kubectl("-n", "shop", *arguments, **options)

    def create(self, kind, name, spec):
        """Returns the uid, by which kubectl describe finds an object's Events."""
        given = json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        return self.kubectl("create", "-f", "-", "-o", "jsonpath={.metadata.uid}", given=given)

    def test_resize_makes_events_for_pod_and_claim(self):
        claim = self.create("PersistentVolumeClaim", "data-db-0", {
            "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "64Mi"}}})
        pod = self.create("Pod", "db-0", {"containers": [{"name": "db", "image": "images.example/db:1"}]})
        node = self.pod(self.control_plane.port)
        node.start()
        volume = self.bound(node, claim=claim, pod=pod, metadata=CLAIM)
        self.grow(node, volume)
        self.wait_counted(node, "sent", 2)
        for described in ("pod/db-0", "pvc/data-db-0"):
            self.assertRegex(self.kubectl("describe", described),
                             r"(?s)Events:.*Normal +FileSystemResizeSuccessful .* crustd.* from 32Mi to 64Mi")
        found = json.loads(self.kubectl("get", "events", "-o", "json"))["items"]
        self.assertEqual({(one["involvedObject"]["kind"], one["involvedObject"]["name"], one["reason"], one["type"])
                          for one in found if one["source"].get("component") == "crustd"},
                         {("Pod", "db-0", "FileSystemResizeSuccessful", "Normal"),
                          ("PersistentVolumeClaim", "data-db-0", "FileSystemResizeSuccessful", "Normal")})
