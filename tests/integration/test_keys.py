"""The three Redis keys: exactly as documented during a run, and none after."""

from cluster import CALM, QUICK, make_spec, owner_key, wait_for
from fake_worker import hold
import stubs

State, T = stubs.State, stubs.tasks


def test_keys_during_and_after(cluster, make_worker):
    worker = make_worker(cluster, "gpu-1.lab/a", slots=4, policy=hold)
    refs = [worker.wait_dispatch(cluster.submit().id) for _ in range(2)]
    session = worker.session
    hb, hash_key = "reins:worker:{gpu-1.lab/a}:hb", "reins:worker:{gpu-1.lab/a}:task"
    owners = [owner_key(t) for t, _ in refs]
    wait_for(lambda: sorted(cluster.keys.keys("*")) == sorted([hb, hash_key, *owners]), lambda: cluster.keys.keys("*"))
    assert cluster.keys.type(hb) == "string" and cluster.keys.get(hb) == f"m1 {session}"
    assert cluster.keys.type(hash_key) == "hash"
    assert cluster.keys.hgetall(hash_key) == {t: str(a) for t, a in refs}
    for (_, attempt), owner in zip(refs, owners):
        assert cluster.keys.type(owner) == "string"
        assert cluster.keys.get(owner) == f"gpu-1.lab/a {session} {attempt}"
    assert 0 < cluster.keys.pttl(hb) <= 10_000
    for key in (hash_key, *owners):
        assert 100_000 < cluster.keys.pttl(key) <= 120_000
    # One ends: its key and field go at once, the other's stay.
    worker.outcome(refs[0])
    worker.wait_verdict(refs[0])
    wait_for(lambda: not cluster.keys.exists(owners[0]), "the owner key is gone")
    wait_for(lambda: cluster.keys.hgetall(hash_key) == {refs[1][0]: "1"}, "its field is gone")
    assert cluster.keys.get(owners[1]) == f"gpu-1.lab/a {session} 1"
    worker.outcome(refs[1])
    worker.wait_verdict(refs[1])
    wait_for(lambda: cluster.keys.keys("*") == [hb], lambda: cluster.keys.keys("*"))


def test_reserved_before_it_is_sent(cluster, make_worker):
    """preempt writes the field; a new attempt has the new number."""
    worker = make_worker(cluster, policy=hold)
    spec = make_spec()
    spec.retry.max_attempts = 2
    spec.retry.initial_backoff.FromMilliseconds(1)
    t = cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=spec), timeout=30).task
    worker.outcome(worker.wait_dispatch(t.id, 1), kind=2)
    worker.wait_dispatch(t.id, 2)
    wait_for(lambda: cluster.keys.hgetall("reins:worker:{w1}:task") == {t.id: "2"}, "the hash names attempt 2")
    wait_for(lambda: cluster.keys.get(owner_key(t.id)) == f"w1 {worker.session} 2", "the owner key")


def test_heartbeats_renew(make_cluster, make_worker):
    cluster = make_cluster({**QUICK, "task-key-ttl": "1s"}).start()
    worker = make_worker(cluster, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    keys = ["reins:worker:{w1}:hb", "reins:worker:{w1}:task", owner_key(ref[0])]
    wait_for(lambda: all(cluster.keys.exists(k) for k in keys), "all keys")
    first = worker.stream.acked
    while worker.stream.acked < first + 14:  # 3.5 s: more than any TTL
        worker.wait_heartbeat_acked()
        assert all(cluster.keys.exists(k) for k in keys)
        seen = worker.stream.acked
        worker.wait(lambda: worker.stream.acked > seen, "the next heartbeat")
    worker.outcome(ref)
    worker.wait_verdict(ref)
    wait_for(lambda: not [k for k in keys[1:] if cluster.keys.exists(k)], "keys gone")


def test_keys_of_a_lost_worker(quick, make_worker):
    worker = make_worker(quick, policy=hold, proxy=True)
    t = quick.submit()
    worker.wait_dispatch(t.id)
    wait_for(lambda: len(quick.keys.keys("*")) == 3, "three keys")
    worker.kill()
    quick.in_state(t.id, State.PENDING)
    # Take-back deletes the task's two, the lease its own.
    wait_for(lambda: quick.keys.keys("*") == [], lambda: quick.keys.keys("*"))


def test_keys_follow_a_new_session(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, proxy=True)
    ref = worker.wait_dispatch(cluster.submit().id)
    old = worker.session
    worker.kill()
    worker.beat = True
    worker.connect()
    assert worker.session > old
    wait_for(lambda: cluster.keys.get("reins:worker:{w1}:hb") == f"m1 {worker.session}", "hb of the new session")
    wait_for(
        lambda: cluster.keys.get(owner_key(ref[0])) == f"w1 {worker.session} 1", "owner of the new session"
    )
    assert cluster.keys.hgetall("reins:worker:{w1}:task") == {ref[0]: "1"}


def test_prefix(make_cluster, make_worker):
    cluster = make_cluster({**CALM, "redis-prefix": "lab7:"}).start()
    worker = make_worker(cluster, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    expected = {"lab7:worker:{w1}:hb", "lab7:worker:{w1}:task", owner_key(ref[0], "lab7:")}
    wait_for(lambda: set(cluster.keys.keys("*")) == expected, lambda: cluster.keys.keys("*"))


def test_newer_session_in_hb_holds_work_back(cluster, make_worker):
    """preempt refuses for a newer session; the next heartbeat of ours can't take that away, the store decides."""
    worker = make_worker(cluster, policy=hold)
    cluster.keys.set("reins:worker:{w1}:hb", f"m2 {worker.session + 5}", px=1500)
    t = cluster.submit()
    assert cluster.get(t.id).state == State.PENDING
    ref = worker.wait_dispatch(t.id)  # once that key has ended
    worker.outcome(ref)
    assert len(cluster.finished(t.id).attempts) == 1


def test_full_hash_holds_work_back(cluster, make_worker):
    worker = make_worker(cluster, policy=hold, slots=1)
    wait_for(lambda: cluster.keys.exists("reins:worker:{w1}:hb"), "hb")
    cluster.keys.hset("reins:worker:{w1}:task", "01890a5d-ac96-774b-bcce-b302099a8057", "1")
    t = cluster.submit()
    ref = worker.wait_dispatch(t.id)  # the next heartbeat writes the hash as it is
    worker.outcome(ref)
    assert len(cluster.finished(t.id).attempts) == 1


def test_held_after_it_was_given_away(quick, make_worker):
    """A worker that comes back with an attempt that another one has by now takes a slot with it, and no owner key."""
    first = make_worker(quick, "w1", policy=hold, proxy=True)
    ref = first.wait_dispatch(quick.submit().id)
    first.kill()
    second = make_worker(quick, "w2", policy=hold)
    second.wait_dispatch(ref[0], 2)
    first.beat = False
    first.connect()
    owner = f"w2 {second.session} 2"
    for _ in range(3):
        first.wait_heartbeat_acked()
        wait_for(lambda: quick.keys.hgetall("reins:worker:{w1}:task") == {ref[0]: "1"}, "its slot is taken")
        assert quick.keys.get(owner_key(ref[0])) == owner
    assert first.wait_stop(ref)
    second.outcome((ref[0], 2))
    assert quick.finished(ref[0]).attempt == 2
    wait_for(lambda: not quick.keys.exists(owner_key(ref[0])), "the key goes with the end")
