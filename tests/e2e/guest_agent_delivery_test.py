# SPDX-License-Identifier: Apache-2.0
"""What docs/guest-agent-delivery.md delivers: the unit and the program in a guest's root, the sidecar's image, its pod, and
the policy that adds it. tests/kubernetes/api_server_test.py has an API server evaluate the policy."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import unittest

import go_programs
from node import BUILD, REPOSITORY
from programs import needs

try:
    import yaml
except ImportError:
    yaml = None

VERSION = subprocess.check_output([REPOSITORY / "packaging/version.sh"], text=True).strip()
DELIVERY = REPOSITORY / "config/deploy/guest-agent"
UNIT = "crust-guest-agent.service"
# Each gives a service mounts of its own.
NAMESPACES = re.compile(r"^(Private(Tmp|Devices|Mounts|Users)|Protect\w+|ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|"
                        r"TemporaryFileSystem|RootDirectory|Bind\w*Paths|DynamicUser|MountFlags)=", re.M)


class GuestAgentDeliveryTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="crust-delivery-"))
        self.addCleanup(shutil.rmtree, self.scratch)

    def run_it(self, *command, **options):
        return subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=120, **options)

    def install(self, root):
        return self.run_it("make", "-C", REPOSITORY, "-o", BUILD / "stripped/crust-guest-agent", f"OUT={BUILD}",
                           "install-guest", f"DESTDIR={root}")

    # -- in the guest's image

    def test_unit_is_valid_and_enabled(self):
        needs("systemd-analyze", "systemctl")
        root = self.scratch / "root"
        done = self.install(root)
        self.assertEqual(done.returncode, 0, done.stderr)
        target = root / "usr/lib/systemd/system/kata-containers.target"
        target.write_text("[Unit]\nRequires=basic.target\n")
        for name in ("basic", "sysinit", "shutdown", "sockets", "timers", "paths", "slices"):
            (target.parent / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        done = self.run_it("systemd-analyze", "verify", "--man=no", f"--root={root}", UNIT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.run_it("systemctl", f"--root={root}", "is-enabled", UNIT)
        self.assertEqual(done.stdout.strip(), "enabled", done.stderr)

    def test_unit_sees_the_agents_mounts(self):
        self.assertEqual(NAMESPACES.findall((DELIVERY / UNIT).read_text()), [])

    def test_it_is_not_this_machines_root(self):
        done = self.install("")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("DESTDIR", done.stdout)

    # -- the sidecar

    def stage(self):
        return (DELIVERY / "Containerfile").read_text().split("\nFROM ")[-1]

    def test_image_needs_nothing_else(self):
        """The last stage's root has the program alone, of the size that the docs promise, and it runs there."""
        self.assertTrue(self.stage().startswith("scratch\n"))
        if platform.machine() == "x86_64":
            self.assertLess((BUILD / "stripped/crust-guest-agent").stat().st_size, 1 << 20)
        root = self.scratch / "image"
        root.mkdir()
        shutil.copy(BUILD / "stripped/crust-guest-agent", root)
        command = json.loads(re.search(r"^ENTRYPOINT (.*)$", self.stage(), re.M)[1])
        if os.geteuid() != 0:
            self.skipTest("needs root: chroot")
        done = self.run_it("chroot", root, *command, "--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        self.assertIn(VERSION, done.stdout)

    def test_image_is_built_as_crustds(self):
        """tests/node/container_test.py builds that one."""
        def first(path):
            text = re.search(r"^FROM .* AS build\n(.*?)^(COPY|#)", path.read_text(), re.M | re.S)
            return text[1]

        self.assertEqual(first(DELIVERY / "Containerfile"), first(REPOSITORY / "config/deploy/Containerfile"))
        target = re.search(r"^RUN make -C /source (.*)$", (DELIVERY / "Containerfile").read_text(), re.M)[1].split()
        self.assertEqual(self.run_it("make", "-C", REPOSITORY, "-n", *target).returncode, 0)

    def test_unit_and_image_start_it_alike(self):
        arguments = json.loads(re.search(r"^CMD (.*)$", self.stage(), re.M)[1])
        started = re.search(r"^ExecStart=(.*)$", (DELIVERY / UNIT).read_text(), re.M)[1].split()
        self.assertEqual(started[1:], arguments)

    def documents(self, name):
        if yaml is None:
            self.skipTest("needs python3-yaml")
        return list(yaml.safe_load_all((DELIVERY / name).read_text()))

    def test_objects_decode_strictly_as_their_kinds(self):
        """Read strictly, as their kinds."""
        renderer = go_programs.build(REPOSITORY / "tests/helm", ".", "render-chart")
        done = self.run_it(renderer, "--decode", DELIVERY / "sidecar.yaml", DELIVERY / "admission.yaml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([one["kind"] for one in json.loads(done.stdout)],
                         ["Pod", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"])
        bad = self.scratch / "bad.yaml"
        bad.write_text((DELIVERY / "admission.yaml").read_text().replace("failurePolicy", "failurePolicie"))
        done = self.run_it(renderer, "--decode", bad)
        self.assertIn("failurePolicie", done.stderr)

    def test_policy_adds_what_the_pod_shows(self):
        """As far as text can tell; the API server's answer is compared in tests/kubernetes."""
        sidecar, = self.documents("sidecar.yaml")[0]["spec"]["initContainers"]
        policy = self.documents("admission.yaml")[0]["spec"]
        text = policy["mutations"][0]["jsonPatch"]["expression"]
        for value in (sidecar["name"], sidecar["image"], sidecar["restartPolicy"], *sidecar["resources"]["requests"].values(),
                      *sidecar["securityContext"]["capabilities"]["add"], sidecar["resources"]["limits"]["memory"]):
            self.assertIn(f'"{value}"', text)
