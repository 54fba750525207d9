"""docs/errors.md has each reason of common/base/refusal.h once, and none besides."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
header = (ROOT / 'common/base/refusal.h').read_text()
known = [w for w in re.findall(r'^\tREASON_(\w+),$', header, re.M) if w != 'NONE']
told = re.findall(r'^\| `([A-Z_]+)` \|', (ROOT / 'docs/errors.md').read_text(), re.M)
faults = [f'docs/errors.md: {r} is there {told.count(r)} times' for r in known if told.count(r) != 1]
faults += [f'docs/errors.md: {r} is no reason of common/base/refusal.h' for r in told if r not in known]
print('\n'.join(faults) or f'{len(known)} reasons')
sys.exit(bool(faults) or not known)
