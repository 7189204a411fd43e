#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py PROGRAM... - prints a CycloneDX document: these programs, and what each is made of.

Shared libraries are read from the programs; what is linked statically, or compiled in as a header, is listed
below, because no program tells it. Both are named by the Debian package that the file came from, with its version.
The same programs and packages make the same document; its date is debian/changelog's.

sbom.py --built-using PROGRAM...: the static libraries' source packages, for debian/control.
"""

import email.utils
import hashlib
import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
STATIC = {"crust-guest-agent": ("libprotobuf-c.a", "libev.a", "libm.a", "libc.a"), "crust-qemu-system": ("libc.a",)}
HEADERS = {"crustd": ("/usr/include/uthash.h",)}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def package_of(path):
    """The installed package that a file is of. dpkg knows a file by one of its names: /lib may be /usr/lib."""
    path = str(pathlib.Path(path).resolve())
    for name in (path, path.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            name = done.stdout.split(": ")[0].split(", ")[0]
            break
    else:
        sys.exit(f"{path} is of no package")
    fields = output("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${source:Package}\t"
                    "${source:Version}", name).split("\t")
    return dict(zip(("package", "version", "architecture", "source", "source_version"), fields))


def shared_libraries(program):
    """Those that it names itself, by the linker's hand or for dlopen(3). What these need is their packages' business."""
    needed = sorted(set(re.findall(rb"(?<=\0)lib[a-z0-9_+-]+\.so\.[0-9]+(?=\0)", program.read_bytes())))
    cache = dict(re.findall(r"^\s*(\S+) \(.*\) => (\S+)$", output("/sbin/ldconfig", "-p"), re.M)[::-1])
    return [cache[name.decode()] for name in needed]


def find(table, program):
    """What a table has for a program; crust-qemu's name goes on with an architecture."""
    return next((value for name, value in table.items() if program.name.startswith(name)), ())


def parts(program):
    """The packages in it or needed by it."""
    archives = [output("gcc", f"-print-file-name={name}").strip() for name in find(STATIC, program)]
    files = archives or shared_libraries(program)
    return [package_of(path) for path in (*files, *HEADERS.get(program.name, ()))]


def built_using(programs):
    used = {(one["source"], one["source_version"]) for program in programs if find(STATIC, program)
            for one in parts(program)}
    return ", ".join(f"{source} (= {version})" for source, version in sorted(used))


def document(programs):
    changelog = (REPOSITORY / "debian/changelog").read_text()
    version = re.match(r"\S+ \((.*?)\)", changelog)[1]
    date = email.utils.parsedate_to_datetime(re.search(r"^ -- .*>  (.*)$", changelog, re.M)[1])
    components, dependencies = {}, []
    for program in programs:
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        reference = f"program:{program.name}:{digest[:16]}"
        components[reference] = {
            "type": "application", "bom-ref": reference, "name": program.name, "version": version,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [{"license": {"id": "Apache-2.0"}}]}
        references = set()
        for one in parts(program):
            name = f"pkg:deb/debian/{one['package']}@{one['version'].replace(':', '%3A').replace('+', '%2B')}" \
                   f"?arch={one['architecture']}"
            components[name] = {"type": "library", "bom-ref": name, "name": one["package"],
                                "version": one["version"], "purl": name}
            references.add(name)
        dependencies.append({"ref": reference, "dependsOn": sorted(references)})
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"timestamp": date.isoformat(),
                         "component": {"type": "application", "name": "crustd", "version": version}},
            "components": [components[key] for key in sorted(components)],
            "dependencies": dependencies}


def main():
    programs = [pathlib.Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    if "--built-using" in sys.argv:
        print(built_using(programs))
    else:
        print(json.dumps(document(programs), indent=2))


if __name__ == "__main__":
    main()
