"""The table of who may call what, as C: access.py TABLE DESCRIPTOR-SET OUTPUT.

Fails when an rpc of the descriptor set has no line in the table, or a line no rpc.
"""
import sys

ROLES = ['reader', 'submitter', 'worker', 'operator', 'admin']
WORDS = {'known': 'ACCESS_KNOWN', 'anyone': 'ACCESS_ANYONE', 'shown': 'ACCESS_SHOWN'}


def fields(data):
    """(number, value) of an encoded message's fields that have a length; others are passed over."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            varint()
        elif kind == 2:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[kind]


def one(data, number):
    return b''.join(v for n, v in fields(data) if n == number).decode()


def rpcs(descriptor_set):
    """'package.Service/Method' of each rpc: file = 1; package = 2, service = 6; name = 1, method = 2; name = 1."""
    for number, file in fields(descriptor_set):
        if number != 1:
            continue
        package = one(file, 2)
        for in_file, service in fields(file):
            if in_file != 6:
                continue
            for in_service, method in fields(service):
                if in_service == 2:
                    yield f'{package}.{one(service, 1)}/{one(method, 1)}'


def parse(text, name):
    """{method: (C words for who, changes)}"""
    table = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split('#')[0].split()
        if not words:
            continue
        where = f'{name}:{number}'
        if len(words) not in (2, 3) or (len(words) == 3 and words[2] != 'changes'):
            sys.exit(f'{where}: METHOD WHO [changes] is meant')
        if words[0] in table:
            sys.exit(f'{where}: {words[0]} has a line already')
        who = words[1].split(',')
        for w in who:
            if w not in ROLES and w not in WORDS:
                sys.exit(f'{where}: "{w}" is neither a role nor {", ".join(WORDS)}')
        table[words[0]] = (' | '.join(WORDS.get(w, f'ROLE_{w.upper()}') for w in who), len(words) == 3)
    return table


def main():
    table_path, set_path, out_path = sys.argv[1:]
    with open(table_path, encoding='utf-8') as f:
        table = parse(f.read(), table_path)
    with open(set_path, 'rb') as f:
        known = sorted(rpcs(f.read()))
    missing = [r for r in known if r not in table]
    if missing:
        sys.exit(f'{table_path}: no line for {", ".join(missing)}: say who may call it')
    stale = sorted(set(table) - set(known))
    if stale:
        sys.exit(f'{table_path}: no rpc of proto/ is called {", ".join(stale)}')
    with open(out_path, 'w', encoding='ascii') as f:
        f.write('#include "common/auth/tokens.h"\n#include "server/auth/access.h"\n\n')
        f.write('const struct access_row access_rows[] = {\n')
        for rpc in known:
            who, changes = table[rpc]
            f.write(f'\t{{ "/{rpc}", {who}, {"true" if changes else "false"} }},\n')
        f.write(f'}};\nconst size_t access_n_rows = {len(known)};\n')


if __name__ == '__main__':
    main()
