# SPDX-License-Identifier: Apache-2.0
"""A runtime's tool on a node (runtime-cli), and what is asked of crustd so that it is run."""

import json
import pathlib
import subprocess
import tempfile

FAKE = pathlib.Path(__file__).resolve().parent.parent / "fakes/runtime_tool.c"
TOOL = "/opt/kata/bin/tool"


def put_tool(node):
    """Where kata-deploy puts kata-runtime, and linked statically, as that is."""
    with tempfile.TemporaryDirectory() as scratch:
        tool = pathlib.Path(scratch, "tool")
        subprocess.run(["cc", "-static", "-pthread", "-o", tool, FAKE], check=True)
        node.put(tool, TOOL)


def stats_of(node, volume_path):
    """As a driver asks by HTTP, on the node."""
    return json.loads(node.output(
        ["curl", "--silent", "--unix-socket", "/run/crustd/http.sock",
         f"http://crustd/direct-volume/stats?path={volume_path}"]))


def tool_runs(node):
    """The kinds of the journal's lines about runs, oldest first."""
    return [row["kind"] for row in node.query(
        "SELECT kind FROM audit_journal WHERE kind LIKE 'runtime_cli%' ORDER BY seq")]
