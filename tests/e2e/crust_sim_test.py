# SPDX-License-Identifier: Apache-2.0
"""crust-sim, as a driver's author uses it: the example driver's CI without Kata, with the packages' own programs."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import debian_packages
import grpc_client
from csi_driver import GROWN, SIZE, CsiTest
from node import BUILD, REPOSITORY
from programs import wait_until

SIM = REPOSITORY / "crust-sim/crust-sim"
TARGET = "/var/lib/kubelet/pods/1234/volumes/kubernetes.io~csi/pvc-1/mount"


class Simulated:
    """What a Driver asks of a node: where crustd's sockets are."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def path(self, host_path):
        return self.root / str(host_path).lstrip("/")


class CrustSimTest(CsiTest):

    def simulation(self, *arguments, program=SIM, crustd=BUILD / "crustd"):
        """The environment that it gives to a driver's tests."""
        process = subprocess.Popen([program, "--crustd", crustd, *arguments], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        said = dict(process.stdout.readline().rstrip("\n").split("=", 1) for _ in range(3))
        self.assertEqual(set(said), {"CRUST_ROOT", "CRUST_SOCKET", "CRUST_LOG"})
        return said

    def is_in_sync(self, environment):
        done = subprocess.run([BUILD / "crustctl", "wait", TARGET, "--for", "in_sync", "--timeout", "0"], capture_output=True,
                              env=os.environ | environment)
        return done.returncode == 0

    def check_life(self, environment):
        """Stage, stats, expand and unstage by the example driver."""
        driver = self.driver(Simulated(environment["CRUST_ROOT"]), ["--state-directory", self.scratch / "state"])
        client = self.client(driver)
        parameters = {"runtime": "vm"}
        volume = client.create(parameters=parameters)
        staging = driver.directory / "staging"
        client.stage(volume, staging)
        client.publish(volume, TARGET, staging)
        wait_until(lambda: self.is_in_sync(environment), 60, "the pod to start")
        client.expand_device(volume.volume_id, GROWN)
        self.assertEqual(client.expand(volume, TARGET, GROWN), GROWN)
        usage = client.stats(volume, TARGET).usage
        self.assertEqual(usage[0].total, GROWN)
        client.unpublish(volume, TARGET)
        client.unstage(volume, staging)
        client.delete(volume)
        self.assertGreater(GROWN, SIZE)

    def test_go(self):
        self.check_life(self.simulation())

    def test_rust(self):
        self.check_life(self.simulation("--runtime", "rust"))

    def test_from_the_packages(self):
        """As after apt install crustd crust-sim."""
        tree = debian_packages.unpack(self.enterContext(tempfile.TemporaryDirectory(prefix="crust-deb-")))
        self.check_life(self.simulation(program=tree / "usr/bin/crust-sim", crustd=tree / "usr/sbin/crustd"))

    def ran(self, *arguments):
        done = subprocess.run([SIM, "--crustd", BUILD / "crustd", *arguments], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout

    def test_the_pages_client(self):
        """Stubs by protoc, as grpc_tools has it; then the page's own lines."""
        loop = self.loop(SIZE)
        code = re.search(r"<!-- client -->\n```python\n(.*?)```", (REPOSITORY / "docs/crust-sim.md").read_text(), re.S)[1]
        stubs = self.scratch / "stubs"
        stubs.mkdir()
        grpc_client.make_stubs(stubs)
        (stubs / "client.py").write_text(code)
        done = subprocess.run([SIM, "--crustd", BUILD / "crustd", sys.executable, stubs / "client.py"], capture_output=True,
                              text=True, timeout=120, env=os.environ | {
                                  "DEVICE": loop.device, "PATH": f"{BUILD}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"capacity_bytes: {SIZE}", done.stdout)
        self.assertIn("the file system fills its device", done.stdout)

    def test_a_command(self):
        """It runs with the environment, its exit code is handed on, and nothing is left."""
        code, said = self.ran("sh", "-c", f"{BUILD}/crustctl health && echo $CRUST_ROOT && exit 7")
        self.assertEqual((code, said.splitlines()[0]), (7, "ready"))
        self.assertFalse(os.path.exists(said.splitlines()[1]))

    def test_a_failure_that_cannot_be_ordered(self):
        for text in ("Resize=ok", "ResizeVolume", "ResizeVolume=status:12", "ResizeVolume=fine"):
            done = subprocess.run([SIM, "--agent", text, "true"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("METHOD is ResizeVolume or GetVolumeStats", done.stderr)

    def test_failures_to_order(self):
        """A driver's author wants to see what the driver makes of them."""
        loop = self.loop(SIZE)
        script = (f"ctl={BUILD}/crustctl; $ctl direct-volume add --volume-path {TARGET} --mount-info"
                  f""" '{{"volume-type":"block","device":"{loop.device}","fstype":"ext4"}}'"""
                  f" && $ctl wait {TARGET} --for in_sync --timeout 30 >&2"
                  f" && truncate -s {GROWN} {loop.path} && losetup -c {loop.device} && $ctl resize {TARGET} 2>&1")
        for arguments, word in ((("--refuse", "not today"), "hypervisor_refused"),
                                (("--agent", "ResizeVolume=status:12:no such method"), "agent_unsupported")):
            with self.subTest(word):
                code, said = self.ran(*arguments, "sh", "-c", script)
                self.assertEqual(code, 6, said)  # crustd tries again
                self.assertIn(word, said)
                loop.resize(SIZE)
