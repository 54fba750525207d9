"""What is acknowledged was synced before: seen in the system calls of reinsd and of reins-worker.

A submit: its row is written to SQLite's write-ahead log, fdatasync of that returns, then the OK leaves through the socket. An
outcome: it is written to the worker's spool, fdatasync of that returns, then it leaves. Needs strace and the right to use it."""

import re
import shutil
import signal
import subprocess

import pytest
import stubs
from cluster import PATIENCE, wait_for

CALLS = "write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync"


class Trace:
    """The calls of one process and its threads, in the order in which they began or, for syncs, returned."""

    def __init__(self, pid, folder):
        self.path = folder / f"strace-{pid}"
        self.process = subprocess.Popen(
            ["strace", "-f", "-ttt", "-yy", "-s", "70000", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", self.path, "-p", str(pid)],
            stderr=subprocess.PIPE, text=True)
        first = self.process.stderr.readline()  # "strace: Process N attached"
        if "attached" not in first:
            self.process.wait(PATIENCE)
            pytest.skip(f"strace may not be used here: {first.strip()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=PATIENCE)

    def lines(self):
        return self.path.read_text(errors="replace").splitlines()


@pytest.fixture
def trace(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    made = []

    def begin(pid):
        made.append(Trace(pid, tmp_path))
        return made[-1]

    yield begin
    for one in made:
        one.stop()


def sends(line, text):
    return "<TCP" in line and text in line and re.search(r" (write|writev|sendto|sendmsg)\(", line) is not None


def writes(line, file, text):
    return text in line and re.search(rf" p?write(v|64)?\(\d+<[^>]*{file}>", line) is not None


def returned_syncs(lines, file):
    """Numbers of the lines in which a sync of the file has returned 0."""
    under_way = set()
    for n, line in enumerate(lines):
        thread = line.split(None, 1)[0]
        begun = re.search(rf" f(data)?sync\(\d+<[^>]*{file}>", line)
        if begun and "<unfinished" in line:
            under_way.add(thread)
        elif (begun or ("sync resumed" in line and thread in under_way)) and re.search(r"= 0$", line):
            under_way.discard(thread)
            yield n


def show(line):
    line = re.sub(r'"(?:\\.|[^"\\]){60,}"', lambda m: m[0][:24] + '…"', line)
    return line if len(line) < 170 else line[:120] + " … " + line[-40:]


def check_order(lines, file, written, sent):
    """The numbers of the three lines: written to the file, synced, sent."""
    first_sent = next(n for n, line in enumerate(lines) if sends(line, sent))
    at = [n for n, line in enumerate(lines[:first_sent]) if writes(line, file, written)]
    assert at, f"sent, and not written before: {show(lines[first_sent])}"
    synced = [n for n in returned_syncs(lines[:first_sent], file) if n > at[-1]]
    assert synced, f"sent, and not synced since it was written:\n{show(lines[at[-1]])}\n{show(lines[first_sent])}"
    return at[-1], synced[0], first_sent


def tell(title, lines, numbers):
    print(f"---- {title}")
    for n in numbers:
        print(show(lines[n]))


def test_a_submit_is_synced_before_its_answer(make_cluster, trace, tmp_path):
    cluster = make_cluster({"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"}).start()
    cluster.submit(name="first")
    strace = trace(cluster.process.pid)
    made = {}
    for n in range(10):
        name = f"order-{n}-of-ten"
        made[name] = cluster.submit(name=name, queue="later").id
    wait_for(lambda: all(any(sends(line, i) for line in strace.lines()) for i in made.values()), "the answers are in the trace")
    strace.stop()
    lines = strace.lines()
    for name, task_id in made.items():
        numbers = check_order(lines, "reins.db-wal", name, task_id)
        if name.startswith("order-0"):
            tell(f"submit of {task_id}", lines, numbers)


def test_an_outcome_is_synced_before_it_is_sent(make_cluster, start_worker, trace, tmp_path):
    cluster = make_cluster({"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"}).start()
    worker = start_worker(cluster)
    warm = cluster.submit(command=["true"])
    assert cluster.finished(warm.id).state == stubs.State.COMPLETED
    strace = trace(worker.process.pid)
    results = [f"the-result-{n}-of-five" for n in range(5)]
    for text in results:
        task = cluster.submit(command=["sh", "-c", f"printf {text} >$REINS_RESULT"])
        assert cluster.finished(task.id).result == text.encode()
    wait_for(lambda: all(any(sends(line, text) for line in strace.lines()) for text in results), "the outcomes are in the trace")
    strace.stop()
    lines = strace.lines()
    for text in results:
        numbers = check_order(lines, "/outcomes", text, text)
        if text == results[0]:
            tell(f"outcome with {text}", lines, numbers)
