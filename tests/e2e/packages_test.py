# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: twice the same, clean for lintian, complete; and what is in them but programs: man pages,
completions, the bill of materials. tests/node/package_test.py installs them."""

import functools
import hashlib
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import debian_packages
from node import BUILD, REPOSITORY
from programs import needs
from programs_reference_test import help_of

VERSION = subprocess.check_output([REPOSITORY / "packaging/version.sh"], text=True).strip()
# A machine that differs from this one in all that a build could take in, and compiles everything itself.
ELSEWHERE = {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "HOME": "/", "USER": "somebody", "JOBS": "1",
             "CCACHE_DISABLE": "1"}


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("*.deb")}


class DebianPackagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.packages = debian_packages.get()
        cls.tree = debian_packages.unpack(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="crust-deb-")))

    def field(self, package, name):
        return subprocess.run(["dpkg-deb", "-f", self.packages[package], name], check=True, capture_output=True,
                              text=True).stdout.strip()

    def bill(self):
        return json.loads((self.tree / "usr/share/doc/crustd/crustd.cdx.json").read_text())

    def test_two_builds_are_the_same_bytes(self):
        with tempfile.TemporaryDirectory(prefix="crust-another-place-", dir="/var/tmp") as other:
            debian_packages.build(pathlib.Path(other), **ELSEWHERE)
            first, second = digests(debian_packages.PLACE), digests(pathlib.Path(other))
        self.assertEqual(len(first), 7)  # with those of debug symbols
        self.assertEqual(first, second)

    def test_lintian_finds_nothing(self):
        needs("lintian")
        changes, = debian_packages.PLACE.glob("*.changes")
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", changes],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_one_version(self):
        for package in self.packages:
            self.assertEqual(self.field(package, "Version"), VERSION)
        for program in ("usr/sbin/crustd", "usr/bin/crustctl", "usr/bin/crust-guest-agent"):
            said = subprocess.run([self.tree / program, "--version"], capture_output=True, text=True).stdout
            self.assertEqual(said.split()[-1], VERSION, said)

    def test_each_file_of_an_installation_is_in_a_package(self):
        with tempfile.TemporaryDirectory(prefix="crust-installed-") as scratch:
            subprocess.run(["make", "-C", REPOSITORY, "-o", "programs", f"OUT={BUILD}", "install-man", "install-sim",
                            f"DESTDIR={scratch}", "ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions"],
                           check=True, capture_output=True)
            installed = {str(path.relative_to(scratch)) for path in pathlib.Path(scratch).rglob("*") if path.is_file()}
        packed = {str(path.relative_to(self.tree)).replace("lib/systemd", "usr/lib/systemd")
                  for path in self.tree.rglob("*") if path.is_file()}
        packed = {re.sub(r"(share/man/.*)\.gz$", r"\1", path) for path in packed
                  if not re.search("share/(doc|lintian)/", path)}
        # postinst makes it from share/crustd where there is none, so that dpkg never asks about it.
        self.assertEqual(packed, installed - {"etc/crustd/crustd.conf"})
        self.assertIn("usr/share/crustd/crustd.conf", packed)

    def test_what_is_loaded_is_depended_on(self):
        """Also libcurl, which is loaded by name, so that dpkg-shlibdeps does not see it."""
        names = {part["bom-ref"]: part for part in self.bill()["components"]}
        for dependency in self.bill()["dependencies"]:
            program = names[dependency["ref"]]["name"]
            if program not in ("crustd", "crustctl"):
                continue
            libraries = {names[one]["name"] for one in dependency["dependsOn"]} - {"uthash-dev"}
            depends = set(re.findall(r"(?:^|, )([a-z0-9.+-]+)", self.field(program, "Depends")))
            self.assertIn("libcurl3-gnutls", libraries)
            self.assertEqual(libraries, {one for one in depends if one.startswith("lib")}, program)

    def test_bill_of_materials(self):
        parts = self.bill()["components"]
        shipped = {hashlib.sha256(path.read_bytes()).hexdigest() for directory in
                   ("usr/sbin", "usr/bin", "usr/libexec/crustd") for path in (self.tree / directory).iterdir()
                   if path.read_bytes().startswith(b"\x7fELF")}
        self.assertEqual({part["hashes"][0]["content"] for part in parts if part["type"] == "application"}, shipped)
        for part in parts:
            if part["type"] == "library":
                installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\n", part["name"]],
                                           capture_output=True, text=True).stdout.split()
                self.assertIn(part["version"], installed, part["name"])

    def test_bill_has_what_is_linked_statically(self):
        """By the symbols of the program before they are taken off."""
        symbols = subprocess.run(["nm", BUILD / "crust-guest-agent"], check=True, capture_output=True, text=True).stdout
        names = {part["bom-ref"]: part["name"] for part in self.bill()["components"]}
        for dependency in self.bill()["dependencies"]:
            parts = {names[one] for one in dependency["dependsOn"]}
            if names[dependency["ref"]] == "crust-guest-agent":
                for symbol, package in ((" T ev_run", "libev-dev"), (" T protobuf_c_message_unpack", "libprotobuf-c-dev"),
                                        (" T __libc_start_main", "libc6-dev")):
                    self.assertEqual(symbol in symbols, package in parts, package)
            elif names[dependency["ref"]] == "crustd":
                self.assertIn("uthash-dev", parts)

    @functools.cache
    def page(self, name):
        needs("man")
        path, = self.tree.glob(f"usr/share/man/*/{name}.gz")
        done = subprocess.run(["man", "--warnings", "-P", "cat", "-l", path], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "400"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), name)
        return re.sub("\x1b\\[[0-9;]*m|.\b", "", done.stdout)

    def test_man_pages_have_every_option(self):
        for name, programs in (("crustd.8", ["crustd"]), ("crust-guest-agent.8", ["crust-guest-agent"]),
                               ("crustctl.1", ["crustctl", *(f"crustctl {one}" for one in self.commands())])):
            page = self.page(name)
            for program in programs:
                for option in re.findall(r"^  (?:-[a-z], )?(--?[a-z-]+)", help_of(program), re.M):
                    self.assertRegex(page, rf"(?m)^ +(-\w, |--version, )?{option}\b", f"{name}: {program}")
            for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
                self.assertIn(f"\n{heading}\n", f"\n{page}")

    def commands(self):
        return re.findall(r"^  ([a-z][a-z-]*(?: [a-z-]+)?)(?: [A-Z_ ]+)?  ", help_of("crustctl"), re.M)

    def test_man_page_has_every_command(self):
        self.assertGreater(len(self.commands()), 20)
        for command in self.commands():
            self.assertRegex(self.page("crustctl.1"), rf"(?m)^       {command}\b")

    def test_man_page_has_every_key(self):
        shipped = (REPOSITORY / "config/crustd.conf.example").read_text()
        keys = re.findall(r"^#([a-z_]+) =", shipped, re.M)
        self.assertGreater(len(keys), 40)
        page = self.page("crustd.conf.5")
        for section in re.findall(r"^\[(\w+)\]", shipped, re.M):
            self.assertIn(f"[{section}]", page)
        for key in keys:
            self.assertRegex(page, rf"(?m)^       {key}\b")
