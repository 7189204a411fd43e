# SPDX-License-Identifier: Apache-2.0
"""Invalid metadata directories: each way in which one can be wrong becomes `invalid` with the problem
in words, the last good facts stay, nobody else is touched, and it heals.

The classes are those of the threat model: T1 links and mounts, T2 what is no regular file, T3 hard
links and owners, T4 size, T5 JSON, T7 sandbox-id names. T6 and T9 are in
report_metadata_names_test.py.
"""

import json
import os
import socket
import stat
import subprocess

from mount_info import GOOD, text, write_content
from node import private
from scratch_node import ScratchNodeTest, publish_path

NOBODY = 65534


def without(key):
    return json.dumps({name: value for name, value in GOOD.items() if name != key}).encode()


# What stands in mountInfo.json, and what is said about it.
CONTENTS = {
    "empty": (b"", r"mountInfo\.json: empty"),
    "cut": (text()[:-7], r"mountInfo\.json: .*at byte"),
    "key twice": (b'{"device":"/dev/a","device":"/dev/b"}', r"key a second time at byte 19"),
    "key twice, other case": (b'{"device":"/dev/a","DeVice":"/dev/b"}', "key a second time"),
    "key twice, escaped": (b'{"device":"/dev/a","d\\u0065vice":"/dev/b"}', "key a second time"),
    "key twice, as Go folds": ('{"device":"/dev/a","fstype":"a","f\u017ftype":"b"}'.encode(),
                               "key a second time"),
    "key twice, nested": (b'{"device":"/dev/a","metadata":{"crust.resize":"1","CRUST.resize":"2"}}',
                          "metadata.crust.resize: key a second time"),
    "escaped NUL": (b'{"device":"/dev/a\\u0000b"}', r"\\u0000 at byte"),
    "escaped NUL in a key": (b'{"device":"/dev/a","x\\u0000":"b"}', r"\\u0000 at byte"),
    "raw NUL": (b'{"device":"/dev/a\0b"}', "control character"),
    "NUL at the end": (text() + b"\0", "at byte"),
    "line break in a string": (b'{"device":"/dev/a\nb"}', "control character"),
    "invalid UTF-8": (b'{"device":"/dev/\xff"}', "invalid UTF-8"),
    "overlong UTF-8": (b'{"device":"/dev/\xc0\xaf"}', "invalid UTF-8"),
    "lone surrogate": (b'{"device":"/dev/\\ud800"}', "lone surrogate"),
    "too deep": (text(extra={"a": {"b": {"c": {}}}}), "deep"),
    "very deep": (b'{"device":"/dev/a","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "deep"),
    "trailing garbage": (text() + b" x", "at byte"),
    "two documents": (text() + text(), "at byte"),
    "trailing comma": (b'{"device":"/dev/a",}', "at byte"),
    "single quotes": (b"{'device':'/dev/a'}", "at byte"),
    "byte order mark": (b"\xef\xbb\xbf" + text(), "at byte 0"),
    "UTF-16": (text().decode().encode("utf-16"), "at byte 0"),
    "not JSON": (b"device=/dev/a\n", "at byte 0"),
    "an array": (b'[{"device":"/dev/a"}]', "not an object"),
    "a string": (b'"/dev/a"', "not an object"),
    "null": (b"null", "not an object"),
    "no device": (without("device"), "device: missing or empty"),
    "device null": (text(device=None), "device: missing or empty"),
    "device empty": (text(device=""), "device: missing or empty"),
    "device relative": (text(device="dev/a"), "device: not an absolute path"),
    "device a number": (text(device=7), "device: not a string"),
    "device a list": (text(device=["/dev/a"]), "device: not a string"),
    "device too long": (text(device="/" + "d" * 4096), "device: longer than a path"),
    "volume-type a number": (text(**{"volume-type": 1}), "volume-type: not a string"),
    "fstype an object": (text(fstype={}), "fstype: not a string"),
    "options a string": (text(options="ro"), "options: not an array"),
    "option a number": (text(options=["ro", 1]), r"options\[1\]: not a string"),
    "metadata a list": (text(metadata=[]), "metadata: not an object"),
    "metadata a number": (text(metadata={"fsGroup": 100}), "metadata.fsGroup: not a string"),
    "number too long": (b'{"device":"/dev/a","x":' + b"9" * 64 + b"}", "at byte"),
    "too big": (text(padding="x" * (64 * 1024)), "more than 65536 bytes"),
    "huge and sparse": (None, "more than 65536 bytes"),
}


def replace(path, make):
    path.unlink(missing_ok=True)
    make(path)


def bind_socket(path):
    """Through its directory's descriptor, because the path is longer than sun_path allows."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


def hard_link(path):
    """To a file that reads well, so that only the link is wrong with it."""
    target = path.parent.parent.parent / f"target-of-{path.parent.name[-40:]}"
    target.write_bytes(text())
    target.chmod(0o600)
    os.link(target, path)


def write_many(directory):
    for number in range(64):
        (directory / f"{number:064x}").touch(0o600)


def write_ids(directory):
    for number in range(17):
        (directory / f"{number:064x}").touch(0o600)


def sandbox_file(name, make=lambda path: path.touch(0o600)):
    return lambda directory: make(directory / name)


# What is done to a good directory, and what is said about it.
DIRECTORIES = {
    "mountInfo.json a link": (
        lambda d: replace(d / "mountInfo.json", lambda p: p.symlink_to("/etc/passwd")),
        "mountInfo.json: is or lies behind a symbolic link"),
    "mountInfo.json a FIFO": (lambda d: replace(d / "mountInfo.json", os.mkfifo),
                              "mountInfo.json: not a regular file"),
    "mountInfo.json a socket": (lambda d: replace(d / "mountInfo.json", bind_socket),
                                "mountInfo.json: not a regular file"),
    "mountInfo.json a device": (
        lambda d: replace(d / "mountInfo.json",
                          lambda p: os.mknod(p, stat.S_IFCHR | 0o600, os.makedev(1, 5))),
        "mountInfo.json: not a regular file"),
    "mountInfo.json a directory": (lambda d: replace(d / "mountInfo.json", os.mkdir),
                                   "mountInfo.json: not a regular file"),
    "mountInfo.json a hard link": (lambda d: replace(d / "mountInfo.json", hard_link),
                                   "mountInfo.json: has several hard links"),
    "mountInfo.json of somebody else": (lambda d: os.chown(d / "mountInfo.json", NOBODY, 0),
                                        f"mountInfo.json: belongs to uid {NOBODY}"),
    "mountInfo.json writable by the group": (lambda d: (d / "mountInfo.json").chmod(0o660),
                                             "mountInfo.json: is writable by others"),
    "mountInfo.json writable by all": (lambda d: (d / "mountInfo.json").chmod(0o602),
                                       "mountInfo.json: is writable by others"),
    "mountInfo.json removed": (lambda d: (d / "mountInfo.json").unlink(),
                               "mountInfo.json: no such file"),
    "directory of somebody else": (lambda d: os.chown(d, NOBODY, 0),
                                   "the directory belongs to somebody else"),
    "directory writable by the group": (lambda d: d.chmod(0o770),
                                        "the directory is writable by others"),
    "directory writable by all": (lambda d: d.chmod(0o707),
                                  "the directory is writable by others"),
    "more than 64 names": (write_many, "more than 6[0-9] names|more than 16 sandbox-id files"),
    "more than 16 sandboxes": (write_ids, "more than 16 sandbox-id files"),
}

# What is put beside a good mountInfo.json, and what is said about it.
UNKNOWN_NAMES = {
    "csiPlugin.json": (sandbox_file("csiPlugin.json"), "csiPlugin.json: refused, because a tenant"),
    "sandbox id with a space": (sandbox_file("a b"), "a b: not a name that belongs here"),
    "sandbox id with a line break": (sandbox_file("a\nb"), r"not a name that belongs here"),
    "sandbox id with an escape": (sandbox_file("\x1b[2J"), r"not a name that belongs here"),
    "sandbox id not UTF-8": (
        lambda d: os.close(os.open(os.fsencode(d) + b"/\xff\xfe", os.O_CREAT, 0o600)),
        "not a name that belongs here"),
    "sandbox id beyond ASCII": (sandbox_file("s\u00e4ndbox"), "not a name that belongs here"),
    "sandbox id a temporary file": (sandbox_file(".mountInfo.json.tmp"),
                                    r"\.mountInfo\.json\.tmp: not a name that belongs here"),
    "sandbox id that looks like an option": (sandbox_file("-rf"), "-rf: not a name"),
    "sandbox id too long": (sandbox_file("a" * 129), "not a name that belongs here"),
    "sandbox id as long as a name": (sandbox_file("a" * 255), "not a name that belongs here"),
    "sandbox id a link": (sandbox_file("b" * 64, lambda p: p.symlink_to("mountInfo.json")),
                          "is a symbolic link, not a sandbox-id file"),
    "sandbox id a directory": (sandbox_file("b" * 64, os.mkdir), "not a regular file"),
    "sandbox id a FIFO": (sandbox_file("b" * 64, os.mkfifo), "not a regular file"),
    "sandbox id a hard link": (sandbox_file("b" * 64, lambda p: (p.touch(0o600), os.link(
        p, p.parent.parent.parent / "hard-linked-id"))), "has several hard links"),
    "sandbox id with content": (sandbox_file("b" * 64, lambda p: p.write_text("x")), "not empty"),
    "sandbox id of somebody else": (
        sandbox_file("b" * 64, lambda p: (p.touch(0o600), os.chown(p, NOBODY, 0))),
        "belongs to somebody else"),
}


def empty(directory):
    """Removes all that is in a directory, whatever it is."""
    for entry in os.scandir(os.fsencode(directory)):
        if entry.is_dir(follow_symlinks=False):
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def facts(row):
    return {name: row[name] for name in ("volume_id", "target_path", "key", "layout", "volume_type",
                                         "device", "fs_type", "options", "metadata", "first_seen")}


class InvalidMetadata(ScratchNodeTest):
    """Good, then broken, then good again; and broken from the start."""

    def cases(self):
        """name -> (what breaks a directory, the problem's words)"""
        broken = {}
        for name, (content, problem) in CONTENTS.items():
            broken[name] = (lambda directory, content=content: write_content(directory, content), problem)
        return broken | DIRECTORIES

    def stage_all(self, node, cases):
        paths = {name: publish_path(f"pv-{number}") for number, name in enumerate(cases)}
        for path in paths.values():
            write_content(self.made(node, path), text())
        return paths

    def made(self, node, path):
        directory = node.directory(path)
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def rows(self, node):
        return {row["target_path"]: row for row in
                node.query("SELECT * FROM audit_volumes WHERE target_path IS NOT NULL")}

    def wait_for_all(self, node, paths, status):
        def reached():
            rows = self.rows(node)
            return rows if all(rows.get(path, {}).get("status") == status for path in paths.values()) else None

        try:
            return node.wait(reached, 120, f"all to be {status}")
        except Exception:
            rows = self.rows(node)
            missing = {name: rows.get(path, {}).get("status") for name, path in paths.items()
                       if rows.get(path, {}).get("status") != status}
            self.fail(f"not {status}: {missing}\n{node.log_tail()[-2000:]}")

    def check_broken(self, rows, cases, paths):
        for name, path in paths.items():
            with self.subTest(name):
                row = rows[path]
                self.assertRegex(row["problem"], cases[name][1])
                self.assertEqual((row["state"], row["reason"]), ("unmanaged", "invalid_mount_info"))
                self.assertIsNone(row["next_attempt_at"])
                self.assertTrue(path.endswith(f"~csi/{row['pv']}/mount"), row)
                self.assertTrue(row["problem"].isprintable(), row["problem"])

    def mend(self, node, paths):
        for path in paths.values():
            directory = node.directory(path)
            empty(directory)
            os.chown(directory, 0, 0)
            directory.chmod(0o700)
            write_content(directory, text(fstype="ext4"))

    def test_keeps_the_old_facts_and_heals(self):
        cases = self.cases()
        node = self.node({"resize.sweep_seconds": 3600})
        bystander = publish_path("bystander")
        write_content(self.made(node, bystander), text())
        paths = self.stage_all(node, cases)
        node.start()
        self.wait_for_all(node, paths, "present")
        node.wait(lambda: all(row["state"] == "unbound" for row in self.rows(node).values()), 60, "all to be decided")
        good = self.rows(node)

        for name, path in paths.items():
            cases[name][0](node.directory(path))
        rows = self.wait_for_all(node, paths, "invalid")
        node.wait(lambda: all(self.rows(node)[path]["state"] == "unmanaged"
                              for path in paths.values()), 60, "all to be decided")
        rows = self.rows(node)
        self.check_broken(rows, cases, paths)
        for name, path in paths.items():
            with self.subTest(name):
                self.assertEqual(facts(rows[path]), facts(good[path]))
        self.assertEqual(rows[bystander], good[bystander])
        self.explains(node, paths["key twice"], "The CSI driver writes this file",
                      "no key twice", "key a second time at byte 19")
        self.explains(node, paths["mountInfo.json a link"], "symbolic link")

        self.mend(node, paths)
        rows = self.wait_for_all(node, paths, "present")
        node.wait(lambda: all(row["state"] == "unbound" for row in self.rows(node).values()), 60,
                  "all to be decided again")
        rows = self.rows(node)
        for name, path in paths.items():
            with self.subTest(name):
                self.assertIsNone(rows[path]["problem"])
                self.assertEqual(facts(rows[path]), facts(good[path]) | {"fs_type": "ext4"})
        self.assertEqual(rows[bystander], good[bystander])
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"), [{"n": len(paths) + 1}])

    def test_broken_from_the_start(self):
        cases = self.cases()
        node = self.node()
        paths = self.stage_all(node, cases)
        for name, path in paths.items():
            cases[name][0](node.directory(path))
        node.start()
        rows = self.wait_for_all(node, paths, "invalid")
        node.wait(lambda: all(row["state"] == "unmanaged" for row in self.rows(node).values()), 60, "all to be decided")
        rows = self.rows(node)
        self.check_broken(rows, cases, paths)
        for name, path in paths.items():
            with self.subTest(name):
                self.assertIsNone(rows[path]["device"])
        self.mend(node, paths)
        rows = self.wait_for_all(node, paths, "present")
        for path in paths.values():
            self.assertEqual(rows[path]["device"], "/dev/good")

    def test_one_file_too_many_is_ignored_and_named(self):
        """The volume stays present and in its state, whatever lies beside its mountInfo.json."""
        node = self.node()
        paths = self.stage_all(node, UNKNOWN_NAMES)
        node.start()
        self.wait_for_all(node, paths, "present")
        for name, path in paths.items():
            UNKNOWN_NAMES[name][0](node.directory(path))
        node.wait(lambda: all(row["problem"] for row in self.rows(node).values()), 60, "all names to be remarked upon")
        rows = self.rows(node)
        for name, path in paths.items():
            with self.subTest(name):
                row = rows[path]
                self.assertRegex(row["problem"], UNKNOWN_NAMES[name][1])
                self.assertTrue(row["problem"].isprintable(), row["problem"])
                self.assertEqual((row["status"], row["state"], row["reason"], row["device"]),
                                 ("present", "unbound", "no_device", "/dev/good"))
        self.explains(node, paths["csiPlugin.json"], "csiPlugin.json: refused")
        self.mend(node, paths)
        node.wait(lambda: not any(row["problem"] for row in self.rows(node).values()), 60,
                  "the remarks to go with the files")

    def test_a_name_instead_of_a_directory(self):
        """The directory itself becomes something else, and comes back."""
        replacements = {
            "link to a good directory": (lambda path, aside: path.symlink_to(aside),
                                         "is a symbolic link"),
            "link to nothing": (lambda path, aside: path.symlink_to("/nonexistent"),
                                "is a symbolic link"),
            "file": (lambda path, aside: path.touch(0o600), "not a directory"),
            "FIFO": (lambda path, aside: os.mkfifo(path), "not a directory"),
        }
        node = self.node()
        paths = self.stage_all(node, replacements)
        node.start()
        good = self.wait_for_all(node, paths, "present")
        aside = node.root / "aside"
        aside.mkdir()
        for number, (name, path) in enumerate(paths.items()):
            directory = node.directory(path)
            directory.rename(aside / str(number))
            replacements[name][0](directory, aside / str(number))
        self.settle(node)
        node.crustctl("resync")
        rows = self.wait_for_all(node, paths, "invalid")
        for name, path in paths.items():
            with self.subTest(name):
                self.assertRegex(rows[path]["problem"], replacements[name][1])
        for number, path in enumerate(paths.values()):
            directory = node.directory(path)
            directory.unlink()
            (aside / str(number)).rename(directory)
        rows = self.wait_for_all(node, paths, "present")
        for path in paths.values():
            self.assertEqual(rows[path]["device"], good[path]["device"])

    def test_another_file_system_on_a_directory(self):
        node = self.node()
        path = publish_path("pv-mounted")
        write_content(self.made(node, path), text())
        node.start()
        node.wait_for(path, "unbound")
        directory = node.directory(path)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", directory], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"needs to mount a tmpfs: {mounted.stderr.strip()}")
        try:
            write_content(directory, text(device="/dev/other"))
            node.crustctl("resync")
            row = node.wait_for(path, "unmanaged", "invalid_mount_info")
            self.assertIn("another file system is mounted there", row["problem"])
            self.assertEqual(row["device"], "/dev/good")
        finally:
            subprocess.run(["umount", directory], check=True)
        node.crustctl("resync")
        self.assertEqual(node.wait_for(path, "unbound", status="present")["device"], "/dev/good")

    def test_half_a_file_and_then_the_rest(self):
        """However long that takes: the old facts until the new ones are whole."""
        node = self.running_node()
        path = publish_path("pv-slow")
        directory = self.made(node, path)
        write_content(directory, text())
        first = node.wait_for(path, "unbound")["volume_id"]
        content = text(device="/dev/next")
        with open(directory / "mountInfo.json", "wb", opener=private) as file:
            file.write(content[:20])
            file.flush()
            self.settle(node)
            self.assertEqual(node.volume(path)["device"], "/dev/good")
            file.write(content[20:])
        node.wait_for(path, "unbound", status="present", device="/dev/next", volume_id=first)
