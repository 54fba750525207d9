"""The table at the end, and the same as a JUnit file."""

import collections
import statistics
from xml.etree import ElementTree

import stubs
from accounting import PROMISES
from detection import WORDS

State, End = stubs.State, stubs.End


def faults_table(detection, faults, kinds, missing):
    injected = collections.Counter(f.kind.name for f in faults if f.began is not None)
    rows = [("fault", "times", "seen afterwards", "seen", "median", "max", "max alone")]
    for kind in kinds:
        if not injected[kind.name]:
            continue
        first = True
        for word in WORDS:
            seen = detection.found.get((kind.name, word))
            if not seen:
                continue
            alone = [v for v, a in seen.values if a]
            values = [v for v, _ in seen.values]
            rows.append((kind.text if first else "", str(injected[kind.name]) if first else "", WORDS[word], str(len(values)),
                         seconds(statistics.median(values)), seconds(max(values)), seconds(max(alone)) if alone else "–"))
            first = False
        if first:
            rows.append((kind.text, str(injected[kind.name]), WORDS.get(kind.seen, ""), "–", "–", "–", "–"))
    yield from columns(rows, right={1, 3, 4, 5, 6})
    for what, why in missing.items():
        yield f"left out: faults of a {what}: {why}"


def overlapping_pairs(faults):
    """How many different pairs of kinds were down at the same time."""
    ran = sorted((f for f in faults if f.began is not None), key=lambda f: f.began)
    return len({frozenset((a.kind.name, b.kind.name)) for n, a in enumerate(ran) for b in ran[n + 1:]
                if b.began < (a.ended or b.began + 1)})


def totals(account, faults, watchdog):
    tasks = account.tasks.values()
    states = collections.Counter(State.State.Name(t.state) for t in tasks)
    kinds = collections.Counter(t.spec.name for t in tasks)
    ends = collections.Counter((End.End.Name(a.end), a.cause) for t in tasks for a in t.attempts[:-1])
    reruns = sum(max(0, t.attempt - 1) for t in tasks)
    longest = max((c.longest for c in account.clients), default=(0, ""))
    yield f"faults injected             {sum(f.began is not None for f in faults):6}   pairs of kinds at the same time: {overlapping_pairs(faults)}"
    yield f"tasks accepted              {len(account.kinds):6}   {counted(states)}"
    yield f"                                     {counted(kinds)}"
    yield f"attempts                    {sum(t.attempt for t in tasks):6}   seen by programs: {len(account.runs)}"
    yield f"re-runs                     {reruns:6}   {counted(collections.Counter({f'{e} ({c})' if c else e: n for (e, c), n in ends.items()}))}"
    yield f"calls of clients            {sum(c.calls for c in account.clients):6}   without an answer: {sum(c.failed_calls for c in account.clients)}, " \
          f"longest until one came: {longest[0]:.1f} s ({longest[1]})"
    yield f"logs compared               {account.logs_read:6}   with a gap that is said (full disk): {account.logs_cut}"
    yield f"an agent without room ended {watchdog.full:6}   (its disk was full; it was started again)"
    yield f"a master's memory, KiB               {'; '.join(f'{n}: {a} at first, {b} at most' for n, a, b in largest(watchdog.rss))}"
    yield ""
    for promise, words in PROMISES.items():
        label = {"lost": "lost tasks", "doubled": "doubled records", "overlapping": "overlapping exclusive runs"}.get(promise, promise)
        more = f"{len(account.exclusive())} exclusive tasks; " if promise == "overlapping" else ""
        yield f"{label:27} {len(account.problems[promise]):6}   {more}{words}"


def largest(rss):
    """Of each master the process that grew most."""
    found = {}
    for name, first, most in rss.values():
        if name not in found or most - first > found[name][2] - found[name][1]:
            found[name] = (name, first, most)
    return [found[n] for n in sorted(found)]


def counted(counter):
    return ", ".join(f"{k} {n}" for k, n in counter.most_common())


def seconds(value):
    return f"{value:.2f} s"


def columns(rows, right):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for n, row in enumerate(rows):
        yield "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        if n == 0:
            yield "  ".join("-" * w for w in widths)


def junit(path, problems, name, took):
    """A test case for each promise."""
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(PROMISES)), time=f"{took:.1f}",
                                failures=str(sum(bool(problems[p]) for p in PROMISES)))
    for promise, words in PROMISES.items():
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=words)
        if problems[promise]:
            ElementTree.SubElement(case, "failure", message=printable(problems[promise][0])).text = printable("\n".join(problems[promise]))
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def printable(text):
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
