"""kill -9 of reinsd in the middle of 5,000 submits: every acknowledged task is there, none twice.

On the default store, and once more on Postgres and Redis."""

import collections
import concurrent.futures
import subprocess
import threading
import time

import grpc
import pytest
import stubs
from cluster import BUILD, PATIENCE, make_spec, wait_for

TASKS = 5000
CHANNELS = 4
IN_FLIGHT = 32  # of all channels together
BY_CLI = 40     # of the tasks; a process each
KILLS = 3


class Submitter:
    """Submits with keys, each again under its key until it is acknowledged. Notes what was said, and when."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.lock = threading.Lock()
        self.channels = [self._stub() for _ in range(CHANNELS)]
        self.acknowledged = {}  # key: id
        self.said = []          # (id, created) of each answer
        self.unknown = set()    # keys of which a call ended without an answer
        self.conflicts = []     # keys with two ids

    def _stub(self):
        return stubs.tasks_grpc.TaskServiceStub(self.cluster.channel())

    def note(self, key, task_id, created):
        with self.lock:
            self.said.append((task_id, created))
            if self.acknowledged.setdefault(key, task_id) != task_id:
                self.conflicts.append(key)

    def submit(self, number):
        key = f"key-{number}"
        at = number % CHANNELS
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            stub = self.channels[at]
            try:
                request = stubs.tasks.SubmitTaskRequest(spec=make_spec(name=key, queue="later"), idempotency_key=key)
                reply = stub.SubmitTask(request, timeout=PATIENCE)
                return self.note(key, reply.task.id, reply.created)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() < deadline, e
            with self.lock:
                self.unknown.add(key)
                if self.channels[at] is stub:
                    self.channels[at] = self._stub()
            time.sleep(0.05)

    def submit_by_cli(self, number):
        key = f"key-{number}"
        command = [BUILD / "client" / "reins", "submit", "--server", self.cluster.url, "--idempotency-key", key,
                   "--name", key, "--queue", "later", "--", "/bin/true"]
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
            if done.returncode == 0:
                return self.note(key, done.stdout.strip(), None)
            assert done.returncode == 69 and time.monotonic() < deadline, done
            with self.lock:
                self.unknown.add(key)
            time.sleep(0.05)

    def all(self):
        """Calls not waited for yet."""
        every = TASKS // BY_CLI
        pool = concurrent.futures.ThreadPoolExecutor(IN_FLIGHT)
        jobs = [pool.submit(self.submit_by_cli if n % every == 0 else self.submit, n) for n in range(TASKS)]
        pool.shutdown(wait=False)
        return jobs


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_killed_in_the_middle_of_submits(make_cluster, tmp_path, store):
    embedded = {"store": f"sqlite:{tmp_path}/reins.db", "lease": "memory"} if store == "sqlite" else {}
    cluster = make_cluster({"log-level": "info", **embedded}).start()
    submitter = Submitter(cluster)
    jobs = submitter.all()
    before = {}  # acknowledged when the kill came
    for n in range(1, KILLS + 1):
        wait_for(lambda: len(submitter.acknowledged) >= n * TASKS // (KILLS + 1), cluster.log, timeout=4 * PATIENCE)
        cluster.kill9()
        before = dict(submitter.acknowledged)
        assert len(before) < TASKS, "the kill came too late"
        cluster.start()
        # All of it, at once: not only what is repeated comes back.
        there = {t.id: t.spec.name for t in cluster.list_all(page_size=1000)}
        lost = [key for key, task_id in before.items() if there.get(task_id) != key]
        assert not lost, f"{len(lost)} acknowledged tasks are gone: {lost[:5]}"
    for job in jobs:
        job.result(4 * PATIENCE)

    assert submitter.unknown, "no call was cut off: nothing was tested"
    assert not submitter.conflicts
    assert set(submitter.acknowledged) == {f"key-{n}" for n in range(TASKS)}
    tasks = cluster.list_all(page_size=1000)
    names = collections.Counter(t.spec.name for t in tasks)
    twice = [name for name, n in names.items() if n > 1]
    assert not twice, f"{len(twice)} tasks are there twice: {twice[:5]}"
    assert {t.spec.name: t.id for t in tasks} == submitter.acknowledged
    created = collections.Counter(task_id for task_id, made in submitter.said if made)
    assert max(created.values()) == 1, "created twice"
    known = sum(1 for _, made in submitter.said if made is False)
    print(f"{store}: {TASKS} submits, {KILLS} kills; {len(submitter.unknown)} calls without an answer, of which {known} had made their task")
