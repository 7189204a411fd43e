#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man_pages.py DIRECTORY - writes crustd(8), crustctl(1), crust-sim(1), crustd.conf(5) and crust-guest-agent(8)
there.

Everything in them but a few sentences comes from docs/reference, whose pages tests compare with the programs.
"""

import email.utils
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = REPOSITORY / "docs/reference"
PROGRAMS = (REFERENCE / "programs.md").read_text()
KEYS = (REFERENCE / "configuration.md").read_text()
# Of the version, so that the same sources make the same pages.
RELEASED = re.search(r"^ -- .*>  (.*)$", (REPOSITORY / "debian/changelog").read_text(), re.M)[1]
DATE = email.utils.parsedate_to_datetime(RELEASED).strftime("%Y-%m-%d")


# -- troff

def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("…", "...")


def protect(line):
    """A line that begins with a dot is text all the same."""
    return "\\&" + line if line.startswith((".", "\\(aq")) else line


def inline(text):
    """A piece of Markdown, on one line."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    parts = re.split(r"`([^`]*)`|\*\*([^*]+)\*\*|\*([^*]+)\*", text)
    out = escape(parts[0])
    for index in range(1, len(parts), 4):
        code, bold, italic, rest = parts[index:index + 4]
        out += f"\\fI{escape(italic)}\\fR" if italic else f"\\fB{escape(code or bold)}\\fR"
        out += escape(rest)
    return protect(out)


def entry(term, text):
    return f".TP\n.B {escape(term)}\n{text}\n"


def literal(text):
    return ".PP\n.nf\n.RS\n" + "\n".join(protect(escape(line)) for line in text.split("\n")) + "\n.RE\n.fi\n"


# -- the reference

def section(page, heading):
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.M | re.S)
    assert found, heading
    return found[1]


def table(text):
    """Rows as dictionaries, by the words of the first one."""
    lines = [line for line in text.split("\n") if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [dict(zip(cells[0], row)) for row in cells[2:]]


def help_text(name):
    found = re.search(rf"<!-- help: {re.escape(name)} -->\n```text\n(.*?)```", PROGRAMS, re.S)
    assert found, name
    return found[1]


def commands():
    """crustctl's, with operands, summary, and the lines of a help of its own."""
    own = set(re.findall(r"<!-- help: crustctl ([^>]+) -->", PROGRAMS))
    pattern = r"^  ([a-z][a-z-]*(?: [a-z-]+)?)((?: [A-Z_]+)*)  +(\S.*(?:\n {31}.*)*)"
    for name, operands, summary in re.findall(pattern, help_text("crustctl"), re.M):
        more = help_text(f"crustctl {name}").split("\n", 3)[3] if name in own else ""
        yield name, operands.strip(), summary, more


# -- from the one to the other

def paragraphs(text):
    """A help text: indented terms with what they mean, and plain sentences."""
    out, sentences = "", []
    lines = text.split("\n") + [""]

    def flush():
        nonlocal out
        if sentences:
            out += f".PP\n{protect(escape(' '.join(sentences)))}\n"
            sentences.clear()

    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        term = re.match(r"  (-\S.*?|[a-z]\S*)(?:  +(.*))?$", line)
        if not term:
            if line.strip():
                sentences.append(line.strip())
            else:
                flush()
            continue
        flush()
        meaning = [term[2]] if term[2] else []
        while lines[index].startswith("     "):
            meaning.append(lines[index].strip())
            index += 1
        out += entry(term[1], protect(escape(" ".join(meaning))))
    return out


def parts_of_help(name):
    """What a help text says before its options, and from there on; usage and crustctl's commands have places of
    their own."""
    text = re.sub(r"\A[Uu]sage:.*\n(?: {7}.*\n)*", "", help_text(name))
    text = re.sub(r"\n(?:  [a-z].*\n(?: {31}.*\n)*)+", "", text)
    # Signals and exit codes have sections of their own.
    text = re.sub(r"^(Signals|Exit codes): .*", "", text, flags=re.M | re.S)
    start = re.search(r"^  -", text, re.M).start()
    return text[:start], text[start:]


def description(name):
    return paragraphs(parts_of_help(name)[0])


def options_of(name):
    return paragraphs(parts_of_help(name)[1])


def synopsis(name):
    usage = re.match(r"[Uu]sage: (.*(?:\n {7}\S.*)*)", help_text(name))[1]
    return "\n.br\n".join(f".B {escape(line.strip())}" for line in usage.split("\n")) + "\n"


def exit_codes(program):
    rows = table(section(PROGRAMS, "Exit codes"))
    return "".join(entry(row["code"], inline(row[program])) for row in rows if row[program])


def environment(program):
    rows = table(section(PROGRAMS, "Environment"))
    return "".join(entry(row["variable"].strip("`"), inline(row["what it does"])) for row in rows
                   if program in row["read by"].split(", "))


def signals():
    return "".join(entry(row["signal"], inline(row["what crustd does"]))
                   for row in table(section(PROGRAMS, "crustd")))


def command_list():
    out = ""
    for name, operands, summary, more in commands():
        out += entry(f"{name} {operands}".strip(), protect(escape(" ".join(summary.split()))))
        out += f".RS\n{paragraphs(more)}.RE\n" if more else ""
    return out


def keys():
    out, current = "", None
    for row in table(KEYS[KEYS.index("<!-- keys -->"):]):
        name, key = row["key"].strip("`").split(".")
        if name != current:
            out += f".SS [{name}]\n"
            current = name
        values = f"; values: {inline(row['values'])}" if row["values"] else ""
        out += entry(key, f"{inline(row['type'])}, default {inline(row['default'])}{values}; {inline(row['applied by'])}"
                     f"\n.br\n{inline(row['what it sets'])}")
    return out


def intro_of_keys():
    """The page's first paragraph and its list; the sentence about the repository's tests is not for here."""
    text = KEYS.split("\n", 1)[1].split("`tests/")[0]
    first, *bullets = re.split(r"^\* ", text, flags=re.M)
    return f".PP\n{inline(first)}\n" + "".join(f".IP \\(bu 2\n{inline(bullet)}\n" for bullet in bullets)


FILES = "".join(entry(path, text) for path, text in (
    ("/etc/crustd/crustd.conf", "the configuration, crustd.conf(5)"),
    ("/var/lib/crustd/crustd.db", "the database; its audit views are a contract"),
    ("/run/crustd/crust.sock, /run/crustd/http.sock", "the sockets of the gRPC services and of the HTTP API")))

PAGES = {
    "crustd.8": ("resizes the volumes of micro\\-VMs and cleans up their metadata", (
        ("SYNOPSIS", lambda: synopsis("crustd")),
        ("DESCRIPTION", lambda: description("crustd")),
        ("OPTIONS", lambda: options_of("crustd")),
        ("SIGNALS", signals),
        ("EXIT STATUS", lambda: exit_codes("crustd")),
        ("ENVIRONMENT", lambda: environment("crustd")),
        ("FILES", lambda: FILES))),
    "crustctl.1": ("shows what crustd knows about the volumes of this node, and acts on them", (
        ("SYNOPSIS", lambda: synopsis("crustctl")),
        ("DESCRIPTION", lambda: f"{description('crustctl')}.PP\n"
         + inline(section(PROGRAMS, "crustctl").split("```")[2].split("<!--")[0]) + "\n"),
        ("COMMANDS", command_list),
        ("OPTIONS", lambda: options_of("crustctl")),
        ("EXIT STATUS", lambda: exit_codes("crustctl")),
        ("ENVIRONMENT", lambda: environment("crustctl")),
        ("EXAMPLES", lambda: literal(
            "crustctl doctor                    # what keeps this node from resizing volumes\n"
            "crustctl volumes --stalled         # resizes that need attention\n"
            "crustctl explain pvc-orders        # why, and what to do about it")))),
    "crust-sim.1": ("runs a CSI driver\\(aqs tests against crustd, without Kata", (
        ("SYNOPSIS", lambda: ".B crust\\-sim\n[OPTION]... [COMMAND...]\n"),
        ("DESCRIPTION", lambda: literal(help_text("crust-sim"))),
        ("EXIT STATUS", lambda: f".PP\n{inline(section(PROGRAMS, 'crust-sim').split('<!--')[0])}\n"))),
    "crustd.conf.5": ("the configuration of crustd", (
        ("DESCRIPTION", intro_of_keys),
        ("KEYS", keys),
        ("EXAMPLE", lambda: literal("[resize]\nmode = observe\n\n[metrics]\nlisten = 0.0.0.0:9825")),
        ("FILES", lambda: FILES))),
    "crust-guest-agent.8": ("grows the file systems of a virtual machine\\(aqs volumes", (
        ("SYNOPSIS", lambda: synopsis("crust-guest-agent")),
        ("DESCRIPTION", lambda: description("crust-guest-agent")),
        ("OPTIONS", lambda: options_of("crust-guest-agent")),
        ("PROTOCOL", lambda: f".PP\n{inline(section(PROGRAMS, 'crust-guest-agent').rsplit('```', 1)[1])}\n"),
        ("EXIT STATUS", lambda: exit_codes("crust-guest-agent --once")))),
}


def page(name):
    program, _, number = name.rpartition(".")
    summary, sections = PAGES[name]
    manual = {"1": "User Commands", "5": "File Formats", "8": "System Administration"}[number]
    out = (f'.\\" Made by packaging/man_pages.py from docs/reference.\n.TH {program.upper()} {number} {DATE} crustd "{manual}"\n'
           f".SH NAME\n{escape(program)} \\- {summary}\n")
    for heading, text in sections:
        out += f".SH {heading}\n{text().removeprefix('.PP' + chr(10))}"
    others = [one.rpartition(".") for one in PAGES if one != name]
    return out + ".SH SEE ALSO\n" + " ,\n".join(f".BR {escape(one)} ({digit})" for one, _, digit in others) + "\n"


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (directory / name).write_text(page(name))


if __name__ == "__main__":
    main()
