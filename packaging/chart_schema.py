#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chart_schema.py [--check] - writes the keys of crustd.conf.example into the chart's schema for `config`.

With --check it only compares, and fails if the schema lacks a key or has another one.
"""

import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "config/crustd.conf.example"
SCHEMA = REPOSITORY / "config/helm/crustd/values.schema.json"
CONFIG = re.compile(r'^    "config": \{\n.*?^    \},\n', re.M | re.S)


def keys():
    """The names of keys by section, in the file's order."""
    found = {}
    for section, key in re.findall(r"^(?:\[(\w+)\]|#(\w+) =.*)$", EXAMPLE.read_text(), re.M):
        if section:
            current = found.setdefault(section, [])
        else:
            current.append(key)
    return found


def config_schema():
    sections = ",\n".join(
        f'        "{section}": {{\n          "type": "object", "additionalProperties": false,\n          "properties": {{\n'
        + ",\n".join(f'            "{key}": {{"$ref": "#/definitions/value"}}' for key in names)
        + "\n          }\n        }" for section, names in keys().items())
    return ('    "config": {\n      "type": "object", "additionalProperties": false,\n      "properties": {\n'
            f"{sections}\n      }}\n    }},\n")


def main():
    before = SCHEMA.read_text()
    after, count = CONFIG.subn(lambda _: config_schema(), before)
    assert count == 1, SCHEMA
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"{SCHEMA}: its keys are not those of {EXAMPLE.name}; run packaging/chart_schema.py" if after != before else 0)
    SCHEMA.write_text(after)


if __name__ == "__main__":
    main()
