"""Masters and workers killed under load, over TLS: no task lost, none done twice.

REINS_SLOW=1: 10,000 tasks; else 500."""
import collections
import os
import threading
import time

import grpc
import stubs
from cluster import PATIENCE, make_spec, wait_for

State = stubs.State
SLOW = os.environ.get('REINS_SLOW', '') not in ('', '0')
TASKS = 10000 if SLOW else 500
WORKERS = 4
BATCH = 100


def submit_all(cluster, stub, program):
    """In batches with idempotency keys, each repeated until the master says that it has them; the ids."""
    ids = []
    for batch in range(TASKS // BATCH):
        request = stubs.tasks.SubmitTasksRequest(requests=[
            stubs.tasks.SubmitTaskRequest(spec=make_spec(command=program), idempotency_key=f'{batch}-{i}')
            for i in range(BATCH)])
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                reply = stub.SubmitTasks(request, timeout=PATIENCE)
                break
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() < deadline, e
                time.sleep(0.05)
        ids += [t.task_id for t in reply.tasks]
    return ids


def done_so_far(path):
    return path.read_bytes().count(b'\n') if path.exists() else 0


def test_killed_under_load(make_cluster, start_worker, tmp_path):
    cluster = make_cluster({'log-level': 'info', 'lost-limit': '100', 'heartbeat-interval': '250ms', 'lease-ttl': '3s'}, tls=True).start()
    workers = [start_worker(cluster, f'w{i}', slots=8, log_level='info') for i in range(WORKERS)]
    journal = tmp_path / 'journal'
    program = ['sh', '-c', f'echo $REINS_TASK_ID $REINS_ATTEMPT >>{journal}']  # short appends are not torn
    ids = []
    submitter = threading.Thread(target=lambda: ids.extend(submit_all(cluster, cluster.tasks, program)))
    began = time.monotonic()
    submitter.start()
    # One kill after each sixth of the work: a worker, the master, the other workers.
    for n, victim in enumerate([workers[0], cluster, *workers[1:]], 1):
        wait_for(lambda: done_so_far(journal) >= n * TASKS // 6, lambda: cluster.log()[-3000:], timeout=20 * PATIENCE)
        if victim is cluster:
            cluster.restart()
        else:
            victim.kill()
            victim.start()
    submitter.join(20 * PATIENCE)
    assert len(set(ids)) == TASKS
    terminal = 'SELECT count(*) FROM ended'
    wait_for(lambda: cluster.sql(terminal)[0][0] == TASKS, lambda: cluster.log()[-3000:], timeout=20 * PATIENCE)
    took = time.monotonic() - began

    tasks = cluster.list_all(page_size=1000)
    assert {t.id for t in tasks} == set(ids)
    ran = collections.Counter(tuple(line.split()) for line in journal.read_text().splitlines())
    assert max(ran.values()) == 1, 'an attempt ran twice'
    again = 0
    for t in tasks:
        assert t.state == State.COMPLETED and (t.id, str(t.attempt)) in ran, t
        if t.attempt > 1:
            again += 1
            ends = [a.end for a in cluster.get(t.id).attempts]
            assert ends.pop() == stubs.End.SUCCEEDED and set(ends) <= {stubs.End.LOST, stubs.End.RECALLED}, t
    # Only what a killed worker held was done again: its slots, and what was on its way to it.
    assert again <= WORKERS * 64, again
    print(f'{TASKS} tasks over {WORKERS} workers, all killed once: {took:.1f} s, {again} begun again')
