"""Requests that are refused, and the limits: the field is named, the limit and the size are said, nothing is changed."""

import math

import grpc
import pytest
import stubs
from cluster import make_spec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from refusals import fields, refused

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
T = stubs.tasks
Spec = stubs.task.TaskSpec
Retry = stubs.task.RetryPolicy
Resources = stubs.task.Resources
Origin = stubs.task.Origin
MIB = 1 << 20
DAY = 86400


def count(cluster):
    return len(cluster.list_all(page_size=1000))


def d(seconds, nanos=0):
    return Duration(seconds=seconds, nanos=nanos)


BAD_NAMES = ["a b", "ä", "a:b", "a\tb", "n" * 256, "{x}"]
BAD_SPECS = [
    *[("name", dict(name=n)) for n in BAD_NAMES],
    *[("queue", dict(queue=n)) for n in BAD_NAMES],
    *[("handler", dict(command=[], handler=n)) for n in BAD_NAMES],
    ("command", dict(command=["x"], handler="h")),
    ("command[0]", dict(command=["", "x"])),
    *[("env", dict(env={k: "v"})) for k in ("", "1A", "A-B", "A B", "A=B", "Ä", "REINS_X", "REINS_")],
    *[("working_dir", dict(working_dir=w)) for w in ("tmp", "./x", "~", "/" + "d" * 4096)],
    ("labels", dict(labels={f"k{i}": "" for i in range(65)})),
    *[("labels", dict(labels={k: "v"})) for k in ("", "k" * 64, "a b", "ä")],
    ("labels", dict(labels={"k": "v" * 256})),
    ("params", dict(params={"": "v"})),
    *[("priority", dict(priority=p)) for p in (-1001, 1001, 2**31 - 1, -(2**31))],
    *[("resources.cpu_millis", dict(resources=Resources(cpu_millis=n))) for n in (-1, 10**9 + 1, 2**63 - 1)],
    *[("resources.memory_bytes", dict(resources=Resources(memory_bytes=n))) for n in (-1, 2**48 + 1)],
    *[("resources.gpus", dict(resources=Resources(gpus=n))) for n in (-1, 1025)],
    *[("resources.custom", dict(resources=Resources(custom=c))) for c in (
        {"licenses": 0}, {"licenses": -1}, {"licenses": 2**62 + 1}, {"": 1}, {"a b": 1}, {"a=b": 1}, {"n" * 256: 1},
        {f"k{i}": 1 for i in range(17)})],
    *[("retry.max_attempts", dict(retry=Retry(max_attempts=n))) for n in (-1, 1001)],
    *[("retry.initial_backoff", dict(retry=Retry(initial_backoff=w))) for w in (d(-1), d(7 * DAY + 1), d(0, -1))],
    *[("retry.max_backoff", dict(retry=Retry(max_backoff=w))) for w in (d(-1), d(7 * DAY + 1), d(0, 999999999))],
    ("retry.max_backoff", dict(retry=Retry(initial_backoff=d(3), max_backoff=d(2)))),
    *[("retry.multiplier", dict(retry=Retry(multiplier=m)))
      for m in (0.5, 101.0, -1.0, math.nan, math.inf, -math.inf, 0.999999)],
    *[("timeout", dict(timeout=w)) for w in (d(-1), d(100 * 366 * DAY), d(1, 10**9), d(1, -1), d(2**48))],
    *[("expiry", dict(expiry=w)) for w in (d(-1), d(100 * 366 * DAY))],
    *[("lease_ttl", dict(lease_ttl=w)) for w in (d(-1), d(DAY + 1), d(DAY, 1))],
    *[("run_at", dict(run_at=Timestamp(seconds=s, nanos=n)))
      for s, n in ((253402300800, 0), (-62135596801, 0), (0, -1), (0, 10**9))],
    *[("origin", dict(origin=Origin(**{f: "x" * 256}))) for f in ("user", "host", "git_commit", "client")],
    ("origin.directory", dict(origin=Origin(directory="/" + "d" * 4096))),
]


@pytest.mark.parametrize("field, change", BAD_SPECS, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_spec(shared, field, change):
    before = count(shared)
    spec = make_spec(**change)
    error = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=spec))
    assert error.code() == INVALID, error.details()
    assert fields(error) == [f"spec.{field}"]
    # The same in a group: none is made, and the path says which one it was.
    good = T.SubmitTaskRequest(spec=make_spec())
    error = refused(
        shared.tasks.SubmitTasks, T.SubmitTasksRequest(requests=[good, good, T.SubmitTaskRequest(spec=spec), good])
    )
    assert error.code() == INVALID, error.details()
    assert fields(error) == [f"requests[2].spec.{field}"]
    assert count(shared) == before


def test_neither_command_nor_handler(shared):
    before = count(shared)
    error = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=Spec(name="x")))
    assert error.code() == INVALID and fields(error) == ["spec.command"]
    error = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest())
    assert error.code() == INVALID and fields(error) == ["spec"]
    assert count(shared) == before


GOOD_SPECS = [
    dict(name="n" * 255, queue="q" * 255), dict(command=[], handler="a.b/c-d_e"), dict(priority=1000), dict(priority=-1000),
    dict(command=["x", ""]), dict(env={"_": "", "A1_b": "ä=\n"}), dict(working_dir="/"),
    dict(labels={f"k{i}": "v" * 255 for i in range(63)} | {"k" * 63: ""}), dict(params={"ä": ""}),
    dict(resources=Resources(cpu_millis=10**9, memory_bytes=2**48, gpus=1024)),
    dict(resources=Resources(custom={f"k{i}": 2**62 for i in range(15)} | {"n" * 255: 1})),
    dict(expiry=d(0)), dict(expiry=d(99 * 365 * DAY)),
    dict(retry=Retry(max_attempts=1000, initial_backoff=d(7 * DAY), max_backoff=d(7 * DAY), multiplier=100.0)),
    dict(retry=Retry(multiplier=1.0)), dict(timeout=d(0)), dict(timeout=d(99 * 365 * DAY)), dict(lease_ttl=d(DAY)),
    dict(run_at=Timestamp(seconds=253402300799, nanos=999999000)),
    dict(origin=Origin(user="u" * 255, directory="/" + "d" * 4095, git_dirty=True)),
]


@pytest.mark.parametrize("fields_set", GOOD_SPECS, ids=lambda v: ",".join(v))
def test_spec_at_its_limits_is_kept_as_it_came(shared, fields_set):
    spec = make_spec(**{"queue": "limits", **fields_set})
    made = shared.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    kept = shared.get(made.id)
    assert kept.spec == spec
    assert kept.state == stubs.State.PENDING
    shared.cancel(made.id)


def test_queue_is_default(shared):
    made = shared.submit(queue="")
    assert shared.get(made.id).spec.queue == "default"
    shared.cancel(made.id)


def over(error, limit, size):
    assert error.code() in (INVALID, EXHAUSTED)
    assert str(limit) in error.details() and str(size) in error.details(), error.details()


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1])
def test_payload_limit(shared, size):
    before = count(shared)
    payload = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    request = T.SubmitTaskRequest(spec=make_spec(queue="limits", payload=payload))
    if size <= MIB:
        made = shared.tasks.SubmitTask(request, timeout=30).task
        assert shared.get(made.id).spec.payload == payload
        shared.cancel(made.id)
    else:
        error = refused(shared.tasks.SubmitTask, request)
        over(error, MIB, size)
        assert fields(error) == ["spec.payload"]
        assert count(shared) == before


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("where", ["command", "env"])
def test_command_and_env_limit(shared, where, more):
    # Each word counts with its NUL, each variable with "=" and NUL.
    limit = 256 * 1024
    rest = limit + more - 2
    spec = make_spec(queue="limits", command=["x"])
    if where == "command":
        spec.command.extend(["y" * 999] * (rest // 1000) + ["z" * (rest % 1000 - 1)])
    else:
        spec.env["A"] = "v" * (rest - 3)
    if more <= 0:
        made = shared.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
        assert shared.get(made.id).spec == spec
        shared.cancel(made.id)
    else:
        over(refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=spec)), limit, limit + 1)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_params_limit(shared, more):
    limit = 64 * 1024
    spec = make_spec(queue="limits", params={"k": "v" * 1000, "l": "w" * (limit + more - 1002)})
    if more <= 0:
        made = shared.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
        assert shared.get(made.id).spec == spec
        shared.cancel(made.id)
    else:
        error = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=spec))
        over(error, limit, limit + 1)
        assert fields(error) == ["spec.params"]


def test_message_limit(shared):
    before = count(shared)
    spec = make_spec(payload=b"x" * (5 * MIB))
    error = refused(shared.tasks.SubmitTask, T.SubmitTaskRequest(spec=spec))
    assert error.code() == EXHAUSTED
    assert str(4 * MIB) in error.details()
    assert count(shared) == before


def test_idempotency_key_limit(shared):
    before = count(shared)
    request = T.SubmitTaskRequest(spec=make_spec(), idempotency_key="k" * 256)
    error = refused(shared.tasks.SubmitTask, request)
    assert error.code() == INVALID and fields(error) == ["idempotency_key"]
    error = refused(shared.tasks.SubmitTasks, T.SubmitTasksRequest(requests=[request]))
    assert error.code() == INVALID and fields(error) == ["requests[0].idempotency_key"]
    assert count(shared) == before


@pytest.mark.parametrize("n", [0, 10001])
def test_number_of_a_group(shared, n):
    before = count(shared)
    request = T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec())] * n)
    error = refused(shared.tasks.SubmitTasks, request)
    assert error.code() in (INVALID, EXHAUSTED)
    assert "10000" in error.details() and str(n) in error.details()
    assert count(shared) == before


def raw(cluster, method, body):
    return refused(cluster.channel().unary_unary(f"/reins.v1.TaskService/{method}"), body)


def field_bytes(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


@pytest.mark.parametrize("bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"a\x00b", b"\xf4\x90\x80\x80"])
def test_text_that_is_none(shared, bad):
    """Text that isn't UTF-8, or holds U+0000, in every kind of place; grpcio would not send most of it."""
    before = count(shared)
    command = field_bytes(3, b"/bin/true")
    entry = field_bytes(1, b"k") + field_bytes(2, bad)
    key = field_bytes(1, bad) + field_bytes(2, b"v")
    specs = [
        field_bytes(1, bad) + command, field_bytes(2, bad) + command, command + field_bytes(3, bad), field_bytes(4, bad),
        command + field_bytes(5, entry), command + field_bytes(5, key), command + field_bytes(6, b"/" + bad),
        command + field_bytes(8, entry), command + field_bytes(9, entry), command + field_bytes(9, key),
        command + b"\x92\x01" + bytes([len(bad) + 2]) +
        field_bytes(1, bad),
    ]
    for spec in specs:
        error = raw(shared, "SubmitTask", field_bytes(1, spec))
        assert error.code() == INVALID, (spec, error.details())
        assert fields(error), (spec, error.details())
    error = raw(shared, "SubmitTask", field_bytes(1, command) + field_bytes(2, bad))
    assert error.code() == INVALID and fields(error) == ["idempotency_key"]
    assert count(shared) == before


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x0b" * 400])
def test_bytes_that_are_no_message(shared, body):
    before = count(shared)
    for method in ("SubmitTask", "SubmitTasks", "GetTask", "ListTasks", "CancelTask", "ReadLogs"):
        error = raw(shared, method, body)
        assert error.code() == INVALID, (method, error.details())
    assert count(shared) == before


NO_IDS = ["", "x", "01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a80577",
          "g1890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057"]
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize("task_id", NO_IDS)
def test_no_task_id(shared, task_id):
    for call, request in (
        (shared.tasks.GetTask, T.GetTaskRequest(task_id=task_id)),
        (shared.tasks.CancelTask, T.CancelTaskRequest(task_id=task_id)),
        (lambda r, timeout: list(shared.tasks.ReadLogs(r, timeout=timeout)), T.ReadLogsRequest(task_id=task_id)),
    ):
        error = refused(call, request)
        assert error.code() == INVALID and fields(error) == ["task_id"]


def test_unknown_task(shared):
    for call, request in (
        (shared.tasks.GetTask, T.GetTaskRequest(task_id=UNKNOWN)),
        (shared.tasks.GetTask, T.GetTaskRequest(task_id=UNKNOWN, wait=d(5))),
        (shared.tasks.CancelTask, T.CancelTaskRequest(task_id=UNKNOWN)),
        (lambda r, timeout: list(shared.tasks.ReadLogs(r, timeout=timeout)), T.ReadLogsRequest(task_id=UNKNOWN)),
        (lambda r, timeout: list(shared.tasks.ReadLogs(r, timeout=timeout)),
         T.ReadLogsRequest(task_id=UNKNOWN, follow=True)),
    ):
        assert refused(call, request).code() == grpc.StatusCode.NOT_FOUND


BAD_READS = [
    ("wait", "GetTask", T.GetTaskRequest(task_id=UNKNOWN, wait=d(-1))),
    ("wait", "GetTask", T.GetTaskRequest(task_id=UNKNOWN, wait=d(1, -1))),
    ("reason", "CancelTask", T.CancelTaskRequest(task_id=UNKNOWN, reason="r" * 256)),
    ("page_size", "ListTasks", T.ListTasksRequest(page_size=-1)),
    ("page_size", "ListTasks", T.ListTasksRequest(page_size=1001)),
    ("page_token", "ListTasks", T.ListTasksRequest(page_token="x")),
    ("page_token", "ListTasks", T.ListTasksRequest(page_token="x" * 1025)),
    ("filter.states", "ListTasks", T.ListTasksRequest(filter=T.TaskFilter(states=[9]))),
    ("filter.states", "ListTasks", T.ListTasksRequest(filter=T.TaskFilter(states=[0]))),
    ("filter.queue", "ListTasks", T.ListTasksRequest(filter=T.TaskFilter(queue="a b"))),
    ("attempt", "ReadLogs", T.ReadLogsRequest(task_id=UNKNOWN, attempt=-1)),
    ("offset", "ReadLogs", T.ReadLogsRequest(task_id=UNKNOWN, offset=-1)),
    ("tail_bytes", "ReadLogs", T.ReadLogsRequest(task_id=UNKNOWN, tail_bytes=-1)),
    ("tail_bytes", "ReadLogs", T.ReadLogsRequest(task_id=UNKNOWN, tail_bytes=1, offset=1)),
    ("stream", "ReadLogs", T.ReadLogsRequest(task_id=UNKNOWN, stream=7)),
]


@pytest.mark.parametrize("field, method, request_message", BAD_READS, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_read(shared, field, method, request_message):
    call = getattr(shared.tasks, method)
    if method == "ReadLogs":
        error = refused(lambda r, timeout: list(call(r, timeout=timeout)), request_message)
    else:
        error = refused(call, request_message)
    assert error.code() == INVALID, error.details()
    assert fields(error) == [field]


@pytest.mark.parametrize("path", ["/reins.v1.TaskService/Nothing", "/reins.v1.Nothing/GetTask", "/GetTask", "/"])
def test_unknown_method(shared, path):
    assert refused(shared.channel().unary_unary(path), b"").code() == grpc.StatusCode.UNIMPLEMENTED


def test_server_info(shared):
    info = shared.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=30)
    assert info.master_id == "m1" and info.incarnation >= 1 and info.store_id
    assert info.store == info.UP and info.lease == info.UP
    limits = info.limits
    assert (limits.message_bytes, limits.payload_bytes, limits.result_bytes) == (4 * MIB, MIB, MIB)
    assert (limits.labels, limits.label_key_bytes, limits.label_value_bytes) == (64, 63, 255)
    assert (limits.tasks_per_submit, limits.name_bytes, limits.params_bytes) == (10000, 255, 65536)


def test_health(shared):
    assert shared.health() == "SERVING"
    assert shared.health("reins.v1.TaskService") == "SERVING"
    assert shared.health("liveness") == "SERVING"
    with pytest.raises(grpc.RpcError) as e:
        shared.health("nobody")
    assert e.value.code() == grpc.StatusCode.NOT_FOUND
