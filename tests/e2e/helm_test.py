# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by helm's own engine, each object read strictly as its kind (tests/helm): it says what the
manifests of config/deploy say, and its values do what they should."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import go_programs
from node import BUILD, REPOSITORY
from pod_test import DEPLOY, load, patched

try:
    import yaml
except ImportError:
    yaml = None

CHART = REPOSITORY / "config/helm/crustd"
DASHBOARDS = REPOSITORY / "config/dashboards"
# Values that a table has as one.
LISTED_AS_ONE = {"updateStrategy", "nodeSelector", "resources", "seccompProfile", "labels"}


class HelmTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if yaml is None:
            raise unittest.SkipTest("needs python3-yaml")
        cls.renderer = go_programs.build(REPOSITORY / "tests/helm", ".", "render-chart")

    def run_renderer(self, values, chart=CHART):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(values, file)
            file.flush()
            return subprocess.run([self.renderer, chart, file.name], capture_output=True, text=True)

    def render(self, **values):
        done = self.run_renderer(values)
        self.assertEqual(done.returncode, 0, done.stderr)
        objects = json.loads(done.stdout)
        found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.assertEqual(len(found), len(objects))
        self.assertEqual({one["metadata"].get("namespace", "kube-system") for one in objects}, {"kube-system"})
        return found

    def refused(self, values, *words, chart=CHART):
        done = self.run_renderer(values, chart)
        self.assertNotEqual(done.returncode, 0, done.stdout[:500])
        for word in words:
            self.assertIn(word, done.stderr)

    def pod(self, **values):
        return self.render(**values)["DaemonSet", "crustd"]["spec"]["template"]["spec"]

    @staticmethod
    def by_name(pod):
        """A pod in which neither order nor the image matters."""
        pod = json.loads(json.dumps(pod))
        for container in pod["containers"] + pod.get("initContainers", []):
            container.pop("image")
            container.pop("imagePullPolicy", None)
            for key in ("volumeMounts", "env"):
                container[key] = {one["name"]: one for one in container.get(key, [])}
        pod["volumes"] = {one["name"]: one for one in pod["volumes"]}
        return pod

    # -- as the manifests

    def manifest(self):
        return load("daemonset.yaml")

    def operations(self, component):
        return yaml.safe_load(load(f"{component}/kustomization.yaml")["patches"][0]["patch"])

    def test_default_chart_equals_the_manifest(self):
        mine, theirs = self.render()["DaemonSet", "crustd"], self.manifest()
        for key in ("labels", "name"):
            self.assertEqual(mine["metadata"][key], theirs["metadata"][key])
        self.assertEqual(mine["spec"]["selector"], theirs["spec"]["selector"])
        self.assertEqual(self.by_name(mine["spec"]["template"]["spec"]), self.by_name(theirs["spec"]["template"]["spec"]))
        tag = load("kustomization.yaml")["images"][0]["newTag"]
        self.assertEqual(mine["spec"]["template"]["spec"]["containers"][0]["image"], f"crustd:{tag}")

    def test_without_host_paths(self):
        theirs = patched(self.manifest(), self.operations("no-host-paths"))
        self.assertEqual(self.by_name(self.pod(hostPaths=False)), self.by_name(theirs["spec"]["template"]["spec"]))

    def test_crust_qemu(self):
        theirs = self.manifest()["spec"]["template"]["spec"]
        theirs["initContainers"] = self.operations("crust-qemu")[0]["value"]
        self.assertEqual(self.by_name(self.pod(crustQemu={"enabled": True})), self.by_name(theirs))

    def test_drives(self):
        theirs = patched(self.manifest(), self.operations("drives"))
        objects = self.render(drives={"enabled": True, "hostPrefixes": ["/dev/vg", "/dev/disk"]},
                              config={"drives": {"flush_seconds": 9}})
        self.assertEqual(self.by_name(objects["DaemonSet", "crustd"]["spec"]["template"]["spec"]),
                         self.by_name(theirs["spec"]["template"]["spec"]))
        keys = self.effective(objects)
        self.assertEqual([keys[f"drives.{key}"] for key in ("enabled", "host_prefixes", "flush_seconds")],
                         ["on", "/dev/vg, /dev/disk", "9"])
        self.assertEqual(self.effective(self.render())["drives.enabled"], "off")

    def test_kubernetes_events(self):
        """The manifests' service account and its one right; without the value there are none."""
        theirs = patched(self.manifest(), self.operations("kubernetes-events"))
        objects = self.render(kubernetes={"events": True})
        self.assertEqual(self.by_name(objects["DaemonSet", "crustd"]["spec"]["template"]["spec"]),
                         self.by_name(theirs["spec"]["template"]["spec"]))
        self.assertEqual(self.effective(objects)["kubernetes.events"], "on")
        for one in yaml.safe_load_all((DEPLOY / "kubernetes-events/rbac.yaml").read_text()):
            mine = objects[one["kind"], one["metadata"]["name"]]
            for key in ("rules", "roleRef", "subjects", "automountServiceAccountToken"):
                self.assertEqual(mine.get(key), one.get(key), one["kind"])
        self.assertEqual(objects["ClusterRole", "crustd-events"]["rules"],
                         [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}])
        self.assertNotIn(("ServiceAccount", "crustd"), self.render())

    # -- values

    def effective(self, objects, name="crustd"):
        """The configuration in effect, by crustd itself."""
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(objects["ConfigMap", name]["data"]["crustd.conf"])
            file.flush()
            done = subprocess.run([BUILD / "crustd", "--config", file.name, "--check-config"], capture_output=True,
                                  text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        keys, section = {}, None
        for line in done.stdout.splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif " = " in line:
                key, _, value = line.partition(" = ")
                keys[f"{section}.{key}"] = value
        return keys

    def test_configuration(self):
        shipped = yaml.safe_load((DEPLOY / "configmap.yaml").read_text())
        self.assertEqual(self.effective(self.render()), self.effective({("ConfigMap", "crustd"): shipped}))
        keys = self.effective(self.render(mode="observe", metrics={"port": 9999},
                                          config={"resize": {"settle_ms": 500}, "history": {"keep_days": 7},
                                                  "log": {"journal": "on"}}))
        self.assertEqual([keys[key] for key in ("resize.mode", "metrics.listen", "resize.settle_ms", "history.keep_days",
                                                   "log.journal")],
                         ["observe", "[::]:9999", "500", "7", "on"])
        self.assertEqual(self.pod(metrics={"port": 9999})["containers"][0]["ports"][0]["containerPort"], 9999)

    def checksum(self, **values):
        return self.render(**values)["DaemonSet", "crustd"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/configuration"]

    def test_a_changed_configuration_is_another_pod(self):
        """So that the DaemonSet rolls; other changes show in the pod by themselves."""
        first = self.checksum()
        self.assertEqual(first, self.checksum(podAnnotations={"a": "b"}))
        self.assertNotEqual(first, self.checksum(mode="observe"))
        self.assertNotEqual(first, self.checksum(config={"resize": {"settle_ms": 500}}))

    def test_canary(self):
        objects = self.render(canary={"enabled": True, "nodeLabel": "early", "tag": "9.9.9"})
        pods = {}
        for name, operator in (("crustd", "DoesNotExist"), ("crustd-canary", "Exists")):
            spec = objects["DaemonSet", name]["spec"]
            pods[name] = spec["template"]["spec"]
            self.assertEqual(spec["selector"]["matchLabels"], {"app.kubernetes.io/name": name})
            self.assertEqual(spec["template"]["metadata"]["labels"], spec["selector"]["matchLabels"])
            term, = pods[name]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"]
            self.assertEqual(term["matchExpressions"], [{"key": "early", "operator": operator}])
            volume, = [one for one in pods[name]["volumes"] if one["name"] == "configuration"]
            self.assertEqual(volume["configMap"]["name"], name)
        self.assertEqual(self.effective(objects)["resize.mode"], "grow")
        self.assertEqual(self.effective(objects, "crustd-canary")["resize.mode"], "observe")
        self.assertEqual(pods["crustd-canary"]["containers"][0]["image"], "crustd:9.9.9")
        self.assertNotIn("9.9.9", pods["crustd"]["containers"][0]["image"])
        self.assertNotIn(("DaemonSet", "crustd-canary"), self.render())
        self.assertNotIn("affinity", self.pod())

    def test_what_is_passed_on(self):
        pod = self.pod(image={"repository": "registry.example/crustd", "tag": "1"}, nodeSelector={"a": "b"},
                       imagePullSecrets=[{"name": "secret"}], priorityClassName="high", extraCapabilities=["DAC_OVERRIDE"],
                       seccompProfile={"type": "Localhost", "localhostProfile": "profiles/crustd.json"},
                       resources={"limits": {"memory": "1Gi"}}, containerdConfiguration="/etc/k0s")
        container, = pod["containers"]
        self.assertEqual(container["image"], "registry.example/crustd:1")
        self.assertEqual(container["resources"]["limits"], {"memory": "1Gi"})
        self.assertEqual(container["securityContext"]["seccompProfile"],
                         {"type": "Localhost", "localhostProfile": "profiles/crustd.json"})
        self.assertEqual(container["securityContext"]["capabilities"]["add"][-1], "DAC_OVERRIDE")
        self.assertEqual((pod["nodeSelector"]["a"], pod["imagePullSecrets"], pod["priorityClassName"]),
                         ("b", [{"name": "secret"}], "high"))
        self.assertIn("/host/etc/k0s", [one["mountPath"] for one in container["volumeMounts"]])
        strategy = self.render(updateStrategy={"type": "OnDelete", "rollingUpdate": None})["DaemonSet", "crustd"]["spec"]
        self.assertEqual(strategy["updateStrategy"], {"type": "OnDelete"})

    def test_a_digest_is_used_in_the_place_of_a_tag(self):
        digest = "sha256:" + "ab" * 32
        objects = self.render(image={"repository": "r/crustd", "tag": "1", "digest": digest},
                              canary={"enabled": True, "tag": "2"}, crustQemu={"enabled": True})
        for name, image in (("crustd", f"r/crustd@{digest}"), ("crustd-canary", "r/crustd:2")):
            pod = objects["DaemonSet", name]["spec"]["template"]["spec"]
            self.assertEqual({one["image"] for one in pod["containers"] + pod["initContainers"]}, {image})

    def test_schema_has_the_keys_of_the_configuration(self):
        done = subprocess.run([REPOSITORY / "packaging/chart_schema.py", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_monitoring(self):
        self.assertEqual({kind for kind, _ in self.render()}, {"ConfigMap", "DaemonSet"})
        objects = self.render(canary={"enabled": True}, metrics={
            "podMonitor": {"enabled": True, "labels": {"release": "x"}}, "rules": {"enabled": True}})
        monitor = objects["PodMonitor", "crustd"]
        self.assertEqual(monitor["metadata"]["labels"], {"release": "x"})
        wanted, = monitor["spec"]["selector"]["matchExpressions"]
        self.assertEqual(set(wanted["values"]), {name for kind, name in objects if kind == "DaemonSet"})
        port, = [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]]
        self.assertEqual(port, self.pod()["containers"][0]["ports"][0]["name"])
        self.assertTrue(monitor["spec"]["podMetricsEndpoints"][0]["honorLabels"])
        relabelled, = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
        self.assertEqual(relabelled["targetLabel"], "node")
        self.assertEqual(objects["PrometheusRule", "crustd"]["spec"],
                         yaml.safe_load((DEPLOY / "alerts/crustd-rules.yaml").read_text()))

    def test_addresses_of_runbooks(self):
        """Each alert's section on the site, where the values say where that is; nothing else changes."""
        address = "https://docs.example/crustd/operations.html"
        objects = self.render(metrics={"rules": {"enabled": True, "runbooks": address}})
        spec = objects["PrometheusRule", "crustd"]["spec"]
        for group in spec["groups"]:
            for rule in group["rules"]:
                found = rule["annotations"].pop("runbook_url")
                self.assertEqual(found, f"{address}#{rule['alert'].lower()}")
        self.assertEqual(spec, yaml.safe_load((DEPLOY / "alerts/crustd-rules.yaml").read_text()))
        self.refused({"metrics": {"rules": {"runbooks": "operations.html"}}}, "runbooks")

    def leaves(self, values, before=""):
        for key, value in values.items():
            if isinstance(value, dict) and value and key not in LISTED_AS_ONE:
                yield from self.leaves(value, f"{before}{key}.")
            else:
                yield before + key

    def test_page_has_every_value(self):
        table = re.search(r"<!-- values -->(.*?)\n\n#", (CHART / "README.md").read_text(), re.S)[1]
        first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
        named = re.findall(r"`([\w.]+)`", "".join(first))
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual(sorted(named), sorted(self.leaves(values)))

    def test_install_notes_contain_the_warning(self):
        """The engine renders the notes too; here, that the warning stands in them."""
        notes = (CHART / "templates/NOTES.txt").read_text()
        for word in ("ROOT ON THEIR NODES", "hostPID", "SYS_PTRACE", "/run"):
            self.assertIn(word, notes)

    def test_dashboards(self):
        found = self.render(metrics={"dashboards": {"enabled": True}})["ConfigMap", "crustd-dashboards"]
        self.assertEqual(found["metadata"]["labels"], {"grafana_dashboard": "1"})
        files = {path.name: json.loads(path.read_text()) for path in DASHBOARDS.glob("*.json")}
        self.assertEqual({name: json.loads(text) for name, text in found["data"].items()}, files)

    def test_wrong_values_are_refused(self):
        for values, word in (({"mode": "explode"}, "mode"), ({"mdoe": "grow"}, "mdoe"), ({"config": {"rezise": {}}}, "rezise"),
                             ({"config": {"resize": {"setle_ms": 5}}}, "setle_ms"), ({"image": {"digest": "abc"}}, "digest"),
                             ({"canary": {"enabled": "yes"}}, "enabled"), ({"metrics": {"port": 0}}, "port"),
                             ({"drives": {"hostPrefixes": ["vg"]}}, "hostPrefixes"),
                             ({"containerdConfiguration": "relative"}, "containerdConfiguration")):
            with self.subTest(values):
                self.refused(values, word)

    def test_a_misspelt_field_is_found(self):
        with tempfile.TemporaryDirectory() as scratch:
            chart = pathlib.Path(scratch) / "crustd"
            shutil.copytree(CHART, chart)
            template = chart / "templates/_crustd.tpl"
            template.write_text(template.read_text().replace("hostPID:", "hostPid:"))
            self.refused({}, "hostPid", chart=chart)
