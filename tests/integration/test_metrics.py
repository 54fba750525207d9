"""REINS_METRICS end to end: what programs write is read live, kept once, and given out again, on both stores."""

import csv
import io
import json
import math
import subprocess
import time

import grpc
import pytest
import stubs
from cluster import BUILD, PATIENCE, make_spec, wait_for
from fake_worker import Verdict, W, hold

State, T = stubs.State, stubs.tasks


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request, make_cluster, tmp_path):
    embedded = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}
    return make_cluster(embedded).start()


def read(cluster, task_id, **fields):
    return cluster.tasks.ReadMetrics(T.ReadMetricsRequest(task_id=task_id, **fields), timeout=PATIENCE)


def points(page):
    return [(p.step, dict(p.values)) for p in page.points]


def run_sh(cluster, script, **spec):
    return cluster.submit(command=["sh", "-c", script], **spec).id


def reins(cluster, *args, code=0):
    done = subprocess.run([BUILD / "client" / "reins", *args, "--server", cluster.url], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, done
    return done


def refused(code, call, *words):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == code
    for word in words:
        assert word in caught.value.details(), caught.value.details()


# ---- with the real worker ----


LINES = r"""
cat >>"$REINS_METRICS" <<'END'
{"step": 1, "reward": 3.2}
{"step": 2, "reward": 1e3, "lr": 0.5}
not json
{"reward": "high"}
{"step": 3, "loss": {"a": 1}}

{"loss": NaN}
{"eval/loss": 0.25}
END
printf '{"step": 10, "reward": -1}' >>"$REINS_METRICS"
"""


def test_what_a_program_writes(cluster, start_worker):
    start_worker(cluster)
    task_id = run_sh(cluster, LINES)
    task = cluster.finished(task_id)
    assert task.state == State.COMPLETED
    # A line without a step gets the next one; half a line at the end is one.
    assert (task.metrics.step, dict(task.metrics.values)) == (10, {"reward": -1, "lr": 0.5, "eval/loss": 0.25})
    page = read(cluster, task_id)
    assert points(page) == [(1, {"reward": 3.2}), (2, {"reward": 1000, "lr": 0.5}), (3, {"eval/loss": 0.25}), (10, {"reward": -1})]
    assert (page.attempt, page.last_number, page.more, page.ended) == (1, 4, False, True)
    assert (page.malformed_lines, page.dropped_points) == (4, 0)
    assert all(p.at.seconds for p in page.points)

    assert "metrics    step 10  eval/loss=0.25 lr=0.5 reward=-1" in reins(cluster, "status", task_id).stdout
    done = reins(cluster, "metrics", task_id)
    assert done.stdout.splitlines()[1] == "step 2  lr=0.5 reward=1000"
    assert "4 lines were no points" in done.stderr
    rows = list(csv.DictReader(io.StringIO(reins(cluster, "metrics", "-o", "csv", task_id).stdout)))
    assert [(r["step"], r["name"], r["value"]) for r in rows] == [
        ("1", "reward", "3.2"), ("2", "lr", "0.5"), ("2", "reward", "1000"), ("3", "eval/loss", "0.25"), ("10", "reward", "-1")]
    assert all(r["time"].endswith("Z") for r in rows)
    lines = reins(cluster, "metrics", "-o", "json", "--name", "lr,eval/loss", task_id).stdout.splitlines()
    assert [json.loads(line)["values"] for line in lines] == [{"lr": 0.5}, {"eval/loss": 0.25}]


def test_live_and_followed(cluster, start_worker, tmp_path):
    """Points are there while the program runs, and --follow prints them as they come."""
    start_worker(cluster)
    go = tmp_path / "go"
    task_id = run_sh(cluster, f'echo \'{{"step":1,"a":1}}\' >>$REINS_METRICS; printf \'{{"step":2,\' >>$REINS_METRICS; '
                              f'until [ -e {go} ]; do sleep 0.02; done; echo \'"a":2}}\' >>$REINS_METRICS')
    follower = subprocess.Popen([BUILD / "client" / "reins", "metrics", "-f", task_id, "--server", cluster.url], stdout=subprocess.PIPE, text=True)
    try:
        assert follower.stdout.readline() == "step 1  a=1\n"
        page = wait_for(lambda: (lambda p: p if p.points else None)(read(cluster, task_id)), "a point")
        # Half a line waits for its end.
        assert points(page) == [(1, {"a": 1})] and not page.ended and page.malformed_lines == 0
        assert cluster.get(task_id).metrics.step == 1
        go.touch()
        assert follower.stdout.read() == "step 2  a=2\n"
        assert follower.wait(PATIENCE) == 0
    finally:
        follower.kill()
        follower.wait()
    page = read(cluster, task_id, attempt=1)
    assert points(page) == [(1, {"a": 1}), (2, {"a": 2})] and page.ended


def test_truncated_and_replaced(cluster, start_worker, tmp_path):
    """Another file goes on with the numbers of the one before."""
    start_worker(cluster)
    steps = [tmp_path / f"go{n}" for n in range(3)]
    until = ["until [ -e %s ]; do sleep 0.02; done" % s for s in steps]
    task_id = run_sh(cluster, f"""
        echo '{{"a":1}}' >$REINS_METRICS; echo '{{"a":2}}' >>$REINS_METRICS; {until[0]}
        echo '{{"b":3}}' >$REINS_METRICS; {until[1]}
        echo '{{"c":4}}' >$REINS_METRICS.new; mv $REINS_METRICS.new $REINS_METRICS; {until[2]}
        echo '{{"c":5}}' >>$REINS_METRICS""")
    for n, step in enumerate(steps):
        wait_for(lambda: read(cluster, task_id).last_number == n + 2, lambda: str(read(cluster, task_id)))
        step.touch()
    cluster.finished(task_id)
    page = read(cluster, task_id)
    assert points(page) == [(1, {"a": 1}), (2, {"a": 2}), (3, {"b": 3}), (4, {"c": 4}), (5, {"c": 5})]
    assert page.malformed_lines == 0


def test_many_points_and_the_limit(cluster, start_worker):
    worker = start_worker(cluster, metrics_limit=2500)
    program = "import os\nwith open(os.environ['REINS_METRICS'], 'w') as f:\n  for n in range(1, 4001): f.write('{\"step\":%d,\"x\":%d}\\n' % (n, n * n))"
    task_id = cluster.submit(command=["python3", "-c", program]).id
    assert cluster.finished(task_id).state == State.COMPLETED
    found, after = [], 0
    while True:
        page = read(cluster, task_id, after_number=after)
        found += points(page)
        after = page.last_number
        if not page.more:
            break
        assert not page.ended
    assert found == [(n, {"x": n * n}) for n in range(1, 2501)]
    assert page.ended and page.dropped_points == 1500
    assert "2500 points" in worker.log()
    done = reins(cluster, "metrics", "-o", "csv", task_id)
    assert len(done.stdout.splitlines()) == 2501 and "1500 points were over the limit" in done.stderr


def test_the_master_goes_in_between(cluster, start_worker, tmp_path):
    """Numbers go on where the store's end, none twice, none missing."""
    start_worker(cluster)
    go = tmp_path / "go"
    task_id = run_sh(cluster, f'n=0; until [ -e {go} ]; do n=$((n+1)); echo "{{\\"step\\":$n,\\"x\\":$n}}" >>$REINS_METRICS; sleep 0.005; done; echo $n >$REINS_RESULT')
    wait_for(lambda: read(cluster, task_id).last_number, "points: it has been accepted, or the next master gives it out anew")
    for _ in range(2):
        before = read(cluster, task_id).last_number
        cluster.restart()
        cluster.connect_anew()
        wait_for(lambda: read(cluster, task_id, after_number=before).last_number > before, lambda: cluster.log()[-2000:])
    go.touch()
    task = cluster.finished(task_id)
    last = int(task.result)
    found, after, more = [], 0, True
    while more:
        page = read(cluster, task_id, after_number=after, page_size=10000)
        found, after, more = found + points(page), page.last_number, page.more
    assert task.attempt == 1
    assert found == [(n, {"x": n}) for n in range(1, last + 1)]
    assert after == last


def test_the_agent_is_killed_in_between(cluster, start_worker, tmp_path):
    """The program does not notice, and the next agent reads on: none twice, none missing, also what was written meanwhile."""
    worker = start_worker(cluster)
    go = tmp_path / "go"
    task_id = run_sh(cluster, f'n=0; until [ -e {go} ]; do n=$((n+1)); echo "{{\\"step\\":$n,\\"x\\":$n}}" >>$REINS_METRICS; sleep 0.005; done; echo $n >$REINS_RESULT')
    for _ in range(2):
        before = wait_for(lambda: read(cluster, task_id).last_number, "points")
        worker.kill()
        worker.start()
        wait_for(lambda: read(cluster, task_id, after_number=before, page_size=10000).last_number > before, worker.log)
    go.touch()
    task = cluster.finished(task_id)
    found, after, more = [], 0, True
    while more:
        page = read(cluster, task_id, after_number=after, page_size=10000)
        found, after, more = found + points(page), page.last_number, page.more
    assert (task.state, task.attempt) == (State.COMPLETED, 1)
    assert found == [(n, {"x": n}) for n in range(1, int(task.result) + 1)]


def test_what_lies_there_is_no_trap(cluster, start_worker):
    """No file, a link, a directory, a FIFO, a line without an end, a line that is too long: the outcome comes all the same."""
    start_worker(cluster, slots=8)
    shapes = {
        "true": (0, 0),
        "ln -s /etc/passwd $REINS_METRICS": (0, 0),
        "mkdir $REINS_METRICS": (0, 0),
        "mkfifo $REINS_METRICS": (0, 0),
        "head -c 300000 /dev/zero | tr '\\0' ' ' >$REINS_METRICS": (0, 1),
        "{ head -c 70000 /dev/zero | tr '\\0' x; echo; echo '{\"a\":1}'; } >$REINS_METRICS": (1, 1),
        "head -c 100000 /dev/urandom >$REINS_METRICS; echo >>$REINS_METRICS; echo '{\"a\":1}' >>$REINS_METRICS": (1, None),
    }
    ids = [run_sh(cluster, script) for script in shapes]
    for task_id, (n, malformed) in zip(ids, shapes.values()):
        task = cluster.finished(task_id)
        assert task.state == State.COMPLETED
        page = read(cluster, task_id)
        assert len(page.points) == n, task.spec.command
        assert malformed is None or page.malformed_lines == malformed, task.spec.command


# ---- the protocol ----


def metrics(ref, first, *values, **fields):
    m = W.Metrics(task_id=ref[0], attempt=ref[1], first_number=first, **fields)
    for n, v in enumerate(values):
        m.points.add(step=first + n).values.update(v)
    return W.WorkerMessage(metrics=m)


def test_the_outcome_waits_for_the_points_before_it(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    task_id = cluster.submit().id
    ref = worker.wait_dispatch(task_id)
    for n in range(1, 51):
        worker.stream.send(metrics(ref, n, {"x": n}))
    worker.outcome(ref)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    page = read(cluster, task_id)
    assert page.ended and [p.step for p in page.points] == list(range(1, 51))


def test_numbers_that_are_stored_change_nothing(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    task_id = cluster.submit().id
    ref = worker.wait_dispatch(task_id)
    worker.stream.send(metrics(ref, 1, {"x": 1}, {"x": 2}, malformed_lines=1))
    worker.stream.send(metrics(ref, 2, {"x": 99}, {"x": 3}, malformed_lines=5, dropped_points=2))
    wait_for(lambda: read(cluster, task_id).last_number == 3, "three points")
    page = read(cluster, task_id)
    assert points(page) == [(1, {"x": 1}), (2, {"x": 2}), (3, {"x": 3})]
    assert (page.malformed_lines, page.dropped_points) == (5, 2)
    # Somebody else's attempt: not kept.
    worker.stream.send(metrics((task_id, 7), 1, {"x": 1}))
    worker.outcome(ref)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    worker.stream.send(metrics(ref, 4, {"x": 4}))
    assert read(cluster, task_id).last_number == 3


@pytest.mark.parametrize("message, word", [
    (dict(first_number=0, points=[{"x": 1}]), "first_number"),
    (dict(first_number=-2**63, points=[], malformed_lines=1), "first_number"),
    (dict(first_number=1, points=[{}]), "1 to 64"),
    (dict(first_number=1, points=[{f"k{n}": 1 for n in range(65)}]), "1 to 64"),
    (dict(first_number=1, points=[{"a b": 1}]), "name"),
    (dict(first_number=1, points=[{"x": math.nan}]), "finite"),
    (dict(first_number=1, points=[{"x": math.inf}]), "finite"),
    (dict(first_number=1, points=[{"x": 1}] * 1001), "1000"),
    (dict(first_number=1, points=[], malformed_lines=-1), "below 0"),
])
def test_what_a_worker_may_not_say(shared, make_worker, message, word):
    worker = make_worker(shared, f"bad-{abs(hash(word + str(message))) % 10**8}", queues=["none"])
    m = W.Metrics(task_id="0198c2a4-0000-7000-8000-000000000000", attempt=1, first_number=message["first_number"],
                  malformed_lines=message.get("malformed_lines", 0))
    for values in message["points"]:
        m.points.add().values.update(values)
    worker.stream.send(W.WorkerMessage(metrics=m))
    stream = worker.stream
    assert worker.wait_over(stream) == grpc.StatusCode.INVALID_ARGUMENT and word in stream.details, stream.details


def test_the_servers_limit(make_cluster, make_worker):
    cluster = make_cluster({"max-metrics": "3"}).start()
    worker = make_worker(cluster, policy=hold)
    task_id = cluster.submit().id
    ref = worker.wait_dispatch(task_id)
    worker.stream.send(metrics(ref, 1, {"x": 1}, {"x": 2}))
    worker.stream.send(metrics(ref, 3, {"x": 3}, {"x": 4}, {"x": 5}))
    worker.outcome(ref)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    page = read(cluster, task_id)
    assert [p.step for p in page.points] == [1, 2, 3] and page.dropped_points == 2
    info = cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=PATIENCE)
    assert info.limits.metrics_points == 3 and worker.stream.welcome.limits.metrics_points == 3


def test_requests(cluster, make_worker):
    worker = make_worker(cluster, policy=hold)
    task_id = cluster.submit().id
    ref = worker.wait_dispatch(task_id)
    worker.stream.send(metrics(ref, 1, *({"x": n, f"y{n % 2}": n} for n in range(10))))
    wait_for(lambda: read(cluster, task_id).last_number == 10, "ten points")
    page = read(cluster, task_id, page_size=4)
    assert ([p.step for p in page.points], page.last_number, page.more, page.ended) == ([1, 2, 3, 4], 4, True, False)
    page = read(cluster, task_id, page_size=4, after_number=8)
    assert ([p.step for p in page.points], page.more) == ([9, 10], False)
    page = read(cluster, task_id, names=["y1", "nothing"])
    assert points(page) == [(n + 1, {"y1": n}) for n in (1, 3, 5, 7, 9)]
    delayed = make_spec()
    delayed.run_at.FromSeconds(int(time.time()) + 3600)
    waiting = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=delayed), timeout=PATIENCE).task.id
    page = read(cluster, waiting)
    assert (page.attempt, len(page.points), page.ended) == (0, 0, False)
    bad = grpc.StatusCode.INVALID_ARGUMENT
    refused(bad, lambda: read(cluster, "x"), "task_id")
    refused(bad, lambda: read(cluster, task_id, attempt=-1), "attempt")
    refused(bad, lambda: read(cluster, task_id, page_size=10001), "page_size")
    refused(bad, lambda: read(cluster, task_id, after_number=-1), "after_number")
    refused(bad, lambda: read(cluster, task_id, names=["n"] * 65), "names")
    refused(grpc.StatusCode.NOT_FOUND, lambda: read(cluster, task_id, attempt=2), "attempt", "1")
    refused(grpc.StatusCode.NOT_FOUND, lambda: read(cluster, "0198c2a4-0000-7000-8000-000000000000"), "no such task")
    worker.outcome(ref)
