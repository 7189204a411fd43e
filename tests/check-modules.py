#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-modules.py [TREE [BUILD]] - no two modules of the daemon depend on each other.

tests/modules.txt assigns every file of the daemon to a module. Two graphs are built over the modules, one of
#includes, one of symbols: an object of module A that needs a symbol defined in module B makes A depend on B. Neither
may have a cycle. A callback is no dependency of the module that calls it, because the pointer comes from outside.

A header that the table lists as private is included by its own module only. `cycle` lines allow what is known; one
that lists more than there is left is a fault too, so that the list only shrinks.
"""
import fnmatch
import os
import re
import subprocess
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


class Table:
    def __init__(self, path):
        self.rules, self.private, self.cycles, self.folders = [], [], {'includes': [], 'calls': []}, []
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                words = line.split('#')[0].split()
                if not words:
                    continue
                if words[0] == 'folders':
                    self.folders += words[1:]
                elif words[0] == 'private':
                    self.private += words[1:]
                elif words[0] == 'cycle':
                    self.cycles[words[1]].append(set(words[2:]))
                else:
                    self.rules += [(pattern, words[0]) for pattern in words[1:]]

    def module_of(self, path):
        """The first rule that fits; None where none does."""
        return next((module for pattern, module in self.rules if fnmatch.fnmatchcase(path, pattern)), None)

    def is_private(self, path):
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.private)


def find_sources(tree, folders):
    for folder in folders:
        for parent, _, names in os.walk(os.path.join(tree, folder)):
            for name in sorted(names):
                if name.endswith(('.c', '.h')):
                    yield os.path.relpath(os.path.join(parent, name), tree)


def read_includes(tree, table, sources, faults):
    """{(module, module): example} of the #includes between modules."""
    edges = {}
    for path in sources:
        with open(os.path.join(tree, path), encoding='utf-8') as source:
            names = INCLUDE.findall(source.read())
        for name in names:
            ours, theirs = table.module_of(path), table.module_of(name)
            if not theirs or ours == theirs:
                continue
            edges.setdefault((ours, theirs), f'{path} includes {name}')
            if table.is_private(name):
                faults.append(f'{path}: includes "{name}", which is private to the module {theirs}')
    return edges


def read_symbols(build, objects):
    """[(path, is_defined, symbol)] of all objects."""
    # All at once: a process for each object is slow.
    out = subprocess.run(['nm', '-A', '-g', *objects], cwd=build, stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in out.splitlines():
        path, rest = line.split(':', 1)
        kind, symbol = rest.split()[-2:]
        yield path, kind not in 'Uw', symbol


def read_calls(build, table, sources):
    """{(module, module): example} of the symbols that one module needs and another defines."""
    objects = {path[:-2] + '.o': path for path in sources if path.endswith('.c')}
    built = [name for name in objects if os.path.exists(os.path.join(build, name))]
    if not built:
        sys.exit(f'{build} has no objects: make first')
    symbols = list(read_symbols(build, built))
    defined = {symbol: path for path, is_defined, symbol in symbols if is_defined}
    edges = {}
    for path, is_defined, symbol in symbols:
        if is_defined or symbol not in defined:
            continue
        ours, theirs = table.module_of(objects[path]), table.module_of(objects[defined[symbol]])
        if ours != theirs:
            edges.setdefault((ours, theirs), f'{objects[path]} needs {symbol} of {objects[defined[symbol]]}')
    return edges


def find_cycles(edges):
    """The sets of modules that all reach each other."""
    after = {}
    for ours, theirs in edges:
        after.setdefault(ours, set()).add(theirs)

    def reachable(module):
        seen, left = set(), [module]
        while left:
            new = after.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reach = {module: reachable(module) for module in after}
    cycles = {frozenset(other for other in reach[module] if module in reach.get(other, ()))
              for module in after if module in reach[module]}
    return sorted(cycles, key=sorted)


def check_graph(kind, edges, table, faults):
    allowed = table.cycles[kind]
    cycles = find_cycles(edges)
    for cycle in cycles:
        if not any(cycle <= known for known in allowed):
            faults.append(f'a cycle of {kind}: {" ".join(sorted(cycle))}')
            faults += [f'    {ours} -> {theirs}: {why}'
                       for (ours, theirs), why in sorted(edges.items()) if ours in cycle and theirs in cycle]
    for known in allowed:
        if known not in [set(cycle) for cycle in cycles] and not any(known < cycle for cycle in cycles):
            faults.append(f'modules.txt allows more than there is: cycle {kind} {" ".join(sorted(known))}')


def main():
    tree = sys.argv[1] if len(sys.argv) > 1 else '.'
    build = sys.argv[2] if len(sys.argv) > 2 else os.path.join(tree, 'build')
    table = Table(os.path.join(tree, 'tests/modules.txt'))
    sources = list(find_sources(tree, table.folders))
    faults = [f'{path}: modules.txt assigns it to no module' for path in sources if not table.module_of(path)]
    if not faults:
        check_graph('includes', read_includes(tree, table, sources, faults), table, faults)
        check_graph('calls', read_calls(build, table, sources), table, faults)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


main()
