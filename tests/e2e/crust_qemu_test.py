# SPDX-License-Identifier: Apache-2.0
"""crust-qemu in QEMU's place: a monitor more where all is well, and QEMU as it was meant where not."""

import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import tempfile
import unittest

from node import BUILD
from programs import wait_until

SECONDS = 60
QEMU = f"qemu-system-{platform.machine()}"
PROGRAM = BUILD / f"crust-{QEMU}"
ARGUMENTS = ["-name", "sandbox-abc,debug-threads=on", "-m", "64M"]
MONITOR = ["-qmp", "unix:/run/crustd/qemu/abc.sock,server=on,wait=off"]
SHOW = "#!/bin/sh\nfor word; do echo \"$word\"; done\nexit 7\n"

# A /run of its own, so that tests may run beside each other and beside a node's own /run.
IN_OWN_RUN = """
set -e
mount -t tmpfs none /run
%s
shift
exec "$@"
"""
MAKE_DIRECTORY = "mkdir -p /run/crustd; mkdir -m 700 /run/crustd/qemu\n"


class ProgramTest(unittest.TestCase):
    """The program in a directory of its own, beside a QEMU."""

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="crust-qemu-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.program = self.scratch / PROGRAM.name
        shutil.copy(PROGRAM, self.program)

    def put_qemu(self, text):
        qemu = self.scratch / QEMU
        qemu.write_text(text)
        qemu.chmod(0o755)

    def command(self, setup, arguments):
        return ["unshare", "-m", "sh", "-c", IN_OWN_RUN % setup, "sh", "--",
                str(self.program), *arguments]


@unittest.skipUnless(os.geteuid() == 0, "needs root: mounts")
class CrustQemuTest(ProgramTest):
    """Beside a QEMU that shows what it was given."""

    def setUp(self):
        super().setUp()
        self.put_qemu(SHOW)

    def given(self, setup, arguments=tuple(ARGUMENTS)):
        """What QEMU was given as arguments; its exit status is the program's."""
        done = subprocess.run(self.command(setup, arguments), capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        return done.stdout.splitlines()

    def test_a_sandbox_gets_a_monitor(self):
        self.assertEqual(self.given(MAKE_DIRECTORY), ARGUMENTS + MONITOR)

    def test_nothing_is_left_by_the_attempt(self):
        self.put_qemu("#!/bin/sh\nls -A /run/crustd/qemu\nexit 7\n")
        self.assertEqual(self.given(MAKE_DIRECTORY), [])

    def test_a_socket_of_an_earlier_machine_does_not_matter(self):
        leave = MAKE_DIRECTORY + ("python3 -c 'import socket; socket.socket(socket.AF_UNIX)"
                                  ".bind(\"/run/crustd/qemu/abc.sock\")'\n")
        self.assertEqual(self.given(leave), ARGUMENTS + MONITOR)

    def test_unusual_arguments_run_unchanged(self):
        unusual = {
            "no directory": "",
            "others may write": MAKE_DIRECTORY + "chmod 770 /run/crustd/qemu\n",
            "another owner": MAKE_DIRECTORY + "chown 1 /run/crustd/qemu\n",
            "a link": "mkdir -p /run/crustd /run/d; chmod 700 /run/d; ln -s /run/d /run/crustd/qemu\n",
            "read-only": MAKE_DIRECTORY + "mount -t tmpfs -o ro,mode=700 none /run/crustd/qemu\n",
            "full": MAKE_DIRECTORY + "mount -t tmpfs -o nr_inodes=1,mode=700 none /run/crustd/qemu\n",
            "a file": MAKE_DIRECTORY + "touch /run/crustd/qemu/abc.sock\n",
            "above it, others may write": MAKE_DIRECTORY + "chmod 775 /run/crustd\n",
            "above it, another owner": MAKE_DIRECTORY + "chown 1 /run/crustd\n",
        }
        for what, setup in unusual.items():
            with self.subTest(what):
                self.assertEqual(self.given(setup), ARGUMENTS)

    def test_without_rights_it_runs_unchanged(self):
        self.scratch.chmod(0o755)
        self.program.chmod(0o755)
        arguments = ["--reuid=65534", "--regid=65534", "--clear-groups", str(self.program), *ARGUMENTS]
        command = self.command(MAKE_DIRECTORY, [])
        done = subprocess.run([*command[:-1], "setpriv", *arguments], capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual((done.returncode, done.stdout.splitlines()), (7, ARGUMENTS), done.stderr)

    def test_other_machines_run_unchanged(self):
        for arguments in (["--version"], ["-name", "other"], []):
            self.assertEqual(self.given(MAKE_DIRECTORY, arguments), arguments)

    def test_unusual_names_run_unchanged(self):
        unusual = {
            "too long for a socket": ["-name", "sandbox-" + 87 * "a"],
            "a path upwards": ["-name", "sandbox-../abc"],
            "a path downwards": ["-name", "sandbox-a/../abc"],
            "a space": ["-name", "sandbox-a b"],
            "a line": ["-name", "sandbox-a\nb"],
            "not ASCII": ["-name", "sandbox-\u00e4"],
            "an option": ["-name", "sandbox-a=b"],
            "empty": ["-name", "sandbox-,debug-threads=on"],
            "twice": [*ARGUMENTS, "-name", "sandbox-def"],
            "without a value": ["-m", "64M", "-name"],
            "with the monitor": ARGUMENTS + MONITOR,
            "confidential": [*ARGUMENTS, "-machine", "q35,confidential-guest-support=tdx"],
        }
        for what, arguments in unusual.items():
            with self.subTest(what):
                self.assertEqual(self.given(MAKE_DIRECTORY, arguments),
                                 "\n".join(arguments).split("\n"))

    def test_the_longest_name_gets_a_monitor(self):
        name = 85 * "a"
        self.assertEqual(self.given(MAKE_DIRECTORY, ["-name", f"sandbox-{name}"])[-1],
                         MONITOR[-1].replace("abc", name))

    def test_leftovers_of_a_killed_one_do_not_matter(self):
        self.put_qemu("#!/bin/sh\nls -A /run/crustd/qemu\n"
                      "for word; do echo \"$word\"; done\nexit 7\n")
        # exec keeps the process's number, which names the trial.
        leave = MAKE_DIRECTORY + ("python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX)"
                                  ".bind(\"/run/crustd/qemu/.\" + sys.argv[1])' $$\n")
        self.assertEqual(self.given(leave), ARGUMENTS + MONITOR)

    def test_arguments_up_to_the_limit_run_unchanged(self):
        """QEMU is started even where two more arguments are too many for the kernel."""
        (self.scratch / QEMU).unlink()
        shutil.copy("/bin/echo", self.scratch / QEMU)

        def ask(size):
            """How many arguments QEMU was given more than there were; None: nobody was started."""
            # The kernel takes a quarter of the stack. The shell adds what it would not take itself.
            setup = (f"{MAKE_DIRECTORY}ulimit -s 512\n"
                     f'set -- "$@" $(yes {99 * "x"} | head -n {size // 108}) {(size % 108 + 1) * "x"}\n')
            done = subprocess.run(self.command(setup, ARGUMENTS), text=True, capture_output=True,
                                  timeout=SECONDS, env={"PATH": os.environ["PATH"]})
            if done.returncode != 0:
                self.assertIn("too long", done.stderr)
                return None
            return len(done.stdout.split()) - len(ARGUMENTS) - size // 108 - 1

        few, many = 64 * 1024, 256 * 1024
        while few + 1 < many:
            middle = (few + many) // 2
            few, many = (middle, many) if ask(middle) is not None else (few, middle)
        self.assertEqual([ask(few), ask(few - 8), ask(few - 160)], [0, 0, 2])

    def test_a_program_that_was_replaced_while_it_ran(self):
        os.link(self.program, self.scratch / "held")
        (self.scratch / QEMU).unlink()
        other = pathlib.Path(tempfile.mkdtemp(prefix="crust-qemu-"))
        self.addCleanup(shutil.rmtree, other)
        shutil.copy(self.program, other / self.program.name)
        script = (f'exec 9<{other}/{self.program.name}; rm {other}/{self.program.name}; cp '
                  f'/bin/true {other}/{QEMU}; exec -a {self.program} /proc/self/fd/9')
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_link_back_is_passed_over(self):
        odd = self.scratch / "crust-no-such-vmm"
        self.program.rename(odd)
        (self.scratch / "no-such-vmm").symlink_to(odd)
        done = subprocess.run([str(odd)], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 127)

    def test_a_program_that_the_kernel_refuses_is_reported(self):
        self.put_qemu("neither a program nor a script\n")
        done = subprocess.run(self.command(MAKE_DIRECTORY, ARGUMENTS), capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual(done.returncode, 126)
        self.assertIn(f"cannot run {self.scratch / QEMU}: Exec format error", done.stderr)

    def test_descriptors_and_environment_are_qemus(self):
        self.put_qemu("#!/bin/sh\ncat <&9\necho $KATA\nexit 7\n")
        with tempfile.TemporaryFile() as file:
            file.write(b"passed\n")
            file.seek(0)
            done = subprocess.run(["sh", "-c", 'fd=$1; shift; eval "exec 9<&$fd"; exec "$@"', "sh",
                                   str(file.fileno()), *self.command(MAKE_DIRECTORY, ARGUMENTS)],
                                  pass_fds=[file.fileno()], capture_output=True, text=True,
                                  env={**os.environ, "KATA": "yes"}, timeout=SECONDS)
        self.assertEqual(done.stdout, "passed\nyes\n")

    def test_missing_qemu_is_reported_with_its_place(self):
        (self.scratch / QEMU).unlink()
        odd = self.scratch / "crust-no-such-vmm"
        self.program.rename(odd)
        done = subprocess.run([str(odd)], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 127)
        self.assertIn("no no-such-vmm beside", done.stderr)

    def test_wrong_program_name_is_reported(self):
        odd = self.scratch / "qemu"
        self.program.rename(odd)
        done = subprocess.run([str(odd)], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 127)
        self.assertIn("crust-qemu-system-x86_64", done.stderr)


@unittest.skipUnless(os.geteuid() == 0 and shutil.which(QEMU), f"needs root and {QEMU}")
class RealQemuTest(ProgramTest):
    """In the place of a real QEMU."""

    def test_a_real_monitor_answers_beside_the_first(self):
        (self.scratch / QEMU).symlink_to(shutil.which(QEMU))
        first = self.scratch / "first.sock"
        command = self.command(MAKE_DIRECTORY, [*ARGUMENTS, "-M", "none", "-nodefaults", "-display", "none", "-qmp",
                                                f"unix:{first},server=on,wait=off"])
        # pylint: disable-next=consider-using-with
        qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.addCleanup(qemu.wait)
        self.addCleanup(qemu.kill)
        held = self.connect(qemu, first)
        self.assertIn("QMP", json.loads(held.recv(4096)))
        second = self.connect(qemu, f"/proc/{qemu.pid}/root/run/crustd/qemu/abc.sock")
        self.assertIn("QMP", json.loads(second.recv(4096)))

    def connect(self, qemu, path):
        """A client's socket: short paths only fit into sun_path, so it goes through a link."""
        link = self.scratch / f"link-{pathlib.Path(path).name}"
        link.symlink_to(path)

        def try_once():
            self.assertIsNone(qemu.poll(), "QEMU ended")
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(SECONDS)
            try:
                client.connect(str(link))
            except OSError:
                client.close()
                return None
            return client
        client = wait_until(try_once, SECONDS, f"QEMU to listen on {path}")
        self.addCleanup(client.close)
        return client
