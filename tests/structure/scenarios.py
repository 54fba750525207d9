"""What docs/scenarios.md, docs/recovery.md, docs/availability.md and docs/protocol.md name as file::function exists, each
scenario and each row of the protocol is there once, and every row says what shows it.

A name with a path is code below the root, one without a file anywhere below tests/."""
import ast
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
SCENARIOS = [f'S{n:02}' for n in (*range(1, 14), *range(20, 25), *range(30, 35), *range(40, 47), *range(50, 56))]
PROTOCOL = [*(f'1.{n}' for n in range(1, 35)), *(f'2.{n}' for n in range(1, 11)), *(f'3.{n}' for n in range(1, 17))]
DOCS = ('scenarios', 'recovery', 'availability', 'protocol')
NAMED = re.compile(r'`([\w/.]+\.(?:c|py))::(\w+)`')
tests = list((ROOT / 'tests').rglob('*.*'))
faults, scenarios, protocol, names = [], [], [], set()


@functools.cache
def functions(path):
    return {f.name for f in ast.parse(path.read_text()).body if isinstance(f, ast.FunctionDef)}


@functools.cache
def text_of(path):
    return path.read_text()


@functools.cache
def below_tests(file):
    return [p for p in tests if p.name == file]


def has(path, name):
    """A function of a Python file; of a C file what begins at the left edge: a function, a table, an SQL text."""
    if path.suffix == '.py':
        return name in functions(path)
    return re.search(rf'^[a-z](?:.*\W)?{name}(?:\(|\[|\s*=).*(?<!;)$', text_of(path), re.M) is not None


def check(where, file, name):
    names.add((file, name))
    found = [ROOT / file] if '/' in file else below_tests(file)
    if len(found) != 1 or not found[0].exists():
        faults.append(f'{where}: there is no {file}, or several')
    elif not has(found[0], name):
        faults.append(f'{where}: there is no {file}::{name}')


for doc in DOCS:
    for number, line in enumerate((ROOT / f'docs/{doc}.md').read_text().splitlines(), 1):
        where = f'docs/{doc}.md:{number}'
        for file, name in NAMED.findall(line):
            check(where, file, name)
        cells = [c.strip() for c in line.split('|')[1:-1]]
        row = re.match(r'S\d\d$', cells[0]) if cells else None
        if row:
            scenarios.append(cells[0])
        if doc == 'protocol' and cells and re.match(r'\d+\.\d+$', cells[0]):
            protocol.append(cells[0])
        shown = doc != 'availability' and cells and not set(line) <= set('|-') and cells[-1] != 'shown by'
        if shown and not NAMED.search(cells[-1]):
            faults.append(f'{where}: {cells[0]}: names no test')
faults += [f'docs/scenarios.md: {s} is there {scenarios.count(s)} times' for s in SCENARIOS if scenarios.count(s) != 1]
faults += [f'docs/scenarios.md: {s} is not expected' for s in scenarios if s not in SCENARIOS]
faults += [f'docs/protocol.md: {r} is there {protocol.count(r)} times' for r in {*PROTOCOL, *protocol} if protocol.count(r) != 1]
print('\n'.join(faults) or f'{len(scenarios)} scenarios; {len(protocol)} rows of the protocol; {len(names)} names, and all exist')
sys.exit(bool(faults))
