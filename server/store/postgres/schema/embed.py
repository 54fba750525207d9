"""Turns the migrations into C strings: embed.py OUTPUT FILE.sql..."""
import sys


def main():
    target, sources = sys.argv[1], sys.argv[2:]
    with open(target, 'w', encoding='ascii') as f:
        f.write('#include "server/store/postgres/pg_schema_sql.h"\n\n')
        for n, source in enumerate(sources):
            with open(source, 'rb') as s:
                data = s.read() + b'\0'
            f.write(f'static const char migration_{n}[] = {{\n')
            for i in range(0, len(data), 16):
                f.write('\t' + ' '.join(f'{b},' for b in data[i:i + 16]) + '\n')
            f.write('};\n')
        f.write('const char *const pg_schema_migrations[PG_SCHEMA_VERSION] = {')
        f.write(', '.join(f'migration_{n}' for n in range(len(sources))) + '};\n')


main()
