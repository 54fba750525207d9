"""Tasks that are real programs: how tests submit them and watch them and their workers."""
import pytest
import stubs
from cluster import wait_for

State = stubs.State
Info = stubs.admin.WorkerInfo


@pytest.fixture
def go(tmp_path):
    """A file that programs wait for: touch() it."""
    return tmp_path / 'go'


def sh(cluster, script, go='/nowhere', **spec):
    return cluster.submit(command=['sh', '-c', script], env={'GO': str(go)}, **spec).id


def runs(cluster, *ids, attempt=1):
    """Until the programs of that attempt are there."""
    def started(i):
        t = cluster.get(i)
        return t.state == State.RUNNING and t.attempt == attempt and t.HasField('started_at')
    wait_for(lambda: all(started(i) for i in ids), lambda: f'they run: {[cluster.get(i) for i in ids]}')


def ends_of(cluster, task_id):
    return [a.end for a in cluster.get(task_id).attempts]


def output(cluster, task_id, **fields):
    return b''.join(c.data for c in cluster.read_logs(task_id, **fields))


def info(cluster, worker_id):
    found = cluster.admin.ListWorkers(stubs.admin.ListWorkersRequest(worker_id=worker_id), timeout=30).workers
    return found[0] if found else None


def connected(cluster, *names):
    """Until these workers are."""
    wait_for(lambda: all((w := info(cluster, n)) and w.state == Info.CONNECTED for n in names), f'{names} are connected')


def beat(cluster, worker_id):
    return info(cluster, worker_id).last_heartbeat_at.ToMilliseconds()


def heartbeats_go_on(cluster, workers, n=3):
    """n more of a worker, or of each of several."""
    names = [workers] if isinstance(workers, str) else list(workers)
    for _ in range(n):
        last = {name: beat(cluster, name) for name in names}  # counted back from now each time: not the same to the microsecond
        wait_for(lambda: all(beat(cluster, name) > last[name] + 20 for name in names), 'the next heartbeat')


def seconds(timestamp):
    return timestamp.ToNanoseconds() / 1e9
