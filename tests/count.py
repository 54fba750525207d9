"""Counts a JUnit file: count.py FILE [MESON-LOG] prints "PASSED FAILED"; what was skipped is neither.

Meson's JUnit file leaves out programs that crashed between two of their tests; its own log (JSON, a line each) names
them, so the larger number of failures counts.
"""
import json
import sys
import xml.etree.ElementTree as ElementTree

GOOD = {'OK', 'SKIP', 'EXPECTEDFAIL', 'IGNORED'}


def main():
    passed = failed = 0
    for case in ElementTree.parse(sys.argv[1]).iter('testcase'):
        if case.find('failure') is not None or case.find('error') is not None:
            failed += 1
        elif case.find('skipped') is None:
            passed += 1
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding='utf-8') as log:
            failed = max(failed, sum(json.loads(line)['result'] not in GOOD for line in log))
    print(passed, failed)


main()
