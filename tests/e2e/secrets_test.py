# SPDX-License-Identifier: Apache-2.0
"""Mount options that carry secrets: what crustd shows and keeps of a volume that a CSI driver wrote with
them, and what becomes of those that release 0.1.0 stored."""

import contextlib
import json
import pathlib
import sqlite3

from cleanups import CleanupTest
from node import REPOSITORY
from scratch_node import ScratchNodeTest, curl

SECRET = "hunter2"
OPTIONS = ["rw", f"username=joe,password={SECRET}", f"pass={SECRET}", f"credentials=/etc/{SECRET}",
           f"secret={SECRET}", f"encryptionKey={SECRET}"]
SHOWN = ["rw", "username=joe,password=[redacted]", "pass=[redacted]", "credentials=[redacted]",
         "secret=[redacted]", "encryptionKey=[redacted]"]
METADATA = {"S3-Password": SECRET, "mountOptions": f"ro,pass={SECRET}", "size": "1"}


def files_of_database(node):
    return sorted(node.path("/var/lib/crustd").iterdir())


class Observed(CleanupTest):
    """Metadata that a driver wrote as a file, through its life until it is cleaned up."""

    def assert_not_disclosed(self, node, path):
        for arguments in (("volumes",), ("volume", path), ("explain", path), ("journal",),
                          ("cleanups",), ("status",)):
            for form in ((), ("-o", "json")):
                said = node.crustctl(*form, *arguments, check=False)
                self.assertNotIn(SECRET, said.stdout + said.stderr, arguments)
        for page in ("/v1/volumes", "/v1/resizes", "/v1/volumes/1/explain", "/v1/journal", "/v1/cleanups", "/metrics"):
            self.assertNotIn(SECRET, curl(node, page)[1].decode(), page)
        self.assertNotIn(SECRET, node.log.read_text())
        for file in files_of_database(node):
            self.assertNotIn(SECRET.encode(), file.read_bytes(), file)

    def test_is_redacted_everywhere(self):
        node, path = self.published(fstype="cifs", options=OPTIONS, metadata=METADATA)
        node.start("--log-level", "debug")
        node.wait_for(path, "unbound")
        row = node.volume(path)
        self.assertEqual(json.loads(row["options"]), SHOWN)
        self.assertEqual(json.loads(row["metadata"]),
                         {"S3-Password": "[redacted]", "mountOptions": "ro,pass=[redacted]",
                          "size": "1"})
        self.assert_not_disclosed(node, path)

        vmm = self.use(node, path)
        node.wait_alive()
        self.end_use(node, vmm)
        self.unpublish(node)
        removed = self.wait_removed(node, path)
        self.assertEqual(json.loads(removed["mount_info"])["options"], SHOWN)
        self.assert_not_disclosed(node, path)
        node.crustctl("restore", str(removed["cleanup_id"]))  # the driver's own bytes
        self.assertIn(SECRET.encode(), self.bytes_of(node, path)["mountInfo.json"])


class Stored(ScratchNodeTest):
    """The database of release 0.1.0."""

    def test_is_scrubbed_by_an_upgrade(self):
        node = self.node()
        database = pathlib.Path(node.path("/var/lib/crustd/crustd.db"))
        dump = REPOSITORY / "tests/unit/store/data/0.1.0.sql"
        connection = sqlite3.connect(database)
        connection.executescript(dump.read_text())
        connection.close()
        aside = database.with_name("crustd.db.corrupt-1")
        aside.write_bytes(b"set aside by 0.1.0")
        self.assertIn(SECRET.encode(), database.read_bytes())
        node.start()
        with contextlib.closing(sqlite3.connect(database)) as connection:
            self.assertNotIn(SECRET, "\n".join(connection.iterdump()))
        rows = node.query("SELECT detail FROM audit_journal WHERE kind = 'store_upgraded'")
        self.assertEqual([json.loads(row["detail"])["redacted"] for row in rows], [3])
        said = node.log.read_text()
        self.assertIn("secrets redacted in 3 rows", said)
        self.assertIn("corrupt-N were set aside by an earlier release and may hold secrets", said)
        self.assertEqual(aside.read_bytes(), b"set aside by 0.1.0")
        self.assertEqual(len(node.query("SELECT * FROM audit_resizes")), 1)  # history is kept
