"""The main job: submit, dispatch, outcome; what is kept of it; cancel, lists, idempotency, waiting."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import stubs
from cluster import PATIENCE, make_spec, wait_for
from fake_worker import Kind, Verdict, W, hold
from google.protobuf.duration_pb2 import Duration
from refusals import fields, refused

State, End, T = stubs.State, stubs.End, stubs.tasks
Stop = W.Stop


@pytest.fixture
def queue(request):
    """A queue of the test's own in the shared cluster."""
    return "q-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


@pytest.fixture
def worker(shared, make_worker, queue):
    """Takes the test's queue only, and ends nothing by itself."""
    return make_worker(shared, "w-" + queue, policy=hold, queues=[queue])


# ---- outcomes ----


def test_success(shared, worker, queue):
    before = time.time()
    spec = dict(
        queue=queue, name="a/b", command=["prog", "", "ä\n"], env={"A": "1", "B": "2"}, working_dir="/tmp",
        payload=b"\x00\xff\x80in", labels={"k": "v"}, params={"lr": "0.1"},
        resources=stubs.task.Resources(cpu_millis=10), timeout=Duration(seconds=60),
    )
    made = shared.submit_reply(**spec)
    assert made.created
    assert made.task.state in (State.PENDING, State.RUNNING)
    assert not made.task.spec.payload and not made.task.spec.env  # the BASIC view
    ref = worker.wait_dispatch(made.task.id)
    assert ref[1] == 1
    sent = worker.held[ref]
    assert sent.spec == make_spec(**spec) and sent.queue == queue and not sent.exclusive
    assert sent.lease_ttl.seconds == 10
    running = shared.in_state(made.task.id, State.RUNNING)
    assert running.worker_id == worker.worker_id and running.attempt == 1
    wait_for(lambda: shared.get(made.task.id).HasField("started_at"), "started_at of a running task")
    result = bytes(range(256)) * 100
    worker.outcome(ref, exit_code=0, result=result, result_bytes=len(result))
    done = shared.finished(made.task.id)
    assert done.state == State.COMPLETED and done.result == result and done.result_bytes == len(result)
    assert done.WhichOneof("has_exit_code") and done.exit_code == 0 and done.signal == 0
    assert done.spec == make_spec(**spec)
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert len(done.attempts) == 1
    attempt = done.attempts[0]
    assert (attempt.number, attempt.end, attempt.worker_id) == (1, End.SUCCEEDED, worker.worker_id)
    times = [done.created_at, attempt.dispatched_at, attempt.started_at, attempt.finished_at, done.finished_at]
    seconds = [t.ToNanoseconds() / 1e9 for t in times]
    assert all(before - 2 < s < time.time() + 2 for s in seconds), times


@pytest.mark.parametrize("fields_set, kind, state, end", [
    (dict(exit_code=3), Kind.FAILED, State.FAILED, End.FAILED),
    (dict(exit_code=255, error=b"it broke"), Kind.FAILED, State.FAILED, End.FAILED),
    (dict(signal=9), Kind.FAILED, State.FAILED, End.FAILED),
    (dict(error=b"exec: no such file"), Kind.LAUNCH_FAILED, State.FAILED, End.LAUNCH_FAILED),
    (dict(signal=15), Kind.TIMED_OUT, State.FAILED, End.TIMED_OUT),
], ids=lambda v: "")
def test_failure(shared, worker, queue, fields_set, kind, state, end):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    worker.outcome(ref, kind=kind, **fields_set)
    done = shared.finished(made.id)
    assert done.state == state
    attempt = done.attempts[0]
    assert attempt.end == end
    for seen in (done, attempt):
        assert bool(seen.WhichOneof("has_exit_code")) == ("exit_code" in fields_set)
        assert seen.exit_code == fields_set.get("exit_code", 0)
        assert seen.signal == fields_set.get("signal", 0)
        assert seen.error == fields_set.get("error", b"").decode()
        assert seen.error_raw == b""
    assert not done.result


@pytest.mark.parametrize("error, text, raw", [
    (b"plain \xc3\xa4", "plain ä", b""),
    (b"ff \xff\xfe\x00 end", None, b"ff \xff\xfe\x00 end"),
    (b"\xed\xa0\x80", None, b"\xed\xa0\x80"),
    (b"nul\x00nul", None, b"nul\x00nul"),
], ids=["valid", "binary", "surrogate", "nul"])
def test_error_text_of_any_bytes(shared, worker, queue, error, text, raw):
    made = shared.submit(queue=queue)
    worker.outcome(worker.wait_dispatch(made.id), kind=Kind.FAILED, exit_code=1, error=error)
    done = shared.finished(made.id)
    for seen in (done, done.attempts[0]):
        assert seen.error_raw == raw
        assert seen.error and "\x00" not in seen.error
        if text is not None:
            assert seen.error == text


def test_error_text_is_cut(shared, worker, queue):
    made = shared.submit(queue=queue)
    worker.outcome(worker.wait_dispatch(made.id), kind=Kind.FAILED, exit_code=1, error="ä".encode() * 20000)
    done = shared.finished(made.id)
    assert done.state == State.FAILED
    size = len(done.error.encode())
    assert 16 * 1024 - 8 <= size <= 16 * 1024 and set(done.error) <= {"ä", "\ufffd"}


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_result_limit(shared, worker, queue, size):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    result = b"\x00\xff" * (size // 2) + b"x" * (size % 2)
    worker.outcome(ref, exit_code=0, result=result, result_bytes=size)
    done = shared.finished(made.id)
    assert done.state == State.COMPLETED and done.exit_code == 0
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert done.result_bytes == size
    assert done.result_dropped == (size > 1 << 20)
    assert done.result == (b"" if size > 1 << 20 else result)
    assert not worker.stream.status  # the stream is up


def test_result_that_the_worker_left_out(shared, worker, queue):
    made = shared.submit(queue=queue)
    worker.outcome(worker.wait_dispatch(made.id), exit_code=0, result_bytes=5_000_000)
    done = shared.finished(made.id)
    assert done.state == State.COMPLETED and done.result_bytes == 5_000_000 and done.result_dropped


def test_retry_policy(shared, worker, queue):
    retry = stubs.task.RetryPolicy(max_attempts=3, initial_backoff=Duration(nanos=20_000_000), multiplier=1)
    made = shared.submit(queue=queue, retry=retry)
    for number in (1, 2):
        ref = worker.wait_dispatch(made.id, number)
        worker.outcome(ref, kind=Kind.FAILED, exit_code=number)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
    worker.outcome(worker.wait_dispatch(made.id, 3), exit_code=0, result=b"third")
    done = shared.finished(made.id)
    assert done.state == State.COMPLETED and done.result == b"third" and done.attempt == 3
    assert [(a.number, a.end, a.exit_code) for a in done.attempts] == [
        (1, End.FAILED, 1), (2, End.FAILED, 2), (3, End.SUCCEEDED, 0)]


def test_retry_ends_at_max_attempts(shared, worker, queue):
    retry = stubs.task.RetryPolicy(max_attempts=2, initial_backoff=Duration(nanos=20_000_000))
    made = shared.submit(queue=queue, retry=retry)
    for number in (1, 2):
        worker.outcome(worker.wait_dispatch(made.id, number), kind=Kind.FAILED, exit_code=number)
    done = shared.finished(made.id)
    assert done.state == State.FAILED and done.exit_code == 2 and len(done.attempts) == 2


def test_run_at(shared, worker, queue):
    later = make_spec(queue=queue)
    later.run_at.FromNanoseconds(time.time_ns() + 700_000_000)
    due = time.monotonic() + 0.7
    made = shared.tasks.SubmitTask(T.SubmitTaskRequest(spec=later), timeout=30).task
    sooner = shared.submit(queue=queue)
    worker.wait_dispatch(sooner.id)
    ref = worker.wait_dispatch(made.id)
    assert worker.receipt[ref] >= due - 0.05  # the database's clock decides
    worker.outcome(ref)
    assert shared.finished(made.id).state == State.COMPLETED


# ---- logs ----


def pieces(chunks):
    return [(c.stream, c.offset, bytes(c.data)) for c in chunks]


def test_logs(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    parts = [(T.STDOUT, b"one\n"), (T.STDERR, b"\xff\x00\xfe"), (T.STDOUT, b"x" * 65536), (T.STDERR, b"\xc3"), (T.STDOUT, b"\xa4")]
    offset = 0
    for stream, data in parts:
        worker.log(ref, offset, data, stream)
        offset += len(data)
    worker.outcome(ref, exit_code=0, log_end=offset)
    done = shared.finished(made.id)
    # Who sees a terminal state can read the last byte.
    chunks = shared.read_logs(made.id)
    whole = b"".join(data for _, data in parts)
    assert b"".join(c.data for c in chunks) == whole
    at = 0
    for c in chunks:
        assert c.offset == at and c.attempt == 1 and len(c.data) <= 65536
        at += len(c.data)
    assert done.attempts[0].log_bytes == len(whole)
    for stream in (T.STDOUT, T.STDERR):
        only = b"".join(c.data for c in shared.read_logs(made.id, stream=stream))
        assert only == b"".join(data for s, data in parts if s == stream)
    assert worker.wait(lambda: worker.log_stored.get(ref) == offset, "the log is said to be stored")
    for tail in (1, 2, 5, 65540, 65541, len(whole) - 1, len(whole), len(whole) + 1000):
        got = b"".join(c.data for c in shared.read_logs(made.id, tail_bytes=tail))
        assert got == whole[-tail:], tail
    for begin in (1, 3, 4, 6, 70, len(whole) - 1, len(whole)):
        chunks = shared.read_logs(made.id, offset=begin)
        assert b"".join(c.data for c in chunks) == whole[begin:]
        assert not chunks or chunks[0].offset == begin
    refusal = refused(lambda timeout: shared.read_logs(made.id, attempt=2))
    assert refusal.code() == grpc.StatusCode.NOT_FOUND
    assert refusal.details() == "attempt: this task has attempts 1 to 1"


def test_log_pieces_that_come_again(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    for offset, data in ((0, b"abc"), (3, b"def"), (0, b"abc"), (3, b"def"), (6, b"ghi"), (3, b"def")):
        worker.log(ref, offset, data)
    worker.outcome(ref, log_end=9)
    shared.finished(made.id)
    assert b"".join(data for _, _, data in pieces(shared.read_logs(made.id))) == b"abcdefghi"


def test_logs_follow(shared, worker, queue):
    made = shared.submit(queue=queue)
    seen, over = [], threading.Event()
    call = shared.tasks.ReadLogs(T.ReadLogsRequest(task_id=made.id, follow=True), timeout=PATIENCE)

    def read():
        for c in call:
            seen.append((c.stream, c.offset, bytes(c.data)))
        over.set()

    thread = threading.Thread(target=read)
    thread.start()
    ref = worker.wait_dispatch(made.id)
    offset = 0
    for i in range(20):
        data = b"line %d\n" % i
        worker.log(ref, offset, data, T.STDERR if i % 2 else T.STDOUT)
        offset += len(data)
        # Each piece is seen before the next is written: it comes live.
        wait_for(lambda: b"".join(s[2] for s in seen).endswith(data), lambda: f"piece {i} in {seen}")
    assert not over.is_set()
    worker.outcome(ref, log_end=offset)
    assert over.wait(PATIENCE)
    thread.join()
    assert b"".join(s[2] for s in seen) == b"".join(b"line %d\n" % i for i in range(20))


def test_logs_follow_over_attempts(shared, worker, queue):
    retry = stubs.task.RetryPolicy(max_attempts=2, initial_backoff=Duration(nanos=50_000_000))
    made = shared.submit(queue=queue, retry=retry)
    ref = worker.wait_dispatch(made.id, 1)
    call = shared.tasks.ReadLogs(T.ReadLogsRequest(task_id=made.id, follow=True), timeout=PATIENCE)
    worker.log(ref, 0, b"first")
    chunks = [next(call)]
    worker.outcome(ref, kind=Kind.FAILED, exit_code=1, log_end=5)
    ref = worker.wait_dispatch(made.id, 2)
    worker.log(ref, 0, b"second")
    worker.outcome(ref, log_end=6)
    chunks += list(call)
    assert [(c.attempt, c.offset, bytes(c.data)) for c in chunks] == [(1, 0, b"first"), (2, 0, b"second")]
    assert [bytes(c.data) for c in shared.read_logs(made.id, attempt=1)] == [b"first"]
    assert [bytes(c.data) for c in shared.read_logs(made.id)] == [b"second"]


def test_log_reader_that_goes_away(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    worker.log(ref, 0, b"x")
    for _ in range(5):
        call = shared.tasks.ReadLogs(T.ReadLogsRequest(task_id=made.id, follow=True), timeout=PATIENCE)
        assert bytes(next(call).data) == b"x"
        call.cancel()
    worker.outcome(ref, log_end=1)
    assert shared.finished(made.id).state == State.COMPLETED


def test_logs_of_a_task_without_attempt(shared, queue):
    made = shared.submit(queue=queue)
    assert shared.read_logs(made.id) == []
    call = shared.tasks.ReadLogs(T.ReadLogsRequest(task_id=made.id, follow=True), timeout=PATIENCE)
    shared.cancel(made.id)
    assert list(call) == []


# ---- waiting, deadlines, clients that leave ----


def test_wait_returns_when_the_task_ends(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(shared.get, made.id, 60.0) for _ in range(8)]
        begun = time.monotonic()
        worker.outcome(ref)
        for w in waiting:
            assert w.result(PATIENCE).state == State.COMPLETED
    assert time.monotonic() - begun < 20  # not the 60 s of `wait`
    assert shared.get(made.id, wait=60).state == State.COMPLETED


def test_wait_returns_after_its_time(shared, queue):
    made = shared.submit(queue=queue)
    begun = time.monotonic()
    assert shared.get(made.id, wait=0.3).state == State.PENDING
    assert time.monotonic() - begun >= 0.3
    shared.cancel(made.id)


def test_deadline_of_the_client(shared, queue):
    made = shared.submit(queue=queue)
    request = T.GetTaskRequest(task_id=made.id, wait=Duration(seconds=60))
    assert refused(shared.tasks.GetTask, request, timeout=0.3).code() == grpc.StatusCode.DEADLINE_EXCEEDED
    follow = T.ReadLogsRequest(task_id=made.id, follow=True)
    error = refused(lambda timeout: list(shared.tasks.ReadLogs(follow, timeout=0.3)))
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    shared.cancel(made.id)


def test_client_cancels(shared, queue):
    made = shared.submit(queue=queue)
    request = T.GetTaskRequest(task_id=made.id, wait=Duration(seconds=60))
    for _ in range(20):
        call = shared.tasks.GetTask.future(request, timeout=PATIENCE)
        call.cancel()
        with pytest.raises(grpc.FutureCancelledError):
            call.result(timeout=PATIENCE)
    assert shared.get(made.id).state == State.PENDING
    shared.cancel(made.id)


def test_client_that_leaves_during_submits(shared, queue):
    """The task is there or not, and the key says which: never two."""
    requests = [
        T.SubmitTaskRequest(spec=make_spec(queue=queue, name=f"n{i}"), idempotency_key=f"{queue}-{i}") for i in range(40)
    ]
    channel = shared.channel()
    stub = stubs.tasks_grpc.TaskServiceStub(channel)
    calls = [stub.SubmitTask.future(r, timeout=PATIENCE) for r in requests]
    calls[0].result()
    channel.close()
    replies = [shared.tasks.SubmitTask(r, timeout=PATIENCE) for r in requests]
    assert len({r.task.id for r in replies}) == 40
    listed = shared.list_all(queue=queue)
    assert sorted(t.id for t in listed) == sorted(r.task.id for r in replies)
    for t in listed:
        shared.cancel(t.id)


# ---- idempotency ----


def test_same_key_50_times_in_parallel(shared, queue):
    stubs_of = [stubs.tasks_grpc.TaskServiceStub(shared.channel()) for _ in range(5)]
    request = T.SubmitTaskRequest(spec=make_spec(queue=queue), idempotency_key=queue)
    gate = threading.Barrier(50)

    def submit(i):
        gate.wait(PATIENCE)
        return stubs_of[i % 5].SubmitTask(request, timeout=PATIENCE)

    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(submit, range(50)))
    assert len({r.task.id for r in replies}) == 1
    assert [r.created for r in replies].count(True) == 1
    assert len(shared.list_all(queue=queue)) == 1
    shared.cancel(replies[0].task.id)


def test_same_key_other_spec(shared, queue):
    made = shared.submit(key=queue, queue=queue, params={"a": "1"})
    for change in (dict(params={"a": "2"}), dict(params={}), dict(params={"a": "1"}, payload=b"x"),
                   dict(params={"a": "1"}, priority=1), dict(params={"a": "1"}, command=["/bin/false"])):
        error = refused(
            shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=make_spec(queue=queue, **change), idempotency_key=queue)
        )
        assert error.code() == grpc.StatusCode.ALREADY_EXISTS
        assert f'"{queue}" was used for task {made.id}' in error.details()
    assert len(shared.list_all(queue=queue)) == 1
    again = shared.submit_reply(key=queue, queue=queue, params={"a": "1"})
    assert not again.created and again.task.id == made.id
    shared.cancel(made.id)
    # The key lives as long as the task does.
    again = shared.submit_reply(key=queue, queue=queue, params={"a": "1"})
    assert not again.created and again.task.id == made.id and again.task.state == State.CANCELLED


def test_same_spec_in_another_order(shared, queue):
    """Maps have no order, the default queue has a name, and the origin is not compared."""
    def entry(field, key, value):
        body = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
        return bytes([field << 3 | 2, len(body)]) + body

    def request(entries, tail=b""):
        spec = b"\x12" + bytes([len(queue)]) + queue.encode() + b"\x1a\x01x" + b"".join(entries) + tail
        assert len(spec) < 16384
        head = b"\x0a" + bytes([len(spec) & 0x7F | 0x80, len(spec) >> 7])
        return head + spec + b"\x12" + bytes([len(queue)]) + queue.encode()

    entries = [entry(f, b"k%d" % i, b"v%d" % i) for f in (5, 8, 9) for i in range(5)]
    call = shared.channel().unary_unary("/reins.v1.TaskService/SubmitTask")
    origin = b"\x92\x01\x06" + b"\x0a\x04user"
    replies = [
        T.SubmitTaskResponse.FromString(call(body, timeout=PATIENCE))
        for body in (request(entries), request(entries[::-1]), request(entries[7:] + entries[:7], origin),
                     request([entry(5, b"k0", b"other")] + entries))  # the last of one key counts
    ]
    assert [r.created for r in replies] == [True, False, False, False]
    assert len({r.task.id for r in replies}) == 1
    shared.cancel(replies[0].task.id)


def test_group_is_all_or_none(shared, queue):
    shared.submit(key=queue + "0", queue=queue)
    requests = [T.SubmitTaskRequest(spec=make_spec(queue=queue), idempotency_key=queue + str(i)) for i in range(20)]
    requests[15].spec.name = "other"
    made = shared.tasks.SubmitTasks(T.SubmitTasksRequest(requests=requests), timeout=PATIENCE).tasks
    assert [m.created for m in made] == [False] + [True] * 19
    assert len({m.task_id for m in made}) == 20 == len(shared.list_all(queue=queue))
    # One conflict, and nothing of the rest is made.
    requests = [T.SubmitTaskRequest(spec=make_spec(queue=queue), idempotency_key=f"{queue}x{i}") for i in range(20)]
    requests[7].idempotency_key = queue + "15"
    error = refused(shared.tasks.SubmitTasks, T.SubmitTasksRequest(requests=requests))
    assert error.code() == grpc.StatusCode.ALREADY_EXISTS and queue + "15" in error.details()
    listed = shared.list_all(queue=queue)
    assert len(listed) == 20
    for t in listed:
        shared.cancel(t.id)


def test_key_twice_in_a_group(shared, queue):
    one = T.SubmitTaskRequest(spec=make_spec(queue=queue), idempotency_key=queue)
    free = T.SubmitTaskRequest(spec=make_spec(queue=queue))
    made = shared.tasks.SubmitTasks(T.SubmitTasksRequest(requests=[one, free, one, free, one]), timeout=PATIENCE).tasks
    assert made[0].task_id == made[2].task_id == made[4].task_id
    assert len({m.task_id for m in made}) == 3 == len(shared.list_all(queue=queue))
    assert [m.created for m in made].count(True) == 3
    other = T.SubmitTaskRequest(spec=make_spec(queue=queue, name="other"), idempotency_key=queue + "y")
    same = T.SubmitTaskRequest(spec=make_spec(queue=queue), idempotency_key=queue + "y")
    error = refused(shared.tasks.SubmitTasks, T.SubmitTasksRequest(requests=[other, free, same]))
    assert error.code() == grpc.StatusCode.ALREADY_EXISTS
    listed = shared.list_all(queue=queue)
    assert len(listed) == 3
    for t in listed:
        shared.cancel(t.id)


def test_10000_in_one_call(shared, make_worker, queue):
    requests = [T.SubmitTaskRequest(spec=make_spec(queue=queue, name=f"n{i}")) for i in range(10000)]
    made = shared.tasks.SubmitTasks(T.SubmitTasksRequest(requests=requests), timeout=PATIENCE).tasks
    ids = [m.task_id for m in made]
    assert len(set(ids)) == 10000 and all(m.created for m in made)
    names = {t.id: t.spec.name for t in shared.list_all(page_size=1000, queue=queue)}
    assert [names[i] for i in ids] == [f"n{i}" for i in range(10000)]
    # The order of the group is the order of dispatch, but for claims that overtake each other on several connections.
    worker = make_worker(shared, "w-" + queue, slots=100, queues=[queue])
    worker.wait(lambda: len(worker.verdicts) == 10000, "10,000 verdicts", 60)
    assert {v.verdict for v in worker.verdicts} == {Verdict.RECORDED}
    came = {t.task_id: i for i, t in enumerate(worker.dispatched)}
    off = sorted(abs(came[task_id] - i) for i, task_id in enumerate(ids))
    assert off[5000] <= 100 and off[-1] <= 2000


# ---- lists ----


def test_list_while_tasks_come_and_go(shared, make_worker, queue):
    requests = [T.SubmitTaskRequest(spec=make_spec(queue=queue)) for _ in range(300)]
    ids = [m.task_id for m in shared.tasks.SubmitTasks(T.SubmitTasksRequest(requests=requests), timeout=PATIENCE).tasks]
    filter_ = T.TaskFilter(states=[State.PENDING], queue=queue)
    seen, token, page = [], "", 0
    gone = set()
    while True:
        reply = shared.tasks.ListTasks(T.ListTasksRequest(filter=filter_, page_size=17, page_token=token), timeout=PATIENCE)
        assert len(reply.tasks) <= 17
        seen += [t.id for t in reply.tasks]
        token = reply.next_page_token
        if not token:
            break
        page += 1
        # New ones come, some already seen and some not yet seen go.
        shared.submit(queue=queue)
        left = [i for i in ids if i not in gone]
        for task_id in (left[page % len(left)], left[-(page % len(left)) - 1]):
            shared.cancel(task_id)
            gone.add(task_id)
    assert len(seen) == len(set(seen))
    stayed = set(ids) - gone
    assert stayed <= set(seen) <= set(ids)
    assert seen == sorted(seen, reverse=True)  # newest first; a UUIDv7 sorts by time
    for t in shared.list_all(queue=queue, states=[State.PENDING], page_size=1000):
        shared.cancel(t.id)


def test_list_filters_and_views(shared, worker, queue):
    a = shared.submit(queue=queue, payload=b"p", env={"A": "1"})
    ref = worker.wait_dispatch(a.id)
    worker.outcome(ref, result=b"r")
    shared.finished(a.id)
    b = shared.submit(queue=queue, name="b")
    worker.wait_dispatch(b.id)
    other = shared.submit(queue=queue + "x")
    assert [t.id for t in shared.list_all(queue=queue)] == [b.id, a.id]
    assert [t.id for t in shared.list_all(queue=queue, states=[State.COMPLETED])] == [a.id]
    assert [t.id for t in shared.list_all(queue=queue, states=[State.RUNNING, State.COMPLETED])] == [b.id, a.id]
    assert [t.id for t in shared.list_all(queue=queue, states=[State.FAILED])] == []
    assert other.id in [t.id for t in shared.list_all(states=[State.PENDING], page_size=1000)]
    basic = shared.list_all(queue=queue, states=[State.COMPLETED])[0]
    assert not basic.spec.payload and not basic.spec.env and not basic.result and not basic.attempts
    assert basic.result_bytes == 1 and basic.spec.command == ["/bin/true"]
    full = shared.list_all(queue=queue, states=[State.COMPLETED], view=stubs.task.TASK_VIEW_FULL)[0]
    assert full.spec.payload == b"p" and full.result == b"r" and full.spec.env["A"] == "1"
    worker.outcome((b.id, 1))
    shared.finished(b.id)
    shared.cancel(other.id)


def test_page_token_of_another_filter(shared, queue):
    made = [shared.submit(queue=queue) for _ in range(3)]
    first = shared.tasks.ListTasks(T.ListTasksRequest(filter=T.TaskFilter(queue=queue), page_size=2), timeout=PATIENCE)
    assert first.next_page_token
    for other in (T.TaskFilter(), T.TaskFilter(queue=queue + "x"), T.TaskFilter(queue=queue, states=[State.PENDING])):
        error = refused(
            shared.tasks.ListTasks, T.ListTasksRequest(filter=other, page_size=2, page_token=first.next_page_token)
        )
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and fields(error) == ["page_token"]
    for t in made:
        shared.cancel(t.id)


def test_page_ends_at_3_mib(shared, queue):
    made = [shared.submit(queue=queue, payload=bytes([i]) * 1000000) for i in range(7)]
    pages, token = [], ""
    while True:
        reply = shared.tasks.ListTasks(
            T.ListTasksRequest(filter=T.TaskFilter(queue=queue), view=stubs.task.TASK_VIEW_FULL, page_token=token),
            timeout=PATIENCE,
        )
        assert reply.ByteSize() <= 4 << 20
        pages.append([t.id for t in reply.tasks])
        token = reply.next_page_token
        if not token:
            break
    assert len(pages) > 1
    assert [i for p in pages for i in p] == [t.id for t in reversed(made)]
    for t in made:
        shared.cancel(t.id)


# ---- cancel ----


def test_cancel_pending(shared, make_worker, queue):
    made = shared.submit(queue=queue)
    for _ in range(2):
        reply = shared.cancel(made.id, "no longer needed")
        assert reply.id == made.id and reply.state == State.CANCELLED and reply.HasField("finished_at")
    worker = make_worker(shared, "w-" + queue, queues=[queue])
    after = shared.submit(queue=queue)
    assert shared.finished(after.id).state == State.COMPLETED
    assert [t.task_id for t in worker.dispatched] == [after.id]


def test_cancel_running(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    for _ in range(3):
        reply = shared.cancel(made.id, "wrong data")
        assert reply.state == State.RUNNING and reply.HasField("cancel_requested_at")
    assert worker.wait_stop(ref) == Stop.CANCELLED
    worker.outcome(ref, kind=Kind.STOPPED, signal=15, stop_reason=Stop.CANCELLED)
    done = shared.finished(made.id)
    assert done.state == State.CANCELLED and done.attempts[0].end == End.STOPPED
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    assert shared.cancel(made.id).state == State.CANCELLED


def test_cancel_beats_a_retry(shared, worker, queue):
    retry = stubs.task.RetryPolicy(max_attempts=5, initial_backoff=Duration(nanos=1_000_000))
    made = shared.submit(queue=queue, retry=retry)
    ref = worker.wait_dispatch(made.id)
    shared.cancel(made.id)
    worker.wait_stop(ref)
    worker.outcome(ref, kind=Kind.FAILED, exit_code=1)
    done = shared.finished(made.id)
    # The program ended before it was stopped: that counts as it is, but is not tried again.
    assert done.state == State.FAILED and len(done.attempts) == 1


def test_cancel_that_comes_too_late(shared, worker, queue):
    made = shared.submit(queue=queue)
    ref = worker.wait_dispatch(made.id)
    shared.cancel(made.id)
    worker.wait_stop(ref)
    worker.outcome(ref, exit_code=0, result=b"done anyway")
    done = shared.finished(made.id)
    assert done.state == State.COMPLETED and done.result == b"done anyway"


def test_cancel_terminal(shared, worker, queue):
    for kind, state in ((Kind.SUCCEEDED, State.COMPLETED), (Kind.FAILED, State.FAILED)):
        made = shared.submit(queue=queue)
        worker.outcome(worker.wait_dispatch(made.id), kind=kind)
        assert shared.finished(made.id).state == state
        error = refused(shared.tasks.CancelTask, T.CancelTaskRequest(task_id=made.id))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert shared.get(made.id).state == state


def test_cancel_racing_with_success(shared, make_worker, queue):
    """Each task ends once: COMPLETED (then the cancel was too late or refused) or CANCELLED, and its worker is told."""
    worker = make_worker(shared, "w-" + queue, policy=hold, queues=[queue], slots=40)
    made = [shared.submit(queue=queue) for _ in range(40)]
    refs = [worker.wait_dispatch(t.id) for t in made]
    replies = {}

    def cancel(task_id):
        try:
            replies[task_id] = shared.cancel(task_id).state
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.FAILED_PRECONDITION
            replies[task_id] = State.COMPLETED

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(f, *a) for ref in refs for f, a in ((cancel, (ref[0],)), (worker.outcome, (ref,)))]
        for job in jobs:
            job.result(PATIENCE)
    for ref in refs:
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        done = shared.get(ref[0])
        assert done.state == State.COMPLETED and len(done.attempts) == 1
        assert replies[ref[0]] in (State.RUNNING, State.COMPLETED)


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
@pytest.mark.parametrize("seconds", [253402300799, 2**33 + 2**30, 18446744073 + 1796000000])
def test_run_at_in_a_far_future(make_cluster, make_worker, tmp_path, store, seconds):
    """Beyond what nanoseconds in an int64 can say: neither run at once, nor in the way of what is due."""
    flags = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if store == "sqlite" else {}
    cluster = make_cluster(flags).start()
    worker = make_worker(cluster)
    far = stubs.task.TaskSpec().run_at
    far.seconds = seconds
    one = cluster.submit(run_at=far).id
    many = cluster.tasks.SubmitTasks(
        T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(run_at=far))] * 2), timeout=30).tasks
    soon = stubs.task.TaskSpec().run_at
    soon.FromNanoseconds(time.time_ns() + 300_000_000)
    assert cluster.finished(cluster.submit(run_at=soon).id).state == State.COMPLETED
    cluster.restart()
    worker.reconnect()
    soon.FromNanoseconds(time.time_ns() + 300_000_000)
    assert cluster.finished(cluster.submit(run_at=soon).id).state == State.COMPLETED
    for task_id in (one, *(m.task_id for m in many)):
        t = cluster.get(task_id)
        assert (t.state, t.attempt, t.run_at.seconds) == (State.PENDING, 0, seconds)
