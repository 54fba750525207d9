"""Checks that no #include goes upwards and that no file has grown too long: includes.py SOURCE-ROOT.

LAYERS is the order.  A file may include files of its own folder and of layers before its own, and of those only what
its own program may see (the server, the worker and the client know nothing of each other).  A folder that is not
listed is an error: give it a place here.
"""
import pathlib
import re
import sys

LAYERS = [
    ['common/base'],
    ['proto'],
    ['common/log', 'common/settings', 'common/auth'],
    ['common/pb'],
    ['common/loop'],
    ['common/stream', 'common/net'],
    ['common/h2', 'common/http1'],
    ['common/grpc'],
    ['server/core', 'client/lib', 'worker'],
    ['server/store', 'client'],
    ['server/lease'],
    ['server/engine'],
    ['server/auth'],
    ['server/rpc', 'server/move'],
    ['server/monitor'],
    ['server'],
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
PROGRAMS = {'server', 'client', 'worker'}
GENERATED = re.compile(r'^(reins|google|grpc)/.*\.pb-c\.h$')
MAX_LINES = {'.c': 900, '.h': 250}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def folder_of(path):
    """The layer's folder of a path relative to the root; None: not listed."""
    if GENERATED.match(path):
        return 'proto'
    parts = pathlib.PurePosixPath(path).parts[:-1]
    if not parts:
        return None
    for n in range(len(parts), 0, -1):
        folder = '/'.join(parts[:n])
        # A folder directly below server/ or client/ must be listed itself.
        if folder in LEVEL and not (folder in ('server', 'client', 'common') and len(parts) > n):
            return folder
    return None


def problems_of(files):
    """files: {path: text} of all C files outside tests/. The problems, in words."""
    found = []
    for path, text in sorted(files.items()):
        suffix = pathlib.PurePosixPath(path).suffix
        lines = text.count('\n')
        limit = MAX_LINES[suffix]
        if lines > limit:
            found.append(f'{path}: {lines} lines; split it (at most {limit})')
        if path.startswith('tests/'):
            continue
        own = folder_of(path)
        if own is None:
            found.append(f'{path}: its folder has no place in LAYERS')
            continue
        for included in INCLUDE.findall(text):
            if '/' not in included:
                found.append(f'{path}: includes "{included}"; write the path from the root')
                continue
            other = folder_of(included)
            if other is None:
                found.append(f'{path}: includes "{included}", whose folder has no place in LAYERS')
            elif other == own:
                continue
            elif LEVEL[other] >= LEVEL[own]:
                found.append(f'{path}: includes "{included}", which is not below it')
            else:
                programs = {other.split('/')[0], own.split('/')[0]} & PROGRAMS
                if len(programs) > 1:
                    found.append(f'{path}: includes "{included}" of another program')
    return found


def self_test():
    """Each rule must be able to fail."""
    bad = {
        'upwards': {'common/base/a.c': '#include "common/loop/loop.h"\n'},
        'sideways': {'common/net/a.c': '#include "common/stream/stream.h"\n'},
        'program': {'client/a.c': '#include "server/core/core.h"\n'},
        'worker': {'worker/a.c': '#include "server/core/core.h"\n'},
        'unlisted': {'server/new/a.c': '\n'},
        'unlisted include': {'server/a.c': '#include "server/new/a.h"\n'},
        'short path': {'client/a.c': '#include "cli.h"\n'},
        'long .c': {'client/a.c': '\n' * 901},
        'long .h': {'tests/unit/a.h': '\n' * 251},
    }
    for name, files in bad.items():
        assert len(problems_of(files)) == 1, f'the check does not see "{name}"'
    good = {'server/a.c': '#include "server/rpc/x.h"\n#include "reins/v1/task.pb-c.h"\n#include <uv.h>\n',
            'client/a.c': '#include "client/lib/client.h"\n#include "common/base/base.h"\n' + '\n' * 898,
            'worker/x/a.c': '#include "worker/b.h"\n', 'tests/unit/a.c': '#include "turns.h"\n'}
    assert problems_of(good) == [], problems_of(good)


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    files = {}
    for top in ('common', 'proto', 'server', 'client', 'worker', 'tests'):
        for path in (root / top).rglob('*.[ch]'):
            files[path.relative_to(root).as_posix()] = path.read_text(encoding='utf-8')
    found = problems_of(files)
    print('\n'.join(found) or f'{len(files)} files are in order')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
