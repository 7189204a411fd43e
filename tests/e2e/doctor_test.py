# SPDX-License-Identifier: Apache-2.0
"""crustctl doctor and GET /v1/doctor: a node that is well, and each thing that can be wrong with it,
without a daemon (as before an install) and with one."""

import json
import os
import re
import signal
import subprocess

from node import BUILD, REPOSITORY
from pod_test import NEVER, Pod, load
from programs import wait_until
from scratch_node import SANDBOX, ScratchNodeTest, curl, free_address, metrics_of
from programs import needs

ABSENT = {"path"}  # what may be absent on a node that is well
VARIABLE = {"processes"}  # depends on the machine that the tests run on
CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu]
runtime_type = "io.containerd.kata-qemu.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu.options]
ConfigPath = "/opt/kata/share/defaults/kata-containers/configuration-qemu.toml"
"""
KATA = "opt/kata/share/defaults/kata-containers"
QEMU = """# Kata's
[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
enable_debug = false
extra_monitor_socket = ""
[agent.kata]
enable_debug = false
[runtime]
enable_debug = false
"""
RUST = '[runtime]\nname = "virt_container"\nhypervisor_name = "qemu"\n'


def without_free_space(findings):
    """Used for comparison only, because others write to the disk meanwhile."""
    return [{**finding, "what": re.sub(r"[\d.]+ GiB are free", "", finding["what"])}
            for finding in findings]


class DoctorTest(ScratchNodeTest):

    def well(self, settings=None):
        """A node as crustd wishes it: Kata with the drop-in that it needs."""
        node = self.node(settings)
        node.path("/run/crust").mkdir(mode=0o700)
        node.path("/var/lib/kubelet/pods").mkdir()
        self.write(node, "etc/containerd/config.toml", CONTAINERD)
        self.write(node, f"{KATA}/runtimes/qemu/configuration-qemu.toml", QEMU)
        os.symlink("runtimes/qemu/configuration-qemu.toml",
                   node.path(f"{KATA}/configuration-qemu.toml"))
        self.drop_in(node, "50-crustd.toml",
                     (REPOSITORY / "config/deploy/kata/go-qemu.toml").read_text())
        node.path("/opt/kata/bin").mkdir()
        self.put_program(node, "/opt/kata/bin/qemu-system-x86_64")
        return node

    def write(self, node, name, text):
        path = node.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def drop_in(self, node, name, text):
        self.write(node, f"{KATA}/runtimes/qemu/config.d/{name}", text)

    def doctor(self, node, code):
        done = node.crustctl("doctor", "-o", "json", check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        findings = json.loads(done.stdout)
        for finding in findings:
            self.assertEqual(set(finding), {"id", "level", "what", "where", "remedy"})
            self.assertIn(finding["level"], ("ok", "note", "warning", "error"))
        self.assertEqual(code == 5, any(f["level"] == "error" for f in findings))
        return findings

    def finds(self, node, code, identity, level, words):
        """One finding of this kind and level says these words; returns it."""
        findings = self.doctor(node, code)
        for finding in findings:
            if finding["id"] == identity and finding["level"] == level and \
                    words in f"{finding['where']} {finding['what']}":
                return finding
        self.fail(f"no {level} {identity} says \"{words}\": {findings}")

    def test_a_node_that_is_well(self):
        node = self.well()
        for finding in self.doctor(node, 0):
            if finding["id"] not in ABSENT | VARIABLE | {"sandbox"}:
                self.assertEqual(finding["level"], "ok", finding)
        self.finds(node, 0, "kata_configuration", "ok", "kata-qemu (qemu, Kata's Go runtime)")
        self.finds(node, 0, "sandbox", "note", "no sandbox is known")

    def test_nothing_is_written(self):
        node = self.well()
        before = self.tree(node)
        self.doctor(node, 0)
        self.assertEqual(self.tree(node), before)

    def tree(self, node):
        return sorted((str(path), path.lstat().st_mtime_ns) for path in node.root.rglob("*"))

    def test_text_for_people(self):
        node = self.well()
        self.drop_in(node, "60-off.toml", "[hypervisor.qemu]\nextra_monitor_socket = ''\n")
        done = node.crustctl("doctor", check=False)
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 5)
        self.assertRegex(lines[0], r"^No daemon answers; crustctl sees 1 error, ")
        self.assertTrue(lines[2].startswith("error    kata_configuration"), lines[2])
        self.assertFalse([line for line in lines if len(line) > 80 and len(line.split()) > 1])
        self.assertIn("crustctl", node.crustctl("doctor", "--help").stdout)

    def test_kata(self):
        node = self.well()
        self.drop_in(node, "60-off.toml", "[hypervisor.qemu]\nenable_debug = false\n")
        finding = self.finds(node, 5, "kata_configuration", "error", "60-off.toml")
        self.assertRegex(finding["remedy"], r"= \"qmp\" in .*/60-off.toml\. Or better, .*crust-qemu.toml")
        self.drop_in(node, "60-off.toml", RUST)
        self.finds(node, 5, "kata_configuration", "error", "no pod starts")
        self.drop_in(node, "70-hmp.toml", "[hypervisor.qemu]\nextra_monitor_socket = 'hmp'\n")
        finding = self.finds(node, 5, "kata_configuration", "error", "neither qmp nor qmp-pretty")
        self.assertRegex(finding["remedy"], r"Remove .* from .*/70-hmp.toml, and put .*crust-qemu.toml")
        self.drop_in(node, "60-off.toml", "")
        self.drop_in(node, "70-hmp.toml", "")
        self.drop_in(node, "80-nonsense.toml", "nonsense\n")
        self.finds(node, 0, "kata_unreadable", "warning", "80-nonsense.toml: line 1")
        node.path(f"{KATA}/configuration-qemu.toml").unlink()
        self.finds(node, 0, "kata_unreadable", "warning", "cannot be examined")
        node.path("etc/containerd/config.toml").unlink()
        self.finds(node, 0, "kata_absent", "warning", "no configuration of Kata's")

    def test_crust_qemu(self):
        node = self.well()
        programs = "/opt/crustd/bin"
        self.drop_in(node, "70-crust.toml", f"[hypervisor.qemu]\npath = '{programs}/crust-no-such-vmm'\n")
        for directory in (programs, "/opt/kata/bin", "/usr/bin"):
            node.path(directory).mkdir(parents=True, exist_ok=True)
        finding = self.finds(node, 5, "kata_program", "error", "does not exist: no pod of these starts")
        self.assertIn("70-crust.toml", finding["remedy"])
        self.put_program(node, f"{programs}/crust-no-such-vmm")
        self.finds(node, 5, "kata_program", "error", "finds no no-such-vmm beside itself")
        self.put_program(node, "/opt/kata/bin/no-such-vmm")
        self.finds(node, 5, "kata_program", "error", "adds no monitor")
        node.path("/run/crustd/qemu").mkdir(mode=0o700)
        self.finds(node, 0, "kata_configuration", "ok", "QEMU gets a monitor for crustd (crust-qemu)")
        done = node.crustctl("crust-qemu", check=False)
        self.assertEqual((done.returncode, done.stdout.count("70-crust.toml")), (5, 1), done.stdout)
        found = json.loads(node.crustctl("-o", "json", "crust-qemu", check=False).stdout)
        self.assertEqual([finding["where"] for finding in found], [f"/{KATA}/runtimes/qemu/config.d/70-crust.toml"])
        self.drop_in(node, "70-crust.toml", "# as before\n")
        self.assertEqual(node.crustctl("crust-qemu").stdout,
                         "No configuration of Kata's here names crust-qemu.\n")

    def put_program(self, node, path):
        node.path(path).touch(mode=0o755)

    def test_paths(self):
        node = self.well()
        node.path("/var/lib/kubelet/pods").rmdir()
        self.finds(node, 0, "kubelet", "warning", "it has no pods")
        node.path("/run/crust").chmod(0o777)
        self.finds(node, 0, "path", "warning", "/run/crust")
        node.path("/dev").rmdir()
        self.finds(node, 5, "dev", "error", "there is no /dev")

    def test_trash_on_another_mount(self):
        node = self.well()
        volumes = node.path("/run/crust")
        self.mount_for_the_test("-t", "tmpfs", "none", volumes)
        self.finds(node, 0, "trash", "warning", "does not cross mounts")
        node.configure(cleanup__mode="off")
        self.assertFalse([f for f in self.doctor(node, 0) if f["id"] == "trash"])

    def test_database_on_a_read_only_mount(self):
        node = self.well()
        directory = node.path("/var/lib/crustd")
        self.mount_for_the_test("-t", "tmpfs", "-o", "ro", "none", directory)
        self.finds(node, 5, "database", "error", "Read-only file system")

    def test_configuration_of_crustd(self):
        node = self.well({"resize.mode": "observe", "paths.socket_group": "no-such-group"})
        self.finds(node, 5, "policy", "note", "observe")
        self.finds(node, 5, "socket_group", "error", "no-such-group")
        node.configure(resize__mode="nonsense")
        # It is the first finding, and all else is examined: with the defaults, so the group is none.
        done = node.crustctl("-o", "json", "doctor", "--problems", check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        first, *rest = json.loads(done.stdout)
        self.assertEqual((first["id"], first["level"]), ("configuration", "error"))
        self.assertIn("crustd.conf:3: resize.mode", first["what"])
        self.assertNotIn("socket_group", [one["id"] for one in rest])
        self.assertNotIn("ok", [one["level"] for one in rest])
        self.assertGreater(len(json.loads(node.crustctl("-o", "json", "doctor", check=False).stdout)), 5)

    def test_a_faulty_file_beside_a_running_daemon(self):
        """It keeps the configuration that it has, and crustctl finds it by the other files."""
        node = self.well({"paths.http_socket": "/run/crustd/elsewhere.sock"})
        node.start()
        drop_ins = node.root / "etc/crustd/crustd.conf.d"
        drop_ins.mkdir(exist_ok=True)
        (drop_ins / "10-faulty.conf").write_text("[resize]\nmode = nonsense\n")
        for command in ("status", "volumes", "health"):
            done = node.crustctl(command, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"^crustctl: .*10-faulty.conf:2: resize.mode: .*; going on without this file\n$")

    def test_keys_that_wait_for_a_restart(self):
        """They are named as long as they wait, and no longer."""
        node = self.well()
        node.start()

        def reload(trash):
            node.configure(paths__kata_trash=trash)
            before = len(node.log.read_text())
            node.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "was read again" in node.log.read_text()[before:], 30, "the configuration to be read")
            return "need a restart: paths.kata_trash" in node.log.read_text()[before:]

        shipped = "/run/kata-containers/shared/.crust-trash"
        self.assertEqual([reload(trash) for trash in (shipped, "/run/elsewhere", "/run/elsewhere", shipped)],
                         [False, True, True, False])

    def inside(self, node, *namespaces):
        """Runs it in namespaces of its own."""
        needs("unshare")
        done = subprocess.run(["unshare", *namespaces, str(BUILD / "crustctl"), "--root",
                               str(node.root), "doctor", "-o", "json"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        return {finding["id"]: finding["level"] for finding in json.loads(done.stdout)}

    def test_other_namespaces(self):
        node = self.well()
        levels = self.inside(node, "--pid", "--fork", "--mount-proc")
        self.assertEqual((levels["pid_namespace"], levels["user_namespace"]), ("error", "ok"))
        levels = self.inside(node, "--user", "--map-root-user")
        self.assertEqual((levels["pid_namespace"], levels["user_namespace"]), ("ok", "error"))

    def test_without_capabilities(self):
        needs("setpriv")
        node = self.well()
        done = subprocess.run(["setpriv", "--bounding-set", "-all", str(BUILD / "crustctl"),
                               "--root", str(node.root), "doctor", "-o", "json"],
                              capture_output=True, text=True)
        levels = {finding["id"]: finding["level"] for finding in json.loads(done.stdout)}
        self.assertEqual((done.returncode, levels["processes"], levels["uevents"]),
                         (5, "error", "warning"))

    def test_asked_by_somebody_else(self):
        needs("setpriv")
        done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups",
                               str(BUILD / "crustctl"), "--root", "/", "doctor", "-o", "json"],
                              capture_output=True, text=True)
        if done.returncode in (126, 127):
            self.skipTest("others may not run what was built here")
        levels = {finding["id"]: finding["level"] for finding in json.loads(done.stdout)}
        self.assertEqual((done.returncode, levels["root"]), (5, "error"))

    # with a daemon

    def test_the_daemon_examines_itself(self):
        node = self.well()
        volume = self.volume(node)
        self.equip(node, volume)
        node.start()
        node.wait_for(volume.path, "in_sync", "none")
        status, body = curl(node, "/v1/doctor")
        self.assertEqual((status, without_free_space(json.loads(body))),
                         (200, without_free_space(self.doctor(node, 0))))
        finding = self.finds(node, 0, "sandbox", "ok", SANDBOX)
        self.assertIn("QEMU 7.2.22 has a monitor for crustd (an extra monitor)", finding["what"])
        self.assertIn("1 volume: pv", finding["what"])
        self.assertTrue(node.crustctl("doctor").stdout.startswith("The daemon sees 0 errors, "))

    def test_volumes_that_the_node_has_mounted(self):
        """A driver that crustd has nothing to do with mounts a volume for a pod of Kata's, and one for another pod."""
        node = self.well()
        loop = self.loop()
        subprocess.run(["mkfs.ext4", "-q", loop.device], check=True)
        pod, other = (f"{digit * 8}-aaaa-bbbb-cccc-000000000001" for digit in "12")
        paths = [f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pv-{number}/mount"
                 for number, uid in enumerate((pod, pod, other))]
        for path in paths:
            here = node.path(path)
            here.mkdir(parents=True)
            (here.parent / "vol_data.json").write_text('{"driverName": "ebs.csi.aws.com"}')
            self.mount_for_the_test(loop.device, here)
        node.add_sandbox(SANDBOX, node.start_vmm(SANDBOX).pid, agent="unix:///agent.sock")
        self.containers(node).run((f"/var/lib/kubelet/pods/{pod}/etc-hosts", "/etc/hosts"), (paths[0], "/data"))
        node.start()
        node.wait(lambda: node.query("SELECT 1 FROM sandbox_claims"), 30, "the container's mounts")
        finding, = [one for one in json.loads(curl(node, "/v1/doctor")[1]) if one["id"] == "host_mounted"]
        self.assertEqual((finding["level"], finding["what"]), (
            "note", "2 volumes of Kata pods are mounted on this node by driver ebs.csi.aws.com: there is nothing for "
            "crustd to resize; their file system is the host's"))

    def counted(self, node):
        """What the daemon says of its node, where nobody asks the doctor: (errors, status, metrics)."""
        status = json.loads(curl(node, "/v1/status")[1])["doctor"]
        metrics = [name for name in metrics_of(node) if name.startswith("crustd_doctor_findings{") and '"error"' in name]
        return status["errors"], node.crustctl("status").stdout, metrics

    def test_a_daemon_says_that_its_node_cannot_resize(self):
        node = self.well({"http.listen": free_address()})
        self.write(node, f"{KATA}/runtimes/qemu/config.d/60-site.toml",
                   "[hypervisor.qemu]\nextra_monitor_socket = \"\"\nenable_debug = false\n")
        self.finds(node, 5, "kata_configuration", "error", "QEMU gets no monitor")
        node.start()
        errors, status, metrics = self.counted(node)
        self.assertEqual((errors, len(metrics)), (1, 1))
        self.assertRegex(status, r"(?m)^crustd \S+: ready$")
        self.assertRegex(status, r"(?m)^doctor +errors 1, warnings \d+: .*QEMU gets no monitor.*; see crustctl doctor --problems$")
        self.assertEqual(metrics, ['crustd_doctor_findings{check="kata_configuration",level="error"}'])
        self.assertEqual(curl(node, "/readyz")[0], 200)
        self.assertRegex(self.page_text(node), r"doctor errors 1, warnings \d+ .*QEMU gets no monitor")
        self.assertIn("level=warning", next(line for line in node.log.read_text().splitlines() if "QEMU gets no" in line))

        node.path(f"{KATA}/runtimes/qemu/config.d/60-site.toml").unlink()
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.counted(node)[0] == 0, 30, "the node to be examined after a reload")
        self.assertEqual(self.counted(node)[2], [])

    def test_which_volumes_cannot_grow_tomorrow(self):
        node = self.well()
        volume = self.volume(node)
        self.sandbox(node, volume, agent="unix:///agent.sock")
        node.start()
        node.wait_for(volume.path, "unknown", "monitor_missing")
        finding = self.finds(node, 5, "sandbox", "error", SANDBOX)
        self.assertIn("QEMU has no monitor that crustd may use", finding["what"])
        self.assertIn("crust-qemu.toml", finding["remedy"])
        self.assertEqual(node.stop(), 0)
        self.finds(node, 5, "sandbox", "error", "1 volume: pv")  # by the database

    def test_agents_that_cannot(self):
        node = self.well()
        volume = self.volume(node)
        self.sandbox(node, volume, agent="unix:///agent.sock")
        self.monitor(node, volume)
        self.agent(node).behave("ResizeVolume", "status:12:resize_volume is not implemented")
        node.start()
        node.wait_for(volume.path, "in_sync", "unverified")
        self.finds(node, 5, "sandbox", "error", "agent_unsupported")

    def test_the_pod_that_is_shipped(self):
        needs("unshare", "nsenter", "setpriv")
        pod = Pod(self.scratch, load("daemonset.yaml"), NEVER)
        self.addCleanup(pod.close)
        pod.path("/run/crust").mkdir(mode=0o700)
        pod.path("/var/lib/kubelet/pods").mkdir()
        pod.start()
        for finding in self.doctor(pod, 0):
            if finding["id"] not in ABSENT | VARIABLE | {"kata_absent", "sandbox"}:
                self.assertEqual(finding["level"], "ok", finding)

    def test_a_pod_that_lacks_something(self):
        needs("unshare", "nsenter", "setpriv")
        manifest = load("daemonset.yaml")
        container, = manifest["spec"]["template"]["spec"]["containers"]
        container["securityContext"]["capabilities"]["add"] = []
        container["volumeMounts"] = [mount for mount in container["volumeMounts"]
                                     if mount["name"] not in ("dev", "kubelet")]
        pod = Pod(self.scratch, manifest, NEVER)
        self.addCleanup(pod.close)
        pod.start()
        levels = {finding["id"]: finding["level"] for finding in self.doctor(pod, 5)}
        self.assertEqual([levels[name] for name in ("processes", "uevents", "dev", "kubelet")],
                         ["error", "warning", "error", "warning"])
