"""Invalid and changing metadata directories: each way in which one can be wrong becomes `invalid`
with the problem in words, the last good facts stay, nobody else is touched, and it heals.

The classes are those of the threat model: T1 links and mounts, T2 what is no regular file, T3 hard
links and owners, T4 size, T5 JSON, T6 directory names, T7 sandbox-id names, T9 floods.
"""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import unittest

from node import VOLUMES, encode, private
from said import SaidTest, curl, publish_path

GOOD = {"volume-type": "block", "device": "/dev/good", "fstype": "xfs",
        "metadata": {"fsGroup": "100"}, "options": ["noatime"]}
NOBODY = 65534


def text(**changes):
    return json.dumps(GOOD | changes).encode()


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
    "key twice, nested": (b'{"device":"/dev/a","metadata":{"k":"1","\xe2\x84\xaa":"2"}}',
                          "key a second time"),
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
    """Through its directory's descriptor, for the path is longer than sun_path allows."""
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
    "csiPlugin.json": (sandbox_file("csiPlugin.json"), "csiPlugin.json: refused: a tenant"),
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
    "more than 64 names": (write_many, "more than 6[0-9] names|more than 16 sandbox-id files"),
    "more than 16 sandboxes": (write_ids, "more than 16 sandbox-id files"),
}


def write_content(directory, content):
    with open(directory / "mountInfo.json", "wb", opener=private) as file:
        if content is None:
            file.truncate(1 << 40)
        else:
            file.write(content)


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


def kata(node):
    return node.root / VOLUMES


class InvalidMetadata(SaidTest):
    """Good, then broken, then good again; and broken from the start."""

    def cases(self):
        """name -> (what breaks a directory, the problem's words)"""
        broken = {}
        for name, (content, problem) in CONTENTS.items():
            broken[name] = (lambda directory, content=content: write_content(directory, content),
                            problem)
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
            return rows if all(rows.get(path, {}).get("status") == status
                               for path in paths.values()) else None

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
        node.wait(lambda: all(row["state"] == "unbound" for row in self.rows(node).values()), 60,
                  "all to be decided")
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
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"),
                         [{"n": len(paths) + 1}])

    def test_broken_from_the_start(self):
        cases = self.cases()
        node = self.node()
        paths = self.stage_all(node, cases)
        for name, path in paths.items():
            cases[name][0](node.directory(path))
        node.start()
        rows = self.wait_for_all(node, paths, "invalid")
        node.wait(lambda: all(row["state"] == "unmanaged" for row in self.rows(node).values()), 60,
                  "all to be decided")
        rows = self.rows(node)
        self.check_broken(rows, cases, paths)
        for name, path in paths.items():
            with self.subTest(name):
                self.assertIsNone(rows[path]["device"])
        self.mend(node, paths)
        rows = self.wait_for_all(node, paths, "present")
        for path in paths.values():
            self.assertEqual(rows[path]["device"], "/dev/good")

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
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", directory], capture_output=True,
                                 text=True)
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
        node = self.node()
        node.start()
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


NAMES = {
    "no padding": encode("/a").rstrip("=").encode(),
    "bits behind the end": b"L2F=",
    "other alphabet": b"Lz8+",
    "relative path": encode("a/b").encode(),
    "empty path": b"====",
    "a NUL": encode("/a\0b").encode(),
    "not UTF-8": encode(b"/\xff\xfe").encode(),
    "longer than any path": b"L" * 254,
    "as long as a name": b"L" * 255,
    "upper-case SHA-256": b"A" * 64,
    "63 digits": b"0" * 63,
    "plain text": b"pvc-1234",
    "hidden": b".tmp",
    "line break": b"a\nb",
    "bytes beyond UTF-8": b"\xff\xfe\xfd",
    "quotes": b"'\"; DROP TABLE volumes; --",
}


class Names(SaidTest):
    """Directory names of both layouts, in both roots."""

    def roots(self, node):
        crust = node.root / "run/crust"
        crust.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"kata": kata(node), "crust": crust}

    def make(self, root, name, content=None):
        path = os.fsencode(root) + b"/" + os.fsencode(name)
        os.mkdir(path, 0o700)
        file = os.open(path + b"/mountInfo.json", os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, content or text())
        os.close(file)

    def test_names_that_are_none(self):
        for layout in ("kata", "crust"):
            node = self.node()
            root = self.roots(node)[layout]
            for name in NAMES.values():
                self.make(root, name)
            self.make(root, encode("/a/good"))
            node.start()
            sql = ("SELECT hex(key) AS key, target_path, status, state, reason, layout,"
                   " hex(problem) AS problem FROM audit_volumes")
            node.wait(lambda: len(node.query(sql)) == len(NAMES) + 1, 60, "all rows")
            node.wait(lambda: all(row["state"] != "unknown" for row in node.query(sql)), 60,
                      "all to be decided")
            rows = {bytes.fromhex(row["key"]): row for row in node.query(sql)}
            for name, key in NAMES.items():
                with self.subTest(name, layout=layout):
                    row = rows[key]
                    problem = bytes.fromhex(row["problem"]).decode()
                    self.assertIsNone(row["target_path"])
                    self.assertEqual(row["layout"], layout)
                    self.assertEqual((row["status"], row["state"], row["reason"]),
                                     ("invalid", "unmanaged", "invalid_mount_info"))
                    self.assertIn("directory name ", problem)
                    self.assertTrue(problem.isprintable(), problem)
            self.assertEqual(rows[encode("/a/good").encode()]["status"], "present")
            code, body = curl(node, "/v1/volumes")
            self.assertEqual(code, 200)
            self.assertEqual(len(json.loads(body)), len(rows))
            self.assertEqual(len(json.loads(node.crustctl("volumes", "-o", "json").stdout)),
                             len(rows))
            node.crustctl("volumes")
            node.stop()

    def test_both_kinds_of_names_in_both_roots(self):
        node = self.node()
        roots = self.roots(node)
        paths = {layout: f"/volumes/{layout}" for layout in roots}
        for layout, root in roots.items():
            self.make(root, encode(paths[layout]))
            self.make(root, node.directory(f"/hidden/{layout}", "crust").name)
        node.start()
        node.wait(lambda: len(node.query("SELECT 1 FROM audit_volumes WHERE state = 'unbound'")) == 4,
                  60, "four volumes")
        for layout, path in paths.items():
            self.assertEqual(node.volume(path)["layout"], layout)
            key = node.directory(f"/hidden/{layout}", "crust").name
            row, = node.query(f"SELECT * FROM audit_volumes WHERE key = '{key}'")
            self.assertIsNone(row["target_path"])
            self.assertEqual((row["layout"], row["status"]), (layout, "present"))
            self.assertEqual(json.loads(node.crustctl("volumes", "-o", "json").stdout)
                             .__len__(), 4)
            self.assertIn(key[:12], node.crustctl("volume", key).stdout)

    def test_one_volume_in_both_roots(self):
        node = self.node()
        roots = self.roots(node)
        path = publish_path("pv-both")
        for root in roots.values():
            self.make(root, encode(path))
        node.start()
        node.wait_for(path, "unbound", layout="both")
        first = node.volume(path)["volume_id"]
        shutil.rmtree(roots["kata"] / encode(path))
        node.wait_for(path, "unbound", layout="crust", volume_id=first)
        self.make(roots["kata"], encode(path))
        node.wait_for(path, "unbound", layout="both", volume_id=first)
        (roots["crust"] / encode(path) / "mountInfo.json").write_text("{")
        row = node.wait_for(path, "unmanaged", "invalid_mount_info", volume_id=first)
        self.assertIn("mountInfo.json", row["problem"])
        shutil.rmtree(roots["crust"] / encode(path))
        node.wait_for(path, "unbound", layout="kata", volume_id=first, problem=None)
        shutil.rmtree(roots["kata"] / encode(path))
        node.wait_for(path, "unmanaged", "none", status="removed", volume_id=first)
        self.assertEqual(node.query("SELECT count(*) AS n FROM audit_volumes"), [{"n": 1}])

    def test_removed_and_staged_again(self):
        node = self.node()
        node.start()
        path = publish_path("pv-again")
        node.stage(path, "/dev/first")
        first = node.wait_for(path, "unbound")
        node.unstage(path)
        gone = node.wait_for(path, "unmanaged", "none", status="removed")
        self.assertEqual(gone["volume_id"], first["volume_id"])
        self.assertEqual(gone["device"], "/dev/first")
        self.assertIsNotNone(gone["removed_at"])
        node.stage(path, "/dev/second")
        second = node.wait_for(path, "unbound", status="present")
        self.assertNotEqual(second["volume_id"], first["volume_id"])
        self.assertEqual(second["device"], "/dev/second")

    def test_a_directory_that_is_renamed_or_replaced(self):
        node = self.node()
        node.start()
        old, new = publish_path("pv-old"), publish_path("pv-new")
        node.stage(old, "/dev/first")
        first = node.wait_for(old, "unbound")
        node.directory(old).rename(node.directory(new))
        node.wait_for(old, "unmanaged", "none", status="removed")
        moved = node.wait_for(new, "unbound", status="present")
        self.assertNotEqual(moved["volume_id"], first["volume_id"])
        aside = node.root / "aside"
        node.directory(new).rename(aside)
        (node.root / "next").mkdir(mode=0o700)
        write_content(node.root / "next", text(device="/dev/next"))
        (node.root / "next").rename(node.directory(new))
        node.wait_for(new, "unbound", status="present", device="/dev/next")
        node.wait_for(new, "unbound", device="/dev/next")
        self.assertNotEqual(node.volume(new)["volume_id"], moved["volume_id"])

    def test_written_in_place_and_by_rename(self):
        node = self.node()
        node.start()
        path = publish_path("pv-written")
        directory = node.stage(path, "/dev/first")
        first = node.wait_for(path, "unbound", device="/dev/first")["volume_id"]
        node.stage(path, "/dev/second")
        node.wait_for(path, "unbound", device="/dev/second", volume_id=first)
        temporary = directory / ".mountInfo.json.tmp"
        temporary.write_bytes(text(device="/dev/third"))
        temporary.chmod(0o600)
        temporary.rename(directory / "mountInfo.json")
        node.wait_for(path, "unbound", device="/dev/third", volume_id=first)


class Roots(SaidTest):
    """The watched directory itself comes, goes and is covered."""

    def test_missing_at_start(self):
        node = self.node({"resize.sweep_seconds": 3600})
        shutil.rmtree(node.root / "run/kata-containers")
        node.start()
        self.assertEqual(node.query("SELECT * FROM audit_volumes"), [])
        path = publish_path("pv-late")
        node.stage(path, "/dev/late")
        node.wait_for(path, "unbound")
        self.assertFalse((node.root / "run/crust").exists())

    def test_replaced(self):
        node = self.node({"resize.sweep_seconds": 3600})
        node.start()
        first, second = publish_path("pv-first"), publish_path("pv-second")
        node.stage(first, "/dev/first")
        node.wait_for(first, "unbound")
        kata(node).rename(node.root / "aside")
        node.wait_for(first, "unmanaged", "none", status="removed")
        node.stage(second, "/dev/second")
        node.wait_for(second, "unbound")
        shutil.rmtree(node.root / "run/kata-containers")
        node.wait_for(second, "unmanaged", "none", status="removed")
        (node.root / "run/kata-containers/shared").mkdir(parents=True, mode=0o700)
        (node.root / "aside").rename(kata(node))
        row = node.wait_for(first, "unbound", status="present")
        self.assertEqual(row["device"], "/dev/first")

    def test_mounted_over(self):
        """In a mount namespace of the daemon's own, so that only it sees the mount."""
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs to make a mount namespace")
        node = self.node(wrapper=["unshare", "--mount", "--propagation", "private"])
        under, over = publish_path("pv-under"), publish_path("pv-over")
        node.stage(under, "/dev/under")
        node.start()
        node.wait_for(under, "unbound")
        inside = ["nsenter", "--target", str(node.process.pid), "--mount"]

        def enter(*command):
            subprocess.run([*inside, *map(str, command)], check=True, capture_output=True)

        enter("mount", "-t", "tmpfs", "-o", "mode=0700", "none", kata(node))
        node.wait_for(under, "unmanaged", "none", status="removed")
        hidden = kata(node) / encode(over)
        enter("sh", "-c", 'umask 077; mkdir "$1" && printf %s "$2" >"$1/mountInfo.json"', "sh",
              hidden, text(device="/dev/over").decode())
        node.wait_for(over, "unbound")
        enter("umount", kata(node))
        node.wait_for(over, "unmanaged", "none", status="removed")
        node.wait_for(under, "unbound", status="present")

    def test_thousand_at_once_while_one_is_bad(self):
        """A flood of directories loses none, and a bad one among them holds up nobody."""
        node = self.node()
        node.start()
        for number in range(1000):
            node.stage(f"/flood/{number}", f"/dev/flood{number}",
                       text="{" if number == 500 else None)
        sql = "SELECT status, count(*) AS n FROM audit_volumes GROUP BY status ORDER BY status"
        wanted = [{"status": "invalid", "n": 1}, {"status": "present", "n": 999}]
        with contextlib.suppress(Exception):
            node.wait(lambda: node.query(sql) == wanted, 120, "all to be recorded")
        self.assertEqual(node.query(sql), wanted)


if __name__ == "__main__":
    unittest.main()
