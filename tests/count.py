"""Counts a JUnit file: count.py FILE [MESON-LOG] prints "PASSED FAILED"; what was skipped is neither.

count.py --failed MESON-LOG prints the names of the tests that failed, a line each, as meson test takes them.

Meson's JUnit file leaves out programs that crashed between two of their tests; its own log (JSON, a line each) names
them, so the larger number of failures counts.
"""
import json
import sys
import xml.etree.ElementTree as ElementTree

GOOD = {'OK', 'SKIP', 'EXPECTEDFAIL', 'IGNORED'}


def failed_in(path):
    with open(path, encoding='utf-8') as log:
        tests = [json.loads(line) for line in log]
    # "project:suite / name", or without a suite of its own
    return [t['name'].split(' / ', 1)[1] for t in tests if t['result'] not in GOOD]


def main():
    if sys.argv[1] == '--failed':
        print(*failed_in(sys.argv[2]), sep='\n', end='')
        return
    passed = failed = 0
    for case in ElementTree.parse(sys.argv[1]).iter('testcase'):
        if case.find('failure') is not None or case.find('error') is not None:
            failed += 1
        elif case.find('skipped') is None:
            passed += 1
    if len(sys.argv) > 2:
        failed = max(failed, len(failed_in(sys.argv[2])))
    print(passed, failed)


main()
