"""Payloads, results and error texts of any content and size, on both stores: kept exactly, or refused at submit with limit and
size; and no content ever holds back an outcome (S45, S46). And the trace that a submission belongs to."""

import base64
import hashlib
import json
import os
import subprocess

import grpc
import pytest
import stubs
from aftermath import check
from cluster import BUILD, PATIENCE, make_spec
from fake_worker import Kind, Verdict, hold

State, T = stubs.State, stubs.tasks
MIB = 1 << 20
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request, make_cluster, tmp_path):
    embedded = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if request.param == "sqlite" else {}
    return make_cluster(embedded).start()


CONTENTS = {
    "nul": b"a\x00b\x00",
    "lone surrogates": b"\xed\xa0\x80 \xed\xbf\xbf",
    "not text": bytes(range(256)),
    "almost text": "ok é".encode() + b"\xc3",
    "1 MB": os.urandom(1_000_000),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_payload_to_result(cluster, start_worker, content):
    """What is submitted is what the program reads, and what it leaves is what is given out."""
    start_worker(cluster)
    t = cluster.submit(command=["sh", "-c", "cat >$REINS_RESULT"], payload=content)
    done = cluster.finished(t.id)
    assert done.state == State.COMPLETED and done.spec.payload == content
    assert done.result == content and (done.result_bytes, done.result_dropped) == (len(content), False)
    shown = subprocess.run([BUILD / "client" / "reins", "status", "-o", "json", t.id, "--server", cluster.url], capture_output=True, timeout=PATIENCE)
    assert base64.b64decode(json.loads(shown.stdout)["result"]) == content
    check(cluster, [t.id])


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_errors_of_any_content(cluster, make_worker, content):
    worker = make_worker(cluster, policy=hold)
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)
    worker.outcome(ref, kind=Kind.FAILED, exit_code=3, error=content, result=content[:1000], result_bytes=len(content[:1000]))
    assert worker.wait_verdict(ref) == Verdict.RECORDED
    done = cluster.finished(t.id)
    assert (done.state, done.exit_code) == (State.FAILED, 3)
    kept = content[:16 << 10]
    try:
        assert done.error.encode() == kept and "\x00" not in done.error
    except (AssertionError, UnicodeEncodeError):
        assert done.error_raw == kept
    assert done.error
    check(cluster, [t.id])


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 3 * MIB])
@pytest.mark.parametrize("code", [0, 3])
def test_results_about_the_limit(cluster, start_worker, size, code):
    """One over it ends its attempt as it ended, says so, and the session stays."""
    worker = start_worker(cluster)
    t = cluster.submit(command=["sh", "-c", f"head -c {size} /dev/urandom >$REINS_RESULT; exit {code}"])
    done = cluster.finished(t.id)
    assert (done.state, done.exit_code) == (State.FAILED if code else State.COMPLETED, code)
    assert (done.result_bytes, done.result_dropped) == (size, size > MIB)
    assert len(done.result) == (size if size <= MIB else 0)
    assert cluster.finished(cluster.submit().id).state == State.COMPLETED
    assert worker.log().count("session: open") == 1
    check(cluster, [t.id])


def test_submit_wait_says_that_a_result_was_dropped(cluster, start_worker):
    start_worker(cluster)
    done = subprocess.run([BUILD / "client" / "reins", "submit", "--wait", "--server", cluster.url, "--", "sh", "-c",
                           f"head -c {2 * MIB} /dev/zero >$REINS_RESULT; exit 5"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 5
    assert "2MiB, was not kept: it is over the limit" in done.stderr


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1])
def test_payloads_about_the_limit(cluster, start_worker, size):
    start_worker(cluster)
    payload = os.urandom(size)
    if size > MIB:
        with pytest.raises(grpc.RpcError) as caught:
            cluster.submit(payload=payload)
        assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert all(word in caught.value.details() for word in ("payload", str(size), str(MIB))), caught.value.details()
        assert cluster.list_all() == []
        return
    t = cluster.submit(command=["sh", "-c", "sha256sum >$REINS_RESULT"], payload=payload)
    assert cluster.finished(t.id).result.split()[0].decode() == hashlib.sha256(payload).hexdigest()
    check(cluster, [t.id])


# ---- traces ----


def environment(cluster, task_id):
    return dict(v.split("=", 1) for v in cluster.finished(task_id).result.decode().split("\0") if v)


def submit(cluster, metadata=(), **fields):
    spec = make_spec(command=["sh", "-c", "env -0 >$REINS_RESULT"], **fields)
    return cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), metadata=metadata, timeout=PATIENCE).task


def test_the_trace_goes_on_in_the_program(cluster, start_worker):
    start_worker(cluster, slots=4)
    by_header = submit(cluster, metadata=[("traceparent", TRACE)])
    by_field = submit(cluster, metadata=[("traceparent", TRACE.replace("0af7", "ffff"))], origin=stubs.task.Origin(user="me", traceparent=TRACE))
    for t in (by_header, by_field):
        assert t.trace_id == TRACE[3:35]
        assert environment(cluster, t.id)["TRACEPARENT"] == TRACE
        done = cluster.get(t.id)
        assert (done.trace_id, done.spec.origin.traceparent) == (TRACE[3:35], TRACE)
    # Neither a header that is none nor none at all makes one.
    for metadata in ([], [("traceparent", "00-xyz")], [("traceparent", "00-" + "0" * 32 + "-b7ad6b7169203331-01")]):
        t = submit(cluster, metadata=metadata)
        assert t.trace_id == "" and "TRACEPARENT" not in environment(cluster, t.id)
    assert {t.trace_id for t in cluster.list_all()} == {"", TRACE[3:35]}
    # In a batch, and from the environment of the command line.
    request = T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec()) for _ in range(2)])
    for made in cluster.tasks.SubmitTasks(request, metadata=[("traceparent", TRACE)], timeout=PATIENCE).tasks:
        assert cluster.get(made.task_id).trace_id == TRACE[3:35]
    done = subprocess.run([BUILD / "client" / "reins", "submit", "--wait", "--server", cluster.url, "--", "printenv", "TRACEPARENT"],
                          capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "TRACEPARENT": TRACE})
    assert done.stdout == TRACE + "\n", done
    with pytest.raises(grpc.RpcError) as caught:
        submit(cluster, origin=stubs.task.Origin(traceparent="00-1-2-3"))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "spec.origin.traceparent" in caught.value.details()


def test_a_key_stands_for_the_spec_without_its_trace(cluster):
    first = cluster.submit_reply("key", queue="later")
    request = T.SubmitTaskRequest(spec=make_spec(queue="later"), idempotency_key="key")
    again = cluster.tasks.SubmitTask(request, metadata=[("traceparent", TRACE)], timeout=PATIENCE)
    assert (again.task.id, again.created) == (first.task.id, False)
