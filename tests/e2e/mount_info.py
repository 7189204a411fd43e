# SPDX-License-Identifier: Apache-2.0
"""mountInfo.json as a CSI driver writes it, and the directory below which Kata looks for it."""

import json

from node import VOLUMES, private

GOOD = {"volume-type": "block", "device": "/dev/good", "fstype": "xfs",
        "metadata": {"fsGroup": "100"}, "options": ["noatime"]}


def text(**changes):
    return json.dumps(GOOD | changes).encode()


def write_content(directory, content):
    with open(directory / "mountInfo.json", "wb", opener=private) as file:
        if content is None:
            file.truncate(1 << 40)
        else:
            file.write(content)


def kata(node):
    return node.root / VOLUMES
