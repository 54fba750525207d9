"""docs/scenarios.md has each scenario once, and the tests that it names exist."""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
EXPECTED = [f'S{n:02}' for n in (*range(1, 14), *range(32, 35), *range(40, 47))]
faults, found = [], []

for number, line in enumerate((ROOT / 'docs/scenarios.md').read_text().splitlines(), 1):
    row = re.match(r'\| (S\d\d) \|', line)
    if not row:
        continue
    found.append(row[1])
    tests = re.findall(r'`(test_\w+\.py)::(test_\w+)`', line.rstrip(' |').rsplit('|', 1)[1])
    if not tests:
        faults.append(f'docs/scenarios.md:{number}: {row[1]} names no test')
    for file, name in tests:
        path = ROOT / 'tests/integration' / file
        body = ast.parse(path.read_text()).body if path.exists() else []
        if not any(isinstance(f, ast.FunctionDef) and f.name == name for f in body):
            faults.append(f'docs/scenarios.md:{number}: {row[1]}: there is no {file}::{name}')
faults += [f'docs/scenarios.md: {s} is there {found.count(s)} times' for s in EXPECTED if found.count(s) != 1]
faults += [f'docs/scenarios.md: {s} is not expected' for s in found if s not in EXPECTED]
print('\n'.join(faults) or f'{len(found)} scenarios have their tests')
sys.exit(bool(faults))
