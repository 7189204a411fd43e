#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-circles.py [TREE [BUILD]] - which object files of the product call each other in circles, by nm.

An object that needs a symbol which another defines depends on it; a callback is no dependency, because its pointer
comes from outside. Objects that depend on each other belong into one file, or one of their functions elsewhere.
tests/circles.txt lists the circles that are accepted, one on a line. A circle with an object that is not in its line
is a fault, and so is a line with an object that is in no circle any more: the list only shrinks.
"""
import os
import subprocess
import sys


def find_objects(tree, build):
    for parent, folders, names in os.walk(tree):
        if parent == tree:
            folders[:] = [name for name in folders if name not in ('tests', 'docs', os.path.basename(build))]
        for name in names:
            path = os.path.relpath(os.path.join(parent, name[:-2] + '.o'), tree)
            if name.endswith('.c') and os.path.exists(os.path.join(build, path)):
                yield path


def read_needs(build, objects):
    """{object: {other: symbol}}; a symbol that several define (each program has a main) makes none depend."""
    out = subprocess.run(['nm', '-A', '-g', *objects], cwd=build, stdout=subprocess.PIPE, check=True, text=True).stdout
    symbols = [(path, *rest.split()[-2:]) for path, rest in (line.split(':', 1) for line in out.splitlines())]
    owners = {}
    for path, kind, symbol in symbols:
        if kind not in 'Uw':
            owners.setdefault(symbol, set()).add(path)
    needs = {path: {} for path in objects}
    for path, kind, symbol in symbols:
        if kind in 'Uw' and len(owners.get(symbol, ())) == 1:
            needs[path][min(owners[symbol])] = symbol
    return needs


def find_circles(needs):
    """The sets of objects that all reach each other."""
    def reachable(start):
        seen, left = set(), [start]
        while left:
            new = set(needs[left.pop()]) - seen
            seen |= new
            left += new
        return seen

    reach = {path: reachable(path) for path in needs}
    circles = {frozenset(other for other in reach[path] if path in reach[other]) for path in needs}
    return sorted((circle for circle in circles if len(circle) > 1), key=sorted)


def read_accepted(tree):
    with open(os.path.join(tree, 'tests/circles.txt'), encoding='utf-8') as lines:
        words = [line.split('#')[0].split() for line in lines]
    return [{word.removesuffix('.c') + '.o' for word in line} for line in words if line]


def main():
    tree = sys.argv[1] if len(sys.argv) > 1 else '.'
    build = sys.argv[2] if len(sys.argv) > 2 else os.path.join(tree, 'build')
    objects = sorted(find_objects(tree, build))
    if not objects:
        sys.exit(f'{build} has no objects: make first')
    needs, accepted, faults = read_needs(build, objects), read_accepted(tree), []
    circles = find_circles(needs)
    for circle in circles:
        if not any(circle <= known for known in accepted):
            faults.append('a circle: ' + ' '.join(path[:-2] + '.c' for path in sorted(circle)))
            faults += [f'    {path[:-2]}.c needs {symbol} of {other[:-2]}.c'
                       for path in sorted(circle) for other, symbol in sorted(needs[path].items()) if other in circle]
    in_circles = set().union(*circles)
    for known in accepted:
        for path in sorted(known - in_circles):
            faults.append(f'tests/circles.txt: {path[:-2]}.c is in no circle any more')
    print(*faults, sep='\n', end='\n' if faults else '')
    sys.exit(1 if faults else 0)


main()
