# SPDX-License-Identifier: Apache-2.0
"""The Debian packages on a node: installed, upgraded, refused to be removed, removed, purged."""

import pathlib
import subprocess
import tempfile

import debian_packages
from node_test_case import READY_SECONDS, VERSION, NodeTest

TARGET = "/var/lib/kubelet/pods/1234/volumes/kubernetes.io~csi/pv-packaged/mount"
NEXT = f"{VERSION}+next"
PLACE = "/root/packages"
KATA = "/etc/kata-containers/configuration.toml"
# The node's image leaves manuals out; a machine of an administrator's does not.
DPKG = "dpkg --path-include='/usr/share/man/*' --path-include='/usr/share/doc/*' --force-confold"
CONFIGURATION = "[resize]\nsweep_seconds = 2\n"


def next_version(package, directory):
    """The same package under a later version: what an upgrade needs of it."""
    tree = pathlib.Path(directory) / package.stem
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}\n", f"Version: {NEXT}\n")
                       .replace(f"(= {VERSION})", f"(= {NEXT})"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, directory], check=True, capture_output=True)


class PackageTest(NodeTest):

    INSTALL = False

    @classmethod
    def get_programs(cls):
        debian_packages.get()

    @classmethod
    def prepare(cls):
        with tempfile.TemporaryDirectory(prefix="crust-node-packages-") as scratch:
            for package in debian_packages.get().values():
                next_version(package, scratch)
            cls.node.run(f"mkdir -p {PLACE}/{VERSION} {PLACE}/{NEXT}")
            for path in pathlib.Path(scratch).glob("*.deb"):
                cls.node.put(path, f"{PLACE}/{NEXT}/{path.name}")
        for package in debian_packages.get().values():
            cls.node.put(package, f"{PLACE}/{VERSION}/{package.name}")

    def install(self, version):
        self.node.run(f"{DPKG} -i {PLACE}/{version}/*.deb", seconds=300)
        self.node.wait(self.node.is_synced, READY_SECONDS, "crustd's first scan")

    def stage(self):
        self.node.run(["crustctl", "direct-volume", "add", "--volume-path", TARGET, "--mount-info",
                       '{"volume-type": "block", "device": "/dev/vda", "fstype": "ext4"}'])
        return self.node.wait_for(TARGET, "unbound")

    def unit(self):
        return [self.node.property(name) for name in ("ActiveState", "UnitFileState", "NRestarts")]

    def pid(self):
        return int(self.node.property("MainPID"))

    def left(self):
        """Files of crustd's that are not on some list of dpkg's, and do not belong to the node or to the test."""
        return self.node.output(
            "find / -xdev ( -path /proc -o -path /root -o -path /exchange -o -path /var/lib/dpkg/info ) -prune"
            " -o -iname '*crust*' -print; find /run -xdev -iname '*crust*'".replace("( ", "\\( ").replace(" )", " \\)")
        ).split()

    def test_life_of_a_package(self):
        """In one test: each step begins with what the one before has left."""
        self.check_install()
        self.check_use()
        self.check_upgrade()
        self.check_refusal()
        self.check_removal()
        self.check_purge()

    def check_install(self):
        before = self.left()
        self.install(VERSION)
        type(self).before = before
        self.assertEqual(self.unit(), ["active", "enabled", "0"])
        self.node.run("test -d /run/crustd/qemu && test -d /run/crust")  # what tmpfiles.d makes before the start
        self.assertEqual(self.node.output("dpkg --verify crustd crustctl crust-guest-agent"), "")

    def check_use(self):
        self.assertEqual(self.node.output("crust-guest-agent --version").split()[-1], VERSION)
        for page, words in (("crustd", "--check-config"), ("crustctl", "explain VOL"),
                            ("crustd.conf", "sweep_seconds"), ("crust-guest-agent", "--listen ADDRESS")):
            self.assertIn(words, self.node.output(f"MANPAGER=cat MANWIDTH=200 man {page} | col -b"))
        self.stage()
        # As bash does at the tab key: it finds the completion by the command's name.
        completed = self.node.output(["bash", "-c", '''
. /usr/share/bash-completion/bash_completion
_completion_loader crustctl
COMP_WORDS=(crustctl explain pv-) COMP_CWORD=2
_crustctl
echo "${COMPREPLY[@]}"
'''])
        self.assertEqual(completed.strip(), "pv-packaged")

    def check_upgrade(self):
        """It restarts the service, once, and leaves what is the administrator's and the history."""
        self.node.write("/etc/crustd/crustd.conf", CONFIGURATION)
        before, pid = self.node.volume(TARGET), self.pid()
        self.install(NEXT)
        self.assertNotEqual(self.pid(), pid)
        self.assertEqual(self.unit(), ["active", "enabled", "0"])
        self.assertEqual(self.node.read("/etc/crustd/crustd.conf"), CONFIGURATION)
        after = self.node.wait_for(TARGET, "unbound")
        self.assertEqual((after["volume_id"], after["first_seen"]), (before["volume_id"], before["first_seen"]))
        self.assertEqual(self.node.output("dpkg-query -W -f '${Version}' crustd"), NEXT)
        self.install(VERSION)  # and back
        self.assertEqual(self.node.wait_for(TARGET, "unbound")["volume_id"], before["volume_id"])

    def check_refusal(self):
        """While Kata starts QEMU through crust-qemu, no pod would start without it."""
        program = self.node.output("ls -d /usr/libexec/crustd/crust-qemu-system-*").strip()
        self.node.run("mkdir -p /etc/kata-containers")
        self.node.write(KATA, f'[hypervisor.qemu]\npath = "{program}"\n')
        pid = self.pid()
        self.node.run("dpkg -r crust-sim")  # needs crustd
        refused = self.node.run("dpkg -r crustd", check=False)
        self.assertNotEqual(refused.status, 0)
        self.assertIn(KATA, refused.stdout + refused.stderr)
        self.assertIn("change its configuration first", refused.stderr)
        self.node.run(f"test -x {program}")
        self.assertEqual((self.pid(), self.unit()[0]), (pid, "active"))
        self.node.run(f"rm -r {KATA} && dpkg --configure -a")

    def check_removal(self):
        """What is the administrator's, the history and the volumes stay."""
        self.node.run("dpkg -r crustd crustctl crust-guest-agent")
        self.assertEqual(self.node.property("ActiveState"), "inactive")
        self.node.run("! test -e /usr/sbin/crustd && ! test -e /usr/libexec/crustd && ! test -e /usr/libexec/crustctl")
        self.assertEqual(self.node.read("/etc/crustd/crustd.conf"), CONFIGURATION)
        self.node.run("test -s /var/lib/crustd/crustd.db && test -d /run/kata-containers/shared/direct-volumes/*")

    def check_purge(self):
        self.node.run("dpkg -P crustd crustctl crust-guest-agent crust-sim")
        self.assertEqual(self.left(), self.before)
        self.node.run("test -d /run/kata-containers/shared/direct-volumes/*")  # a CSI driver's, and not crustd's
        self.assertEqual(self.node.output("systemctl list-unit-files --no-legend 'crustd*' || true"), "")
