#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-docs.py [TREE] - refuses references to pages and files that are not in the repository.

Looks at every text file that git knows (in a tree without git: at every file):
  * relative links of Markdown pages, with the heading that they name;
  * paths of pages and scripts in text and comments: `docs/x.md`, `tests/y.py`; with the heading, if `docs/x.md#z` names one;
  * paths of sources in pages: `store/schema.c`;
  * names of pages alone (`states.md`), which must be below docs/ or in the root;
  * in architecture.md and maintaining.md: functions (`decide()`), and sources without their folder (`decide.c`).
It also holds the glossary to its form: at most 40 words, in alphabetical order.
"""

import os
import pathlib
import re
import subprocess
import sys

GLOSSARY_WORDS = 40
TEXT = {".md", ".c", ".h", ".py", ".sh", ".proto", ".yaml", ".yml", ".conf", ".toml", ".service", ".js", ".go", ""}
# Inputs of tests, what others' tools write, and this check's own examples: not our references.
SKIPPED = re.compile(r"(^|/)(corpus|data|build|\.git)/|\.pb\.go$|^tests/check-docs")

LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
PAGE_PATH = re.compile(r"(?<![\w./<-])((?:docs|tests|config)/[\w./-]+\.(?:md|py|sh|yaml))(?![\w/])")
SOURCE_PATH = re.compile(r"(?<![\w./<-])((?:agent-client|api|config|crust-qemu|crustctl|doctor|guest-agent|hypervisor|lib|"
                         r"model|observe|reconciler|store|tests|watch)/[\w./-]*\.(?:[ch]|proto))(?![\w/])")
PAGE_NAME = re.compile(r"(?<![\w./<*-])([A-Za-z][\w-]*\.md)(?![\w/])")
HEADING = re.compile(r"#([\w-]+)")
PLACEHOLDER = re.compile(r"NAME|examplevmm")


def files(tree):
    if (tree / ".git").exists():
        names = subprocess.run(["git", "-C", str(tree), "ls-files"], check=True, capture_output=True,
                               text=True).stdout.splitlines()
    else:
        names = [str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()]
    for name in sorted(names):
        path = tree / name
        if path.suffix in TEXT and not SKIPPED.search(name) and path.is_file():
            yield name, path


def anchor(heading):
    """GitHub's rule: lower case, punctuation gone, blanks as hyphens."""
    heading = re.sub(r"`|\[([^\]]*)\]\([^)]*\)", lambda m: m.group(1) or "", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def without_code(text):
    """Blanks out fenced and indented code, keeping the line numbers."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced or line.startswith("    ") else line)
    return "\n".join(lines)


def anchors(page):
    found = set()
    for line in without_code(page.read_text()).split("\n"):
        if line.startswith("#"):
            found.add(anchor(line.lstrip("#")))
    return found


def link_faults(name, path, text):
    for match in LINK.finditer(without_code(text)):
        target, _, heading = match.group(1).partition("#")
        line = text.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z]+:", match.group(1)):
            continue
        page = pathlib.Path(os.path.normpath(path.parent / target)) if target else path
        if not page.exists():
            yield f"{name}:{line}: links to {target}, which is not there"
        elif heading and page.suffix == ".md" and heading not in anchors(page):
            yield f"{name}:{line}: links to {match.group(1)}: there is no such heading"


def name_faults(name, path, text, tree):
    pages = {p.name for p in [*tree.glob("*.md"), *tree.glob("docs/**/*.md"), *path.parent.glob("*.md")]}

    def is_file(target):
        return PLACEHOLDER.search(target) or (tree / target).exists() or (path.parent / target).exists()

    for pattern, is_there in ((PAGE_PATH, is_file),
                              (SOURCE_PATH, is_file if path.suffix == ".md" else lambda t: True),
                              (PAGE_NAME, lambda t: t in pages)):
        for match in pattern.finditer(text):
            target = match.group(match.lastindex or 0)
            line = text.count("\n", 0, match.start()) + 1
            if not is_there(target):
                yield f"{name}:{line}: names {target}, which is not there"
                continue
            heading = HEADING.match(text, match.end())
            if heading and (tree / target).suffix == ".md" and (tree / target).exists() \
                    and heading.group(1) not in anchors(tree / target):
                yield f"{name}:{line}: names {target}#{heading.group(1)}: there is no such heading"


def code_faults(tree):
    sources = [path for _, path in files(tree) if path.suffix in (".c", ".h")]
    words = set().union(*(re.findall(r"\w+", path.read_text(errors="replace")) for path in sources), ())
    names = {path.name for path in sources}
    for name in ("docs/architecture.md", "docs/maintaining.md"):
        text = (tree / name).read_text() if (tree / name).exists() else ""
        for match in re.finditer(r"`(?:(\w+)\(\)|([\w-]+\.[ch]))`", text):
            function, source = match.groups()
            if not PLACEHOLDER.search(match.group()) and (function not in words if function else source not in names):
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: names {match.group()}, which is not there"


def glossary_faults(tree):
    page = tree / "docs/glossary.md"
    if not page.exists():
        return
    words = [m.group(1) for m in re.finditer(r"^\| ([^|]+) \|", page.read_text(), re.M)]
    words = [w for w in words if w != "word"]
    if len(words) > GLOSSARY_WORDS:
        yield f"docs/glossary.md: {len(words)} words, at most {GLOSSARY_WORDS}"
    if words != sorted(words, key=str.lower):
        yield "docs/glossary.md: not in alphabetical order"


def faults(tree):
    for name, path in files(tree):
        text = path.read_text(errors="replace")
        if path.suffix == ".md":
            yield from link_faults(name, path, text)
        yield from name_faults(name, path, text, tree)
    yield from code_faults(tree)
    yield from glossary_faults(tree)


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(faults(tree.resolve()))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
