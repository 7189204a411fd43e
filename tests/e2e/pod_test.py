# SPDX-License-Identifier: Apache-2.0
"""crustd in a pod: the manifest is read, and the daemon run with what it grants and nothing else.

A container here is a mount, network and cgroup namespace with a root of its own, read-only, in
which the node's directories are mounted as the manifest says; a scratch node's, so that no other
daemon is met. Volumes grow by the kernel's event alone: the sweep would come too late for the test.
"""

import configparser
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

from node import BUILD, REPOSITORY, Node
from programs import needs
from scratch_node import AFTER, SANDBOX, ScratchNodeTest
from service_test import with_capabilities

try:
    import yaml
except ImportError:
    yaml = None

HERE = pathlib.Path(__file__).resolve().parent
DEPLOY = REPOSITORY / "config/deploy"
IMAGE = ["bin", "lib", "lib64", "sbin", "usr", "etc/ld.so.cache"]  # of this machine, read-only
CONTAINERD = """[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu]
runtime_type = "io.containerd.kata-qemu.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu.options]
ConfigPath = "/opt/kata/share/defaults/kata-containers/configuration-qemu.toml"
"""
CRIO = """[crio.runtime.runtimes.kata]
runtime_path = "/usr/bin/containerd-shim-kata-v2"
runtime_type = "vm"
"""
NODE_NAME = "node-of-this-test"
NEVER = {"resize.sweep_seconds": 3600}


def load(name):
    if yaml is None:
        raise unittest.SkipTest("needs python3-yaml")
    return yaml.safe_load((DEPLOY / name).read_text())


def patched(manifest, operations):
    """The additions and replacements of a JSON patch."""
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        place = manifest
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        place[int(last) if isinstance(place, list) else last] = operation["value"]
    return manifest


class Pod(Node):
    """A node whose crustd runs in the container of a manifest."""

    def __init__(self, scratch, manifest, settings):
        super().__init__(scratch, settings)
        self.pod = manifest["spec"]["template"]["spec"]
        self.container, = self.pod["containers"]
        self.image = pathlib.Path(scratch) / "image"
        self.image.mkdir()
        self.path("/usr").mkdir()

    @staticmethod
    def field(source):
        """What the kubelet puts in the place of a field of the pod."""
        return {"spec.nodeName": NODE_NAME}[source["fieldRef"]["fieldPath"]]

    def environment(self):
        """The image's, and the manifest's over it."""
        image = re.search(r"^ENV (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)[1]
        values = dict(word.split("=", 1) for word in image.split())
        values |= {entry["name"]: entry.get("value") or self.field(entry["valueFrom"])
                   for entry in self.container["env"]}
        return ["PATH=/build:/usr/sbin:/usr/bin:/sbin:/bin",
                *(f"{name}={value}" for name, value in values.items())]

    def command(self, *arguments):
        program = self.container["command"] + self.container.get("args", [])
        kept = self.container["securityContext"]["capabilities"]["add"]
        return ["unshare", "--mount", "--net", "--cgroup", "--propagation", "slave",
                "sh", "-euc", "\n".join(self.mounts() + [shlex.join(
                    ["exec", "env", "-i", *self.environment(), "chroot", str(self.image),
                     *with_capabilities(kept), *program, *arguments])])]

    def mounts(self):
        """The shell's lines that make the container's root, the node's parts in it last."""
        lines = [f"mount -t tmpfs none {self.image}"]
        for path in IMAGE:
            if os.path.exists(f"/{path}"):
                lines += self.bind(f"/{path}", f"/{path}", True)
        lines += self.bind(str(BUILD), "/build", True)
        lines += self.bind("/dev/null", "/dev/null")
        lines += [f"mkdir {self.image}/proc {self.image}/sys",
                  f"mount -t proc none {self.image}/proc",
                  f"mount -t sysfs -o ro none {self.image}/sys"]
        volumes = {volume["name"]: volume for volume in self.pod["volumes"]}
        for mount in self.container["volumeMounts"]:
            source = self.source(volumes[mount["name"]])
            follows = mount.get("mountPropagation") == "HostToContainer"
            lines += self.bind(source, mount["mountPath"], mount.get("readOnly", False), follows)
        return lines + [f"mount -o remount,ro {self.image}"]

    def source(self, volume):
        if "configMap" in volume:
            return self.path("/etc/crustd")
        path = self.path(volume["hostPath"]["path"])
        if volume["hostPath"]["type"] == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        return path

    def bind(self, source, target, read_only=False, follows=False):
        target = f"{self.image}{target}"
        make = "mkdir -p" if os.path.isdir(source) else "mkdir -p $(dirname {0}); touch"
        lines = [f"{make.format(target)} {target}", f"mount --rbind {source} {target}",
                 f"mount --make-{'rslave' if follows else 'rprivate'} {target}"]
        return lines + [f"mount -o remount,bind,ro {target}"] * read_only

    def inside(self, *command):
        """Runs a command in the container, as a probe is."""
        return subprocess.run(
            ["nsenter", "--target", str(self.process.pid), "--mount", "--net", "--cgroup", "--root",
             "--wd=/", "env", "-i", *self.environment(), *command],
            capture_output=True, text=True)


def everywhere(node):
    """Settings by which a crustd with this machine's root finds the scratch node."""
    return {f"paths__{name}": node.path(path) for name, path in {
        "kata_volumes": "/run/kata-containers/shared/direct-volumes",
        "kata_trash": "/run/kata-containers/shared/.crust-trash",
        "crust_volumes": "/run/crust", "crust_trash": "/run/.crust-trash",
        "kata_go_sandboxes": "/run/vc/sbs", "kata_go_vms": "/run/vc/vm",
        "kata_rs_sandboxes": "/run/kata", "kubelet": "/var/lib/kubelet",
        "database": "/var/lib/crustd/crustd.db", "grpc_socket": "/run/crustd/crust.sock",
        "http_socket": "/run/crustd/http.sock",
    }.items()}


class FirstRootPod(Pod):
    """One that reaches the node through its first process. That is this machine's, so the scratch
    node is where the configuration says."""

    def __init__(self, scratch, manifest, settings):
        super().__init__(scratch, manifest, settings)
        self.configure(**everywhere(self))

    def crustctl(self, *arguments, check=True):
        done = subprocess.run([BUILD / "crustctl", "--config", self.path("/etc/crustd/crustd.conf"),
                               *arguments], capture_output=True, text=True, timeout=120)
        if check:
            done.check_returncode()
        return done


def run_as_first_process(test):
    """Runs a test in a pid namespace whose first process has this machine's root: the real one may
    be out of reach, where the machine is a container itself."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m",
         "unittest", test.id()], cwd=HERE, capture_output=True, text=True)
    test.assertEqual(done.returncode, 0, done.stderr)


class PodTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        needs("unshare", "nsenter", "setpriv")
        self.manifest = load("daemonset.yaml")

    def pod(self, kind, manifest):
        pod = kind(self.scratch, manifest, NEVER)
        self.addCleanup(pod.close)
        return pod

    def staged(self, pod, agent="unix:///run/agent.sock"):
        volume = self.volume(pod)
        self.sandbox(pod, volume, agent=agent)
        self.monitor(pod, volume)
        self.agent(pod, "run/agent.sock")
        return volume

    def grow(self, pod, volume):
        pod.wait_for(volume.path, "in_sync", "none")
        pod.grow(volume, AFTER, device_bytes=AFTER)

    def check_confined(self, pod):
        """The program is where the manifest puts it, with the capabilities that the manifest names."""
        for name in ("mnt", "net", "cgroup", "user", "pid"):
            theirs, ours = (os.readlink(f"/proc/{pid}/ns/{name}")
                            for pid in (pod.process.pid, os.getpid()))
            (self.assertEqual if name in ("user", "pid") else self.assertNotEqual)(theirs, ours)
        text = pathlib.Path(f"/proc/{pod.process.pid}/status").read_text()
        effective = int(re.search(r"^CapEff:\s*(\w+)$", text, re.MULTILINE)[1], 16)
        self.assertEqual(effective, 1 << 12 | 1 << 18 | 1 << 19,
                         "CAP_NET_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE")
        self.assertRegex(text, r"NoNewPrivs:\s*1")

    def check_probes(self, pod):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            done = pod.inside(*pod.container[name]["exec"]["command"])
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")

    def test_grows(self):
        pod = self.pod(Pod, self.manifest)
        volume = self.staged(pod)
        pod.start()
        self.check_confined(pod)
        self.grow(pod, volume)
        self.check_probes(pod)
        self.assertIn(f"node={NODE_NAME}", pod.log_tail())
        self.assertEqual(pod.stop(), 0, pod.log_tail())

    def test_listens_on_the_port_that_it_declares(self):
        config = configparser.ConfigParser()
        config.read_string(load("configmap.yaml")["data"]["crustd.conf"])
        address = config["metrics"]["listen"]
        pod = self.pod(Pod, self.manifest)
        declared, = pod.container["ports"]
        self.assertEqual((declared["name"], declared["protocol"]), ("metrics", "TCP"))
        pod.configure(metrics__listen=address)
        pod.start()
        done = pod.inside("cat", "/proc/net/tcp", "/proc/net/tcp6")
        listening = re.findall(r"^ *\d+: (0+):(\w{4}) \S+ 0A ", done.stdout, re.MULTILINE)
        self.assertIn(declared["containerPort"], [int(port, 16) for _, port in listening])

    def test_doctor_judges_katas_configuration(self):
        pod = self.pod(Pod, self.manifest)
        kata = pod.path("/opt/kata/share/defaults/kata-containers/configuration-qemu.toml")
        packaged = pod.path("/usr/share/defaults/kata-containers/configuration.toml")
        for path, text in (
                (kata, "[hypervisor.qemu]\nenable_debug = false\n"),
                (packaged, "[hypervisor.clh]\n[runtime]\n"),
                (pod.path("/etc/containerd/config.toml"), CONTAINERD),
                (pod.path("/etc/crio/crio.conf.d/kata.conf"), CRIO)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        pod.start()
        findings = self.judged(pod)
        self.assertEqual({where: level for where, level, _ in findings}, {
            f"/{kata.relative_to(pod.root)}": "error",
            f"/{packaged.relative_to(pod.root)}": "warning"})
        self.assertIn("crust-qemu.toml", next(remedy for _, level, remedy in findings
                                           if level == "error"))
        drop_in = kata.parent / "config.d/50-crustd.toml"
        drop_in.parent.mkdir()
        drop_in.write_text((DEPLOY / "kata/go-qemu.toml").read_text())
        self.assertEqual({level for _, level, _ in self.judged(pod)}, {"ok", "warning"})

    def judged(self, pod):
        done = pod.inside("crustctl", "doctor", "-o", "json")
        self.assertEqual(done.stderr, "")
        return [(finding["where"], finding["level"], finding["remedy"])
                for finding in json.loads(done.stdout)
                if finding["id"] in ("kata_configuration", "kata_absent")]

    def tool(self, pod):
        """A runtime's tool where kata-deploy puts one; linked statically, because the pod has no
        loader of the node's."""
        needs("cc")
        tool = pod.path("/opt/kata/bin/tool")
        tool.parent.mkdir(parents=True)
        subprocess.run(["cc", "-static", "-pthread", "-o", tool,
                        HERE.parent / "fakes/runtime_tool.c"],
                       check=True)
        pod.configure(crust__runtime_cli_allow="/opt/kata/bin/tool")
        return tool

    def names_tool(self, pod, volume):
        file = pod.directory(volume.path) / "runtime-cli"
        file.write_text("/opt/kata/bin/tool\n")
        file.chmod(0o600)

    def crust(self, pod, *arguments):
        """As a kubelet asks, by HTTP: crustctl crust never goes by the tool."""
        done = pod.inside("curl", "--silent", "--unix-socket", "/host/run/crustd/http.sock",
                          *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_runtimes_tool_needs_a_root(self):
        needs("curl")
        container, = self.manifest["spec"]["template"]["spec"]["containers"]
        container["securityContext"]["capabilities"]["add"].remove("SYS_CHROOT")
        pod = self.pod(Pod, self.manifest)
        self.tool(pod)
        volume = self.staged(pod)
        self.names_tool(pod, volume)
        pod.start()
        pod.wait_for(volume.path, "in_sync", "none")
        stats = self.crust(pod, f"http://x/direct-volume/stats?path={volume.path}")
        self.assertNotEqual(stats["usage"][0]["total"], 4096)
        self.assertIn("CAP_SYS_CHROOT", pod.log_tail())

    def test_needs_to_look_at_processes(self):
        container, = self.manifest["spec"]["template"]["spec"]["containers"]
        container["securityContext"]["capabilities"]["add"].remove("SYS_PTRACE")
        pod = self.pod(Pod, self.manifest)
        volume = self.staged(pod)
        pod.start()
        pod.wait_for(volume.path, "unknown", "hypervisor_unreachable")

    def test_grows_through_the_first_process(self):
        if os.getpid() != 1:
            return run_as_first_process(self)
        patch, = load("no-host-paths/kustomization.yaml")["patches"]
        pod = self.pod(FirstRootPod, patched(self.manifest, yaml.safe_load(patch["patch"])))
        volume = self.staged(pod, f"unix://{pod.root}/run/agent.sock")
        # The VMM is a child of process 1 here: without a shim it would be an orphan.
        shim = subprocess.Popen(["containerd-shim-kata-v2", "-c", "read _", "-namespace", "k8s.io", "-id", SANDBOX],
                                executable="/bin/sh", stdin=subprocess.PIPE)
        self.addCleanup(shim.communicate)
        pod.start()
        self.check_confined(pod)
        self.grow(pod, volume)
        self.check_probes(pod)
        self.assertEqual(pod.stop(), 0, pod.log_tail())


class ManifestTest(unittest.TestCase):

    def test_one_mount_covers_metadata_and_trash(self):
        container, = load("daemonset.yaml")["spec"]["template"]["spec"]["containers"]
        writable = [mount["mountPath"] for mount in container["volumeMounts"]
                    if not mount.get("readOnly")]
        self.assertEqual(writable, ["/host/run", "/host/var/lib/crustd"])

    def test_resources_are_there(self):
        kinds = {load(name)["kind"] for name in load("kustomization.yaml")["resources"]}
        self.assertEqual(kinds, {"ConfigMap", "DaemonSet"})

    def test_kustomize_takes_it(self):
        needs("kubectl")
        done = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def rendered(self, *components):
        """By kustomize, with these lines of components taken in."""
        needs("kubectl")
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "deploy"
        shutil.copytree(DEPLOY, directory)
        file = directory / "kustomization.yaml"
        text = file.read_text().replace("# components:", "components:")
        for name in components:
            text, count = re.subn(rf"^#   - {name} ", f"  - {name} ", text, flags=re.MULTILINE)
            self.assertEqual(count, 1)
        file.write_text(text)
        done = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return next(one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "DaemonSet")

    def test_component_crust_qemu(self):
        for components in (["crust-qemu"], ["no-host-paths", "crust-qemu"]):
            with self.subTest(components):
                pod = self.rendered(*components)["spec"]["template"]["spec"]
                init, = pod["initContainers"]
                daemon, = pod["containers"]
                self.assertEqual((init["image"], init["command"][1]), (daemon["image"], "install"))
                self.assertNotIn("volumeMounts", init)
                self.assertEqual({mount["name"] for mount in daemon["volumeMounts"]},
                                 {volume["name"] for volume in pod["volumes"]})

    def test_component_drives(self):
        """Nothing but a privileged container may open block devices; it still asks for no more."""
        for components in (["drives"], ["no-host-paths", "drives", "crust-qemu"]):
            with self.subTest(components):
                daemon, = self.rendered(*components)["spec"]["template"]["spec"]["containers"]
                context = daemon["securityContext"]
                self.assertEqual((context["privileged"], context["allowPrivilegeEscalation"]), (True, True))
                self.assertTrue(context["readOnlyRootFilesystem"])
        context = load("daemonset.yaml")["spec"]["template"]["spec"]["containers"][0]["securityContext"]
        self.assertNotIn("privileged", context)

    def test_removal_of_crust_qemu(self):
        needs("kubectl")
        done = subprocess.run(["kubectl", "kustomize", str(DEPLOY / "crust-qemu/remove")],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        removal, = yaml.safe_load_all(done.stdout)
        init, = removal["spec"]["template"]["spec"]["initContainers"]
        install, = self.rendered("crust-qemu")["spec"]["template"]["spec"]["initContainers"]
        for key in ("image", "env", "securityContext"):
            self.assertEqual(init[key], install[key])

    def test_kata_drop_ins(self):
        text = (DEPLOY / "kata/go-qemu.toml").read_text()
        self.assertEqual(tomllib.loads(text), {"hypervisor": {"qemu": {
            "enable_debug": True, "extra_monitor_socket": "qmp"}}})

    def test_kata_drop_ins_for_crust_qemu(self):
        """The same for a node's own Kata and for kata-deploy, but for where the program is."""
        text = (DEPLOY / "kata/crust-qemu.toml").read_text()
        alone = tomllib.loads(text)
        self.assertEqual(set(alone["hypervisor"]["qemu"]), {"path", "valid_hypervisor_paths"})
        shims = load("kata/kata-deploy.values.yaml")["shims"]
        self.assertEqual(set(shims), {"qemu", "qemu-runtime-rs"})
        for shim in shims.values():
            moved = text.replace("/usr/libexec/crustd/", "/opt/crustd/bin/")
            self.assertEqual(tomllib.loads(shim["dropIn"]), tomllib.loads(moved))

    def test_configuration_is_right(self):
        if not (BUILD / "crustd").exists():
            self.fail(f"there is no crustd in {BUILD}")
        text = load("configmap.yaml")["data"]["crustd.conf"]
        done = subprocess.run([BUILD / "crustd", "--check-config", "--config", "/dev/stdin"],
                              input=text, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_image_has_the_libraries(self):
        needs("readelf", "dpkg-query")
        stage = (DEPLOY / "Containerfile").read_text().split("FROM ")[-1]
        wanted = set()
        for program in ("crustd", "crustctl"):
            dynamic = subprocess.run(["readelf", "-d", BUILD / program], check=True, text=True,
                                     capture_output=True).stdout
            wanted |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        loaded = (REPOSITORY / "lib/http_exchange.c").read_text()
        wanted |= set(re.findall(r'"(lib[\w.-]+\.so\.\d+)"', loaded))
        packages = {self.package(library) for library in wanted} - {"libc6"}
        self.assertEqual(packages, set(re.findall(r"\blib[\w.-]+", stage)))

    def package(self, library):
        found = subprocess.run(["dpkg-query", "--search", f"*/{library}"], capture_output=True,
                               text=True)
        if found.returncode != 0:
            self.skipTest(f"{library} is no Debian package's here")
        return found.stdout.split(":")[0]
