# SPDX-License-Identifier: Apache-2.0
"""Completion of crustctl's command line, by real shells: what comes when somebody presses the tab key."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

from node import BUILD, REPOSITORY
from programs import needs
from scratch_node import ScratchNodeTest, publish_path

COMPLETIONS = {"bash": "share/bash-completion/completions/crustctl", "zsh": "share/zsh/site-functions/_crustctl",
               "fish": "share/fish/vendor_completions.d/crustctl.fish"}
SECONDS = 60
PV = "pvc-of-the-completion"
OTHER_PVS = ("pvc-another", "pvc-third")


def type_into(command, environment, setup, words, expected):
    """Starts a shell on a terminal, types, and returns what it showed since, once `expected` is in it."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)
    shown = b""

    def wait_for(pattern, start):
        nonlocal shown
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, shown[start:]) and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:
                    break
        return shown[start:]
    try:
        os.write(terminal, f"{setup}; echo 'set'-up\n".encode())
        wait_for(rb"(?m)^set-up", 0)
        start = len(shown)
        os.write(terminal, words.encode())
        return wait_for(expected.encode(), start).decode(errors="replace")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


class CompletionTest(ScratchNodeTest):

    def setUp(self):
        super().setUp()
        # The installed files, but that they find the candidates where the test has them.
        self.prefix = self.scratch / "installed/usr"
        subprocess.run(["make", "-C", REPOSITORY, "-o", "programs", f"OUT={BUILD}", "install",
                        f"DESTDIR={self.scratch}/installed"], check=True, capture_output=True)
        for name in COMPLETIONS.values():
            path = self.prefix / name
            path.write_text(path.read_text().replace("/usr/libexec/", f"{self.prefix}/libexec/"))
        self.candidates = self.prefix / "libexec/crustctl/candidates"
        self.environment = {
            "PATH": f"{self.prefix}/bin:/usr/bin:/bin", "HOME": str(self.scratch), "TERM": "dumb", "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.scratch), "XDG_DATA_HOME": str(self.scratch)}

    def with_volume(self):
        node = self.node()
        for pv in (PV, *OTHER_PVS):
            node.stage(publish_path(pv), self.loop().device)
        node.start()
        for pv in (PV, *OTHER_PVS):
            node.wait_for(publish_path(pv), "unbound")
        self.environment["CRUST_ROOT"] = str(node.root)

    def candidates_for(self, *words):
        done = subprocess.run([self.candidates, *words], env=self.environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())

    # -- what is offered

    def test_every_command_and_option(self):
        helped = subprocess.run([BUILD / "crustctl", "--help"], env={"COLUMNS": "1000"}, capture_output=True,
                                text=True).stdout
        commands = re.findall(r"^  ([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?: [A-Z_ ]+?)?  +(\S.*)$", helped, re.M)
        self.assertGreater(len(commands), 20)
        first = self.candidates_for()
        for name, summary in commands:
            head, _, second = name.partition(" ")
            offered = self.candidates_for(head) if second else first
            self.assertEqual(offered.get(second or head), summary, name)
            own = subprocess.run([BUILD / "crustctl", *name.split(), "--help"], capture_output=True, text=True).stdout
            for option in re.findall(r"^  (?:-\w, )?(--?[a-z-]+)", own, re.M):
                self.assertIn(option, self.candidates_for(*name.split(), *["x"] * 3), name)
        self.assertLessEqual({"--root", "--config", "-o", "--version", "--help"}, set(first))

    def test_operands_and_values(self):
        self.with_volume()
        self.assertLessEqual({PV, *OTHER_PVS}, set(self.candidates_for("explain")))
        self.assertIn(PV, self.candidates_for("-o", "json", "wait"))
        self.assertNotIn(PV, self.candidates_for("explain", PV))
        self.assertNotIn(PV, self.candidates_for("crust", "stats"))
        self.assertIn(publish_path(PV), self.candidates_for("crust", "stats"))
        self.assertEqual(set(self.candidates_for("volumes", "-o")), {"text", "json", "wide"})
        self.assertEqual(set(self.candidates_for("status", "-o")), {"text", "json"})
        self.assertEqual(set(self.candidates_for("--root")), {"@files"})
        self.assertEqual(self.candidates_for("wait", PV, "--timeout"), {})
        self.assertIn("@files", self.candidates_for("fs", "resize", "a"))
        self.assertEqual(set(self.candidates_for("drive")), {"list", "attach", "detach", "limits"})
        self.assertEqual(set(self.candidates_for("drive", "attach", "d", "--type")), {"ext4", "xfs", "btrfs"})
        self.assertEqual(set(self.candidates_for("drive", "attach", "d", "--host-path")), {"@files"})
        self.assertEqual(self.candidates_for("drive", "attach", "d", "--bandwidth"), {})
        self.assertEqual(self.candidates_for("no-such-command", "x"), {})

    # -- the shells

    def check(self, shell, complete):
        needs(shell)
        self.with_volume()
        for words, expected in (("crustctl expl", "crustctl explain"), (f"crustctl wait {PV[:6]}", PV),
                                ("crustctl direct-volume rem", "remove"), ("crustctl gc --dr", "--dry-run")):
            with self.subTest(words):
                self.assertRegex(complete(words, expected), re.escape(expected))

    def test_bash(self):
        setup = f". {self.prefix / COMPLETIONS['bash']}"
        self.check("bash", lambda words, expected: type_into(
            ["bash", "--norc", "--noprofile", "-i"], self.environment, setup, words + "\t", expected))

    def test_zsh(self):
        directory = pathlib.Path(self.prefix / COMPLETIONS["zsh"]).parent
        setup = (f"unsetopt zle_bracketed_paste; fpath=({directory} $fpath); autoload -Uz compinit;"
                 f" compinit -u -d {self.scratch}/zcompdump")
        self.check("zsh", lambda words, expected: type_into(
            ["zsh", "-f", "-i"], self.environment, setup, words + "\t", expected))

    def test_fish(self):
        def complete(words, _):
            done = subprocess.run(
                ["fish", "--no-config", "-c", f". {self.prefix / COMPLETIONS['fish']}; complete -C '{words}'"],
                env=self.environment, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # It shows the word alone; the line is the one before it.
            return words.rsplit(" ", 1)[0] + " " + done.stdout
        self.check("fish", complete)
