# SPDX-License-Identifier: Apache-2.0
"""crust-qemu-on-node, by which a pod puts crust-qemu onto its node, and takes it away again."""

import os
import pathlib
import platform
import shutil
import socket
import subprocess
import tempfile
import unittest

from node import BUILD, REPOSITORY
from programs import needs

SCRIPT = REPOSITORY / "config/deploy/crust-qemu/on-node.sh"
PROGRAM = f"crust-qemu-system-{platform.machine()}"
DROP_IN = "etc/kata-containers/config.d/50-crustd.toml"


@unittest.skipUnless(os.geteuid() == 0, "needs root: what is put onto the node is root's")
class OnNodeTest(unittest.TestCase):

    def setUp(self):
        scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="crust-on-node-")))
        self.image = scratch / "image"  # libexec/crustd of the image
        self.image.mkdir()
        shutil.copy(SCRIPT, self.image / "crust-qemu-on-node")
        shutil.copy(BUILD / PROGRAM, self.image)
        self.root = scratch / "node"
        for directory in ("etc", "opt", "run", "usr/lib/tmpfiles.d"):
            (self.root / directory).mkdir(parents=True)
        self.program = self.root / "opt/crustd/bin" / PROGRAM

    def run_script(self, verb, status=0):
        done = subprocess.run([self.image / "crust-qemu-on-node", verb], capture_output=True, text=True,
                              env={"PATH": f"{BUILD}:{os.environ['PATH']}", "CRUST_ROOT": f"{self.root}/"})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*")
                      if not path.is_dir())

    def mode(self, path):
        return (self.root / path).stat().st_mode & 0o777

    def test_installs(self):
        self.run_script("install")
        self.assertEqual(self.files(), ["etc/tmpfiles.d/crust-qemu.conf", f"opt/crustd/bin/{PROGRAM}"])
        self.assertEqual(self.program.read_bytes(), (BUILD / PROGRAM).read_bytes())
        self.assertEqual((self.mode(f"opt/crustd/bin/{PROGRAM}"), self.mode("run/crustd"),
                          self.mode("run/crustd/qemu")), (0o755, 0o755, 0o700))

    def test_the_directory_is_there_after_a_boot(self):
        needs("systemd-tmpfiles")
        self.run_script("install")
        for name in ("passwd", "group"):
            shutil.copy(f"/etc/{name}", self.root / "etc")
        shutil.rmtree(self.root / "run/crustd")
        subprocess.run(["systemd-tmpfiles", "--create", f"--root={self.root}", "crust-qemu.conf"],
                       check=True)
        self.assertEqual((self.mode("run/crustd"), self.mode("run/crustd/qemu")), (0o755, 0o700))

    def test_the_directory_is_nobody_elses(self):
        """Whoever made the directory: otherwise crust-qemu adds no monitor."""
        (self.root / "run/crustd/qemu").mkdir(parents=True)
        (self.root / "run/crustd").chmod(0o775)
        (self.root / "run/crustd/qemu").chmod(0o755)
        self.run_script("install")
        self.assertEqual((self.mode("run/crustd"), self.mode("run/crustd/qemu")), (0o755, 0o700))

    def test_without_systemd(self):
        (self.root / "usr/lib/tmpfiles.d").rmdir()
        self.run_script("install")
        self.assertEqual(self.files(), [f"opt/crustd/bin/{PROGRAM}"])

    def test_replaces_one_that_runs(self):
        self.run_script("install")
        self.program.unlink()
        shutil.copy("/bin/sleep", self.program)
        with subprocess.Popen([self.program, "60"]) as running:
            self.run_script("install")
            running.kill()
        self.assertEqual(self.program.read_bytes(), (BUILD / PROGRAM).read_bytes())
        self.assertEqual(os.listdir(self.program.parent), [PROGRAM])

    def test_does_not_follow_the_nodes_links_into_the_container(self):
        elsewhere = self.root.parent / "elsewhere"
        elsewhere.mkdir()
        (self.root / "opt").rmdir()
        (self.root / "opt").symlink_to(elsewhere)
        self.assertIn("/opt is an absolute link", self.run_script("install", 1))
        self.assertEqual(os.listdir(elsewhere), [])
        (self.root / "opt").unlink()
        (self.root / "var/opt").mkdir(parents=True)
        (self.root / "opt").symlink_to("var/opt")  # as where the root is an image
        self.run_script("install")
        self.assertTrue((self.root / "var/opt/crustd/bin" / PROGRAM).exists())

    def test_removal_refuses_while_kata_needs_it(self):
        self.run_script("install")
        drop_in = self.root / DROP_IN
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(f'[hypervisor.qemu]\npath = "/opt/crustd/bin/{PROGRAM}"\n')
        before = self.files()
        self.assertIn(f"/{DROP_IN}: line 2 names", self.run_script("remove", 5))
        self.assertEqual(self.files(), before)
        drop_in.unlink()
        self.run_script("remove")
        self.assertEqual(self.files(), [])
        self.assertFalse((self.root / "opt/crustd").exists())
        self.run_script("remove")

    def test_removal_leaves_what_runs(self):
        self.run_script("install")
        held = os.open(self.root / "run/crustd/qemu", os.O_RDONLY)
        self.addCleanup(os.close, held)
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.bind(f"/proc/self/fd/{held}/a.sock")
            self.run_script("remove")
        self.assertEqual(self.files(), ["run/crustd/qemu/a.sock"])

    def test_wants_to_know_what_to_do(self):
        self.assertIn("install or remove", self.run_script("", 1))
        (self.image / PROGRAM).unlink()
        self.assertIn("to install", self.run_script("install", 1))
