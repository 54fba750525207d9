"""Turns a file into a C array: embed.py NAME INPUT OUTPUT."""
import sys


def main():
    name, source, target = sys.argv[1:]
    with open(source, 'rb') as f:
        data = f.read()
    with open(target, 'w', encoding='ascii') as f:
        f.write('#include "proto/descriptor_set.h"\n\n')
        f.write(f'const size_t {name}_len = {len(data)};\n')
        f.write(f'const unsigned char {name}[] = {{\n')
        for i in range(0, len(data), 16):
            f.write('\t' + ' '.join(f'{b},' for b in data[i:i + 16]) + '\n')
        f.write('};\n')


main()
