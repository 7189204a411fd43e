# SPDX-License-Identifier: Apache-2.0
"""The container: its image is built by the shipped Containerfile, and runs with exactly the pod
specification of the shipped manifest, beside a guest on KVM.
"""

import json
import pathlib
import platform
import re
import shutil
import unittest

import container_base
import podman
from node_test_case import RELEASE
from pod_test import CONTAINERD, REPOSITORY, load, patched
from runtime_tools import TOOL, put_tool, stats_of, tool_runs
from sandboxes import MIB, SandboxTest

try:
    import yaml
except ImportError:
    yaml = None

IMAGE = f"localhost/crustd:{RELEASE}"
PLACE = "/opt/crust-container"  # in the node
CONFIG_MAP = f"{PLACE}/config-map"
KATA = "/opt/kata/share/defaults/kata-containers"
START_SECONDS = 300
BUILD_SECONDS = 1500


class ContainerTest(SandboxTest):

    INSTALL = False
    DISKS = {"data": 64 * MIB}

    @classmethod
    def prepare(cls):
        if yaml is None:
            raise unittest.SkipTest("needs python3-yaml")
        super().prepare()
        cls.build_image()
        cls.make_node_kata()
        cls.add_sandbox({"data": ("/dev/disk/by-id/virtio-data", "ext4")})
        cls.start_sandboxes()
        cls.run_pod(load("daemonset.yaml"))

    # what runs on the node

    @classmethod
    def build_image(cls):
        """By the shipped Containerfile, whose apt-get finds all in place and whose make, too."""
        base = container_base.get_base()
        here = cls.node.exchange / "container"
        shutil.copytree(REPOSITORY, here / "source", symlinks=True,
                        ignore=shutil.ignore_patterns(".git", "build*", "tests", "*.pyc"))
        (here / "build").mkdir()
        container_base.compile(base, here / "source", here / "build")
        shutil.copy(base.archive, here / "base.tar")
        cls.node.run(f"podman import /exchange/container/base.tar {container_base.NAME}",
                     seconds=BUILD_SECONDS)
        cls.node.run("cd /exchange/container/source && podman build --network=none --pull=never"
                     f" --layers=false --volume=/exchange/container/build:{container_base.BUILD}"
                     f" -t {IMAGE} -f config/deploy/Containerfile .", seconds=BUILD_SECONDS)
        shutil.rmtree(here)

    @classmethod
    def make_node_kata(cls):
        """What kata-deploy leaves on a node, and a runtime's tool beside it."""
        cls.node.write("/etc/containerd/config.toml", CONTAINERD)
        cls.node.write(f"{KATA}/configuration-qemu.toml",
                       '[hypervisor.qemu]\nenable_debug = true\nextra_monitor_socket = "qmp"\n')
        put_tool(cls.node)

    @classmethod
    def run_pod(cls, manifest):
        """Starts the manifest's pod as it stands; returns when its startup probe succeeds."""
        cls.pod = manifest["spec"]["template"]["spec"]
        cls.container, = cls.pod["containers"]
        text = load("configmap.yaml")["data"]["crustd.conf"]
        text += f"[crust]\nruntime_cli_allow = {TOOL}\n"
        cls.node.write(f"{CONFIG_MAP}/crustd.conf", text)
        for command in podman.prepare_volumes(cls.pod):
            cls.node.run(command)
        cls.node.run(podman.run_arguments(cls.pod, IMAGE, {"crustd": CONFIG_MAP}),
                     seconds=START_SECONDS)
        cls.node.wait(lambda: cls.probe("startupProbe") == 0, START_SECONDS,
                      "the startup probe to succeed")

    @classmethod
    def probe(cls, name):
        """The exit status of a probe's command, as a kubelet runs it."""
        return cls.inside(*cls.container[name]["exec"]["command"], check=False).status

    @classmethod
    def inside(cls, *words, check=True):
        return cls.node.run(["podman", "exec", cls.container["name"], *words], check=check)

    def pid(self):
        return self.node.output("podman inspect -f '{{.State.Pid}}' crustd")

    # the image

    def test_image(self):
        image = json.loads(self.node.output(["podman", "image", "inspect", IMAGE]))[0]["Config"]
        self.assertEqual(image["Cmd"], ["crustd"])
        self.assertLessEqual({"CRUST_ROOT=/host", "CRUST_CONFIG=/etc/crustd/crustd.conf"},
                             set(image["Env"]))
        version = self.inside("crustctl", "--version").stdout
        self.assertRegex(version, r"^crustctl \d")
        self.inside("test", "-x", "/usr/bin/crust-guest-agent")
        self.inside("test", "-x", "/usr/libexec/crustd/crust-guest-agent")
        shipped = self.inside("cat", "/usr/share/crustd/kata/go-qemu.toml").stdout
        self.assertEqual(shipped, (REPOSITORY / "config/deploy/kata/go-qemu.toml").read_text())
        shipped = self.inside("cat", "/usr/share/crustd/kata/crust-qemu.toml").stdout
        self.assertIn('\npath = "/opt/crustd/bin/crust-qemu-system-', shipped)

    # what the manifest grants

    def test_has_what_the_manifest_grants_and_no_more(self):
        pid = self.pid()
        status = self.node.output(f"cat /proc/{pid}/status")
        fields = dict(re.findall(r"^(\w+):\s*(\S+)", status, re.MULTILINE))
        granted = f"{1 << 12 | 1 << 18 | 1 << 19:016x}"  # NET_ADMIN, SYS_CHROOT, SYS_PTRACE
        self.assertEqual([fields[name] for name in ("CapEff", "CapPrm", "CapBnd")], [granted] * 3)
        self.assertEqual((fields["NoNewPrivs"], fields["Seccomp"], fields["Uid"]), ("1", "0", "0"))
        self.assertEqual(self.node.output(f"readlink /proc/{pid}/ns/pid"),
                         self.node.output("readlink /proc/1/ns/pid"))
        for name in ("net", "mnt"):
            self.assertNotEqual(self.node.output(f"readlink /proc/{pid}/ns/{name}"),
                                self.node.output(f"readlink /proc/1/ns/{name}"))
        self.assertEqual(self.memory_limit(pid), 256 * MIB)

    def memory_limit(self, pid):
        """The least of its cgroup and of those above it."""
        group = pathlib.PurePosixPath(self.node.output(f"cut -d: -f3 /proc/{pid}/cgroup"))
        files = " ".join(f"/sys/fs/cgroup{one}/memory.max" for one in (group, *group.parents[:-1]))
        return min(int(line) for line in self.node.output(f"cat {files}").split() if line != "max")

    def test_writes_only_where_it_should(self):
        for path in ("/", "/host", "/host/dev", "/host/usr", "/host/opt/kata", "/etc/crustd",
                     "/host/etc/containerd", "/host/var/lib/kubelet"):
            with self.subTest(path):
                done = self.inside("touch", f"{path}/written", check=False)
                self.assertIn("Read-only file system", done.stderr)
        self.inside("sh", "-c", "touch /host/run/written && rm /host/run/written")

    def test_probes_succeed(self):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.probe(name), 0, name)

    # what it is for

    def test_grows_a_volume_over_vsock(self):
        before = self.settle("data")
        self.node.resize_disk("data", 128 * MIB)
        row = self.check_grown("data", before)
        self.assertEqual(row["device_bytes"], 128 * MIB)

    def test_crustctl_without_arguments(self):
        self.settle("data")
        self.inside("crustctl", "health")
        self.assertIn("in_sync", self.inside("crustctl", "volumes").stdout)
        self.assertRegex(self.inside("crustctl", "explain", self.volume("data").path).stdout,
                         r"^Volume \d+, data: in_sync\n")
        self.assertIs(json.loads(self.inside("crustctl", "status", "-o", "json").stdout)["synced"],
                      True)

    def test_doctor_judges_the_nodes_kata(self):
        findings = json.loads(self.inside("crustctl", "doctor", "-o", "json").stdout)
        judged = {finding["where"]: finding["level"] for finding in findings
                  if finding["id"] == "kata_configuration"}
        self.assertEqual(judged, {f"{KATA}/configuration-qemu.toml": "ok"})
        self.assertEqual([finding for finding in findings if finding["level"] == "error"], [])
        file = f"{KATA}/config.d/60-off.toml"
        self.node.write(file, "[hypervisor.qemu]\nenable_debug = false\n")
        self.addCleanup(self.node.run, ["rm", file])
        done = self.inside("crustctl", "doctor", "-o", "json", check=False)
        self.assertEqual(done.status, 5)
        finding, = [finding for finding in json.loads(done.stdout) if finding["level"] == "error"]
        self.assertEqual(finding["id"], "kata_configuration")
        drop_in = re.search(r"/usr/share/\S+\.toml", finding["remedy"])[0]
        self.inside("test", "-r", drop_in)

    # crust-qemu

    def init(self, manifest, check=True):
        return self.node.run(podman.init_arguments(manifest["spec"]["template"]["spec"], IMAGE),
                             seconds=START_SECONDS, check=check)

    def kata_findings(self):
        found = json.loads(self.inside("crustctl", "doctor", "-o", "json", check=False).stdout)
        return {finding["what"].partition(": ")[2]: finding["level"] for finding in found
                if finding["id"] in ("kata_configuration", "kata_program")}

    def test_crust_qemu_comes_and_goes(self):
        patch, = load("crust-qemu/kustomization.yaml")["patches"]
        install = patched(load("daemonset.yaml"), yaml.safe_load(patch["patch"]))
        remove = load("crust-qemu/remove/daemonset.yaml")
        program = f"/opt/crustd/bin/crust-qemu-system-{platform.machine()}"
        drop_in = f"{KATA}/config.d/60-crust-qemu.toml"
        self.node.write(drop_in, self.inside("cat", "/usr/share/crustd/kata/crust-qemu.toml").stdout)
        self.addCleanup(self.node.run, ["rm", "-f", drop_in])
        self.assertEqual(self.kata_findings(),
                         {f"path = {program} does not exist: no pod of these starts": "error"})
        self.init(install)
        self.assertEqual(self.node.output("stat -c '%a %U' /run/crustd/qemu"), "700 root")
        self.node.run("systemd-tmpfiles --create crust-qemu.conf")
        self.assertIn("QEMU emulator version", self.node.output(f"{program} --version"))
        self.assertEqual(self.kata_findings(),
                         {"QEMU gets a monitor for crustd (crust-qemu)": "ok"})
        refused = self.init(remove, check=False)
        self.assertNotEqual(refused.status, 0)
        self.assertIn(drop_in, refused.stdout)
        self.node.run(f"test -x {program} && rm {drop_in}")
        self.init(remove)
        self.node.run("! test -e /opt/crustd && ! test -e /etc/tmpfiles.d/crust-qemu.conf")

    def test_follows_what_the_node_mounts_later(self):
        self.node.run("mkdir -p /run/later && mount -t tmpfs none /run/later && touch /run/later/x")
        self.addCleanup(self.node.run, "umount /run/later")
        self.inside("test", "-e", "/host/run/later/x")

    # a runtime's tool

    def stats(self):
        """As a driver asks by HTTP, through the node's path of the socket."""
        return stats_of(self.node, self.volume("data").path)["usage"][0]["total"]

    def with_tool(self, program):
        """Has the volume's metadata name it."""
        self.settle("data")
        directory = self.node.output("dirname /run/kata-containers/shared/direct-volumes/*/"
                                     "mountInfo.json")
        self.node.run(f"umask 077 && echo {program} >{directory}/runtime-cli")
        self.addCleanup(self.node.run, f"rm -f {directory}/runtime-cli /run/called")

    def test_runs_a_runtimes_tool(self):
        self.with_tool(TOOL)
        before = tool_runs(self.node)
        self.assertEqual(self.stats(), 4096)
        self.assertEqual(self.node.read("/run/called"),
                         f"crust stats {self.volume('data').path}\n")
        self.assertEqual(tool_runs(self.node)[len(before):],
                         ["runtime_cli_intended", "runtime_cli_answered"])

    # other ways to run it; these start it anew, so they come last

    def stop(self):
        self.node.run("podman stop crustd", seconds=START_SECONDS)
        status = self.node.output("podman inspect -f '{{.State.ExitCode}}' crustd")
        self.node.run("podman rm crustd")
        return int(status)

    def test_z_another_pod_goes_on(self):
        volume = self.settle("data") and self.node.volume(self.volume("data").path)
        self.assertEqual(self.stop(), 0)
        type(self).run_pod(load("daemonset.yaml"))
        self.settle("data")
        self.assertEqual(self.node.volume(self.volume("data").path)["volume_id"],
                         volume["volume_id"])

    def test_z_without_host_paths(self):
        """The component of that name: the node is what its first process sees."""
        patch, = load("no-host-paths/kustomization.yaml")["patches"]
        self.assertEqual(self.stop(), 0)
        type(self).run_pod(patched(load("daemonset.yaml"), yaml.safe_load(patch["patch"])))
        self.test_probes_succeed()
        self.settle("data")
        self.assertIn("in_sync", self.inside("crustctl", "volumes").stdout)
        # Here it may as well be linked dynamically, as a script's shell is.
        self.node.run(f"mv {TOOL} {TOOL}.c && printf '#!/bin/sh\\nexec %s.c \"$@\"\\n' {TOOL}"
                      f" >{TOOL} && chmod 755 {TOOL}")
        self.addCleanup(self.node.run, f"mv {TOOL}.c {TOOL}")
        self.with_tool(TOOL)
        self.assertEqual(self.stats(), 4096)
