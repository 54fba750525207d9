"""Many tasks: each ends once."""

import time
from collections import Counter

import stubs
from cluster import PATIENCE, make_spec, wait_for
from fake_worker import Kind, Verdict, W

State, T = stubs.State, stubs.tasks


def test_10000_tasks_over_4_workers(make_cluster, make_worker, record_property):
    cluster = make_cluster({"redis-timeout": "20s"}).start()
    workers = [make_worker(cluster, f"w{i}", slots=50, policy=lambda t: W.Outcome(kind=Kind.SUCCEEDED, exit_code=0))
               for i in range(4)]
    begun = time.monotonic()
    # Half in groups, half one by one with many in flight: from the backlog and by eager match.
    group = T.SubmitTasksRequest(requests=[T.SubmitTaskRequest(spec=make_spec(queue=f"q{i % 3}")) for i in range(1000)])
    one = T.SubmitTaskRequest(spec=make_spec())
    ids = []
    for _ in range(5):
        singles = [cluster.tasks.SubmitTask.future(one, timeout=PATIENCE) for _ in range(1000)]
        ids += [m.task_id for m in cluster.tasks.SubmitTasks(group, timeout=PATIENCE).tasks]
        ids += [c.result().task.id for c in singles]
    assert len(set(ids)) == 10000
    wait_for(lambda: sum(len(w.verdicts) for w in workers) >= 10000, "10,000 verdicts", 90)
    record_property("tasks_per_s", round(10000 / (time.monotonic() - begun)))
    verdicts = [v for w in workers for v in w.verdicts]
    assert Counter(v.verdict for v in verdicts) == {Verdict.RECORDED: 10000}
    given = Counter(t.task_id for w in workers for t in w.dispatched)
    assert set(given) == set(ids) and set(given.values()) == {1}
    assert all(len(w.dispatched) > 100 for w in workers)
    listed = cluster.list_all(page_size=1000)
    assert Counter(t.state for t in listed) == {State.COMPLETED: 10000}
    assert {t.attempt for t in listed} == {1}
    wait_for(lambda: len(cluster.keys.keys("reins:task:*")) == 0, "no owner keys")
