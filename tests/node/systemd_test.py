# SPDX-License-Identifier: Apache-2.0
"""crustd as the service that `make install` puts in place, under a real systemd."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from node_test_case import READY_SECONDS, REPOSITORY, NodeTest

UNIT = "/usr/lib/systemd/system/crustd.service"
MIB = 1 << 20
WATCHDOG_SECONDS = 60  # the unit's
EXIT_USAGE = 2


class ServiceTest(NodeTest):

    def setUp(self):
        self.start()

    def start(self):
        self.node.run("systemctl reset-failed crustd", check=False)
        self.node.run("systemctl start crustd")
        self.node.wait(self.node.is_synced, READY_SECONDS, "crustd's first scan")

    def pid(self):
        return int(self.node.property("MainPID"))

    def said(self, unit=False):
        """What crustd itself wrote in this boot, line by line; with unit, what systemd says too."""
        self.node.run("journalctl --sync")
        which = ["-u", "crustd"] if unit else ["-t", "crustd"]
        return self.node.output(["journalctl", "-b", "-o", "cat", "--no-pager", *which]
                                ).splitlines()

    def wait_restarted(self, pid, restarts, seconds):
        def restarted():
            return self.pid() not in (0, pid) and self.node.property("ActiveState") == "active"

        self.node.wait(restarted, seconds, "the service to be restarted")
        self.assertEqual(int(self.node.property("NRestarts")), restarts + 1)
        self.node.wait(self.node.is_synced, READY_SECONDS, "crustd's first scan")

    def set_configuration(self, text):
        """Another crustd.conf, until the test is over."""
        self.node.run("cp /etc/crustd/crustd.conf /run/crustd.conf.kept")
        self.addCleanup(self.node.run, "mv /run/crustd.conf.kept /etc/crustd/crustd.conf")
        self.node.write("/etc/crustd/crustd.conf", text)

    def test_the_unit_is_well_formed(self):
        result = self.node.run(["systemd-analyze", "verify", "--man=no", UNIT])
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def test_service_becomes_ready(self):
        self.assertEqual(self.node.property("ActiveState"), "active")
        self.assertEqual(self.node.property("SubState"), "running")
        # What the doctor says of a node without Kata comes after it.
        self.node.wait(lambda: self.node.property("StatusText").startswith("up"), 10, "the status text")
        self.assertEqual(self.node.output("stat -c %a /var/lib/crustd"), "750")
        self.assertEqual(self.node.output("stat -c '%a %U %G' /run/crustd/*.sock"),
                         "600 root root\n600 root root")

    def test_has_no_more_rights_than_the_unit_gives(self):
        lines = self.node.read(f"/proc/{self.pid()}/status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        # CAP_NET_ADMIN is 12, CAP_SYS_PTRACE 19.
        self.assertEqual(int(status["CapBnd"], 16), 1 << 12 | 1 << 19)
        self.assertEqual(int(status["CapEff"], 16), 1 << 12 | 1 << 19)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_journald_knows_the_priority_and_the_time(self):
        self.node.run("journalctl --sync")
        said = self.node.output("journalctl -b -o cat --no-pager -t crustd -p 4..6 | grep -v '^level=' | head -n 3")
        self.assertEqual(said, "")
        self.assertIn("level=info", self.node.output("journalctl -b -o cat --no-pager -t crustd -p info"))
        self.assertNotIn("level=info", self.node.output(
            "journalctl -b -o cat --no-pager -t crustd -p warning || true"))

    def test_directories_are_made_by_tmpfiles(self):
        self.node.run("rmdir /run/kata-containers/shared/direct-volumes /run/crust"
                      " && systemd-tmpfiles --create crustd.conf")
        self.assertEqual(self.node.output(
            "stat -c '%a %U' /run/kata-containers/shared/direct-volumes /run/crust"),
            "700 root\n700 root")

    def test_works_under_all_restrictions(self):
        """A volume that is staged by the gRPC or HTTP socket, and a device that grows."""
        target = "/var/lib/kubelet/pods/pod-1/volumes/kubernetes.io~csi/pv-unit/mount"
        self.node.run("truncate -s 64M /var/disk && losetup -f --show /var/disk >/run/disk")
        self.addCleanup(self.node.run, "losetup -d $(cat /run/disk); rm /var/disk")
        device = self.node.read("/run/disk").strip()
        mount_info = {"volume-type": "block", "device": device, "fstype": "ext4"}
        self.node.crustctl("direct-volume", "add", "--volume-path", target,
                           "--mount-info", json.dumps(mount_info))
        self.addCleanup(self.node.crustctl, "direct-volume", "remove", "--volume-path", target)
        self.node.wait_for(target, "unbound", device_bytes=64 * MIB)
        self.node.run(f"truncate -s 96M /var/disk && losetup -c {device}")
        self.node.wait_for(target, "unbound", device_bytes=96 * MIB)
        self.assertIn("pv-unit", self.node.crustctl("volumes").stdout)
        status = json.loads(self.node.crustctl("status", "-o", "json").stdout)
        self.assertFalse(status.get("degraded"), status)

    def test_reload_takes_a_good_configuration_and_keeps_it_over_a_bad_one(self):
        pid, before = self.pid(), len(self.said())
        self.set_configuration("[resize]\nsweep_seconds = 30\n")
        self.node.run("systemctl reload crustd")
        self.node.wait(lambda: any("read again" in line for line in self.said()[before:]), 60,
                       "the configuration to be read")
        self.assertFalse(any("sweep_seconds = " in line for line in self.said(unit=True)))
        self.node.write("/etc/crustd/crustd.conf", "[resize]\nsweep_seconds = often\n")
        self.assertNotEqual(self.node.run("systemctl reload crustd", check=False).status, 0)
        self.assertTrue(any("crustd.conf:2: resize.sweep_seconds" in line for line in self.said(unit=True)))
        self.node.run(f"kill -HUP {pid}")
        self.node.wait(lambda: any("stays as it was" in line and "crustd.conf:2" in line
                                   for line in self.said()[before:]), 60, "the refusal")
        self.node.wait(lambda: self.node.property("ActiveState") == "active", 20, "READY=1")
        self.assertEqual(self.pid(), pid)

    def test_a_process_that_hangs_is_killed_and_restarted(self):
        pid, restarts = self.pid(), int(self.node.property("NRestarts"))
        before = len(self.said(unit=True))
        self.node.run(f"kill -STOP {pid}")
        self.wait_restarted(pid, restarts, 3 * WATCHDOG_SECONDS)
        log = self.said(unit=True)[before:]
        self.assertTrue(any("Watchdog timeout" in line for line in log), log)

    def test_a_crash_is_followed_by_a_restart(self):
        pid, restarts = self.pid(), int(self.node.property("NRestarts"))
        self.node.run(f"kill -KILL {pid}")
        self.wait_restarted(pid, restarts, 30)

    def test_stop_is_orderly(self):
        self.node.run("systemctl stop crustd")
        self.assertEqual(self.node.property("ActiveState"), "inactive")
        self.assertEqual(self.node.property("Result"), "success")
        self.assertEqual(self.node.property("ExecMainStatus"), "0")
        self.node.run("[ ! -e /run/crustd/http.sock ] && [ ! -e /run/crustd/crust.sock ]"
                      " && [ -e /var/lib/crustd/crustd.db ]")

    def test_a_group_may_use_the_sockets(self):
        self.node.run("groupadd drivers && useradd -G drivers driver && useradd stranger")
        self.addCleanup(self.node.run, "userdel driver; userdel stranger; groupdel drivers")
        self.set_configuration("[paths]\nsocket_group = drivers\n")
        self.refuses_to_start("/run/crustd/", "SupplementaryGroups=")
        drop_in = f"/etc/systemd/system/{pathlib.Path(UNIT).name}.d"
        self.node.write(f"{drop_in}/group.conf", "[Service]\nSupplementaryGroups=drivers\n")
        self.addCleanup(self.node.run, f"rm -r {drop_in}; systemctl daemon-reload;"
                                       " systemctl stop crustd")
        self.node.run("systemctl daemon-reload")
        self.start()
        self.assertEqual(self.node.output("stat -c '%a %G' /run/crustd/*.sock"),
                         "660 drivers\n660 drivers")
        ask = "curl -sf --unix-socket /run/crustd/http.sock http://localhost/healthz"
        self.node.run(f"runuser -u driver -- {ask}")
        self.assertNotEqual(self.node.run(f"runuser -u stranger -- {ask}", check=False).status, 0)

    def refuses_to_start(self, *words):
        """The unit fails for good, and one line says why: with each of these words."""
        self.node.run("systemctl stop crustd; systemctl reset-failed crustd", check=False)
        before = len(self.said())
        self.assertNotEqual(self.node.run("systemctl start crustd", check=False).status, 0)
        # No restart is on its way: that would be activating/auto-restart.
        self.assertEqual((self.node.property("ActiveState"), self.node.property("SubState")),
                         ("failed", "failed"))
        self.assertEqual(int(self.node.property("NRestarts")), 0)
        self.assertEqual(int(self.node.property("ExecMainStatus")), EXIT_USAGE)
        said = self.said()[before:]
        self.assertEqual(len(said), 1, said)
        for word in words:
            self.assertIn(word, said[0])

    def test_bad_configuration_is_reported_in_one_line(self):
        self.set_configuration("[resize]\nnonsense = 3\n")
        self.refuses_to_start("/etc/crustd/crustd.conf:2", "resize.nonsense", "correct it")

    def test_missing_group_is_reported_in_one_line(self):
        self.set_configuration("[paths]\nsocket_group = nobodys\n")
        self.refuses_to_start("paths.socket_group", "nobodys", "create what it names")


def service_lines(name="crustd.service"):
    """The lines of the unit's [Service] section, as shipped."""
    text = (REPOSITORY / "config/deploy" / name).read_text()
    section = text.partition("[Service]\n")[2].partition("\n[")[0]
    return [line for line in section.splitlines() if line and not line.startswith("#")]


# What takes nothing away from crustd: how it is run, and what a restriction leaves.
FREE = ("Type", "ExecStart", "ExecReload", "Restart", "RestartSec", "RestartPreventExitStatus",
        "WatchdogSec", "TimeoutStopSec", "StateDirectory", "RuntimeDirectory",
        "RuntimeDirectoryPreserve")
PERMITS = ("ReadWritePaths", "SystemCallErrorNumber", "SystemCallFilter=@chown", "SystemCallFilter=seccomp")
RESTRICTS = (
    "LimitNOFILE", "TasksMax", "StateDirectoryMode", "UMask", "CapabilityBoundingSet",
    "NoNewPrivileges", "ProtectSystem", "PrivateMounts", "ProtectHome", "PrivateTmp",
    "DevicePolicy", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
    "ProtectControlGroups", "ProtectClock", "ProtectHostname", "RestrictNamespaces",
    "RestrictRealtime", "LockPersonality", "MemoryDenyWriteExecute", "RestrictAddressFamilies",
    "SystemCallArchitectures", "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged @resources",
)


def matches(line, names):
    return next((name for name in names if line == name or line.startswith(
        f"{name} " if "=" in name else f"{name}=")), None)


class DriveRightsTest(NodeTest):
    """Block devices may be opened with crustd-drives.conf, and not without it."""

    DROP_IN = "/etc/systemd/system/crustd.service.d/crustd-drives.conf"

    def setUp(self):
        self.node.run("truncate -s 64M /var/drive && losetup -f --show /var/drive >/run/drive && echo 0 131072 linear"
                      " $(cat /run/drive) 0 | dmsetup create crust-drive")
        self.addCleanup(self.node.run, "dmsetup remove crust-drive && losetup -d $(cat /run/drive) && rm /var/drive")
        self.loop = self.node.read("/run/drive").strip()

    def findings(self):
        done = self.node.crustctl("doctor", "-o", "json", check=False)
        return {one["where"]: (one["level"], one["remedy"] or "") for one in json.loads(done.stdout)
                if one["id"] == "drives"}

    def opens(self, device, lines):
        """Whether a program under the unit's restrictions, and these lines, may write to it."""
        unit = "/run/systemd/system/crust-open.service"
        self.node.write(unit, "\n".join([
            "[Service]", "Type=oneshot",
            f"ExecStart=/usr/bin/dd if={device} of={device} bs=4096 count=1 conv=notrunc,nocreat", *lines, ""]))
        done = self.node.run("systemctl daemon-reload; systemctl reset-failed crust-open; systemctl start crust-open",
                             check=False)
        self.addCleanup(self.node.run, f"rm -f {unit}; systemctl daemon-reload")
        return done.status == 0

    def test_a_unit_may_open_them_with_the_drop_in_only(self):
        shipped = [line for line in service_lines() if matches(line, RESTRICTS + PERMITS)
                   and not line.startswith("StateDirectoryMode")]
        more = service_lines("crustd-drives.conf")
        self.assertTrue(more)
        for device in (self.loop, "/dev/mapper/crust-drive"):
            with self.subTest(device):
                self.assertFalse(self.opens(device, shipped))
                self.assertTrue(self.opens(device, shipped + more))

    def test_doctor_names_the_missing_right(self):
        self.node.run("cp /etc/crustd/crustd.conf /run/crustd.conf.kept; systemctl stop crustd")
        self.addCleanup(self.node.run, f"rm -f {self.DROP_IN}; systemctl daemon-reload; systemctl stop crustd;"
                                       " mv /run/crustd.conf.kept /etc/crustd/crustd.conf")
        self.node.start_crustd()
        self.assertEqual(self.findings(), {})
        self.node.run("systemctl stop crustd")
        self.node.configure(drives__enabled="on", drives__host_prefixes="/dev/mapper")
        self.node.start_crustd()
        found = self.findings()
        self.assertEqual(found.pop("/dev/mapper"), ("ok", ""))
        (level, remedy), = found.values()
        self.assertEqual(level, "error")
        self.assertIn("crustd-drives.conf", remedy)
        self.node.run(f"install -D -m 644 /usr/share/crustd/crustd-drives.conf {self.DROP_IN}"
                      " && systemctl daemon-reload && systemctl stop crustd")
        self.node.start_crustd()
        self.assertEqual({level for level, _ in self.findings().values()}, {"ok"})


class CoverageTest(unittest.TestCase):
    def test_every_line_of_the_unit_is_known(self):
        """A new line that restricts something needs a probe in probe.c and a name above."""
        lines = service_lines()
        unknown = [line for line in lines if not matches(line, FREE + PERMITS + RESTRICTS)]
        self.assertEqual(unknown, [])
        gone = [name for name in RESTRICTS if not any(matches(line, [name]) for line in lines)]
        self.assertEqual(gone, [])


class RestrictionTest(NodeTest):
    """Each restricting line, three times: in a unit without any, in one that has only this line,
    and in one that has all of them. A probe must do in the first what it cannot in the others."""

    INSTALL = False

    @classmethod
    def prepare(cls):
        with tempfile.TemporaryDirectory() as scratch:
            probe = pathlib.Path(scratch) / "probe"
            subprocess.run(["cc", "-O2", "-static", "-o", probe,
                            pathlib.Path(__file__).with_name("probe.c")], check=True)
            cls.node.put(probe, "/usr/local/sbin/crust-probe")
        cls.node.run("mkdir -p /run/crust-probe && touch /tmp/crust-probe-outside")
        cls.lines = {matches(line, RESTRICTS): line for line in service_lines()
                     if matches(line, RESTRICTS)}
        everything = [line for line in service_lines() if matches(line, RESTRICTS + PERMITS)]
        cls.add_unit("none", [])
        cls.add_unit("all", everything)
        for number, (name, line) in enumerate(cls.lines.items()):
            cls.add_unit(f"only-{number}", [line], name)
        cls.node.run("systemctl daemon-reload")
        names = ["none", "all", *(f"only-{number}" for number in range(len(cls.lines)))]
        units = [f"crust-probe-{name}.service" for name in names]
        cls.node.run(["systemctl", "start", *units], seconds=600)
        cls.results = {name: cls.result(name) for name in names}

    @classmethod
    def add_unit(cls, name, lines, probe=""):
        words = f'"{probe}"' if probe else ""
        cls.node.write(f"/run/systemd/system/crust-probe-{name}.service", "\n".join([
            "[Service]", "Type=oneshot", f"ExecStart=/usr/local/sbin/crust-probe {words}",
            "TimeoutStartSec=60", f"StateDirectory=crust-probe-{name}", f"StandardOutput=file:/run/crust-probe/{name}",
            *lines, ""]))

    @classmethod
    def result(cls, name):
        lines = cls.node.read(f"/run/crust-probe/{name}").splitlines()
        return dict(line.split(": ", 1) for line in lines)

    def test_each_line_is_in_force(self):
        for number, name in enumerate(self.lines):
            with self.subTest(name):
                self.assertEqual(self.results["none"][name], "done")
                self.assertNotEqual(self.results[f"only-{number}"][name], "done")
                self.assertNotEqual(self.results["all"][name], "done")

    def test_what_the_unit_leaves_is_there(self):
        left = {name: what for name, what in self.results["all"].items() if name[:4] == "may "}
        self.assertEqual(len(left), 7)
        self.assertEqual(set(left.values()), {"done"})

    def test_a_forbidden_call_is_an_error_and_no_end(self):
        self.assertEqual(self.results["all"]["SystemCallFilter=@system-service"], "EPERM")
        self.assertTrue(self.results["only-" + str(list(self.lines).index(
            "SystemCallFilter=@system-service"))]["SystemCallFilter=@system-service"]
            .startswith("signal"))
