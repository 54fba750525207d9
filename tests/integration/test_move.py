"""reinsd --move-from: what a sqlite: store held is in Postgres afterwards, to the byte, and the workers go on.

REINS_SLOW=1: with 100,000 tasks, and more moments of being killed."""

import datetime
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
import uuid

import pytest
import stubs
from cluster import LONG, PATIENCE, REINSD, dying_with_us, free_port, make_spec, needs_crash_points, wait_for
from fake_worker import Kind, Verdict, W, hold

State, T = stubs.State, stubs.tasks
SLOW = os.environ.get("REINS_SLOW") == "1"
TABLES = ["task", "ready", "delayed", "running", "ended", "attempt", "idempotency", "worker", "queue"]


class Embedded:
    """A reinsd on a file, and an empty database beside it."""

    def __init__(self, make_cluster, folder):
        self.path = folder / "reins.db"
        self.cluster = make_cluster({**LONG, "store": f"sqlite:{self.path}", "lease": "memory"})
        self.url = self.cluster.postgres.url(self.cluster.database)

    def start(self):
        self.cluster.start()
        return self.cluster

    def on_postgres(self):
        """The same master, after the move."""
        self.cluster.flags["store"] = self.url
        return self.cluster.start()

    def command(self, source=None, target=None):
        return [*dying_with_us(), str(REINSD), f"--move-from={source or f'sqlite:{self.path}'}", f"--store={target or self.url}"]

    def move(self, status=0, source=None, target=None, env=None):
        """What it printed."""
        done = subprocess.run(
            self.command(source, target), capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})}
        )
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def rows(self, table):
        """Of the source, its files opened so that nothing changes in them."""
        with sqlite3.connect(f"file:{self.path}?mode=ro", uri=True) as db:
            return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def content(self):
        """All rows of the source, without the mark."""
        found = {}
        for name in ("reins.db", "reins.db-logs"):
            with sqlite3.connect(f"file:{self.path.with_name(name)}?mode=ro", uri=True) as db:
                for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                    found[name, table] = sorted(r for r in map(repr, db.execute(f"SELECT * FROM {table}")) if "moved_to" not in r)
        return found

    def mark(self):
        with sqlite3.connect(f"file:{self.path}?mode=ro", uri=True) as db:
            return [value for (value,) in db.execute("SELECT value FROM meta WHERE key = 'moved_to'")]

    def check_counts(self):
        for table in TABLES:
            assert self.cluster.sql(f"SELECT count(*) FROM reins.{table}")[0][0] == self.rows(table), table
        assert self.cluster.sql("SELECT last_value FROM reins.task_seq")[0][0] >= self.rows("task")

    def checksum(self):
        """Of all rows in Postgres."""
        return [
            self.cluster.sql(f"SELECT count(*), coalesce(sum(hashtext(x::text)), 0) FROM reins.{t} x")[0]
            for t in [*TABLES, "log", "metric"]
        ]

    def marks(self):
        return self.cluster.sql("SELECT key FROM reins.meta WHERE key LIKE 'move\\_%'")


@pytest.fixture
def embedded(make_cluster, tmp_path):
    return Embedded(make_cluster, tmp_path)


def submit_many(cluster, n, **spec):
    """Ids, in order."""
    ids = []
    while n:
        part = min(n, 5000)
        request = T.SubmitTasksRequest()
        for i in range(part):
            item = request.requests.add()
            item.spec.CopyFrom(make_spec(**spec))
        ids += [r.task_id for r in cluster.tasks.SubmitTasks(request, timeout=PATIENCE).tasks]
        n -= part
    return ids


def seen(cluster, ids):
    """The tasks as clients see them, but for what depends on who is connected."""
    found = {}
    for i in ids:
        t = cluster.get(i)
        t.pending_reason = ""
        found[i] = t
    return found


def end_by_name(task):
    name = task.spec.name
    if name.startswith("ok"):
        return W.Outcome(kind=Kind.SUCCEEDED, exit_code=0, result=b"\x00\xff" + name.encode(), result_bytes=2 + len(name))
    if name.startswith("bad"):
        return W.Outcome(kind=Kind.FAILED, exit_code=3, error=b"broken \xff " + name.encode())
    return None


def fill(cluster, worker):
    """Tasks in all states: {what: ids}."""
    made = {"ready": [], "keys": {}}
    for i, priority in enumerate([0, 5, 0, -3, 5, 0]):
        made["ready"].append(cluster.submit(queue="later", priority=priority, payload=bytes(range(256)), labels={"n": str(i)}).id)
    late = make_spec(queue="later")
    late.run_at.FromSeconds(int(time.time()) + 3600)
    made["delayed"] = [cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=late), timeout=PATIENCE).task.id]
    made["ok"] = [cluster.submit(name=f"ok{i}", params={"lr": "0.1"}).id for i in range(5)]
    bad = make_spec(name="bad")
    bad.retry.max_attempts = 3
    bad.retry.initial_backoff.FromMilliseconds(1)
    made["bad"] = [cluster.tasks.SubmitTask(T.SubmitTaskRequest(spec=bad), timeout=PATIENCE).task.id for _ in range(2)]
    made["cancelled"] = [cluster.submit(queue="later").id]
    cluster.cancel(made["cancelled"][0])
    for key in ("one", "two"):
        made["keys"][key] = cluster.submit(key=key, name="ok-" + key).id
    made["running"] = [cluster.submit(name="run").id for _ in range(3)]
    refs = [worker.wait_dispatch(i) for i in made["running"]]
    for n, data in enumerate([b"first\n", b"\x00\x01\xfe", b"last"]):
        worker.log(refs[0], [0, 6, 9][n], data, stream=T.STDERR if n == 1 else T.STDOUT)
    cluster.cancel(refs[2][0], reason="wished")
    worker.wait_stop(refs[2])
    for i in [*made["ok"], *made["bad"], *made["keys"].values()]:
        cluster.finished(i)
    worker.wait(lambda: worker.log_stored.get(refs[0], 0) >= 13, "the log is stored")
    cluster.admin.PauseQueue(stubs.admin.PauseQueueRequest(queue="idle", reason="moves"), timeout=PATIENCE)
    made["refs"] = refs
    return made


def ids_of(made):
    return [i for k in ("ready", "delayed", "ok", "bad", "cancelled", "running") for i in made[k]] + list(made["keys"].values())


def logs_of(cluster, task_id):
    return [(c.stream, c.offset, c.data) for c in cluster.read_logs(task_id) if c.data]


def test_all_goes_along(embedded, make_worker):
    cluster = embedded.start()
    worker = make_worker(cluster, policy=end_by_name, slots=8, queues=["default"])
    made = fill(cluster, worker)
    before, log = seen(cluster, ids_of(made)), logs_of(cluster, made["running"][0])
    assert b"".join(d for _, _, d in log) == b"first\n\x00\x01\xfelast"
    store_id, session = worker.stream.welcome.store_id, worker.session
    by_label = [t.id for t in cluster.list_all(label_selector="n in (1,4)")]
    assert len(by_label) == 2
    assert cluster.stop() == 0
    before_move = embedded.content()
    said = embedded.move()
    assert embedded.content() == before_move, "the source has changed"
    assert re.search(rf"^task +{len(before)} +{len(before)} ", said, re.M), said
    assert store_id in said
    embedded.check_counts()
    assert embedded.marks() == []
    assert cluster.sql("SELECT count(*) FROM reins.task_other UNION ALL SELECT count(*) FROM reins.ended_other "
                       "UNION ALL SELECT count(*) FROM reins.log_other") == [(0,), (0,), (0,)]

    embedded.on_postgres()
    assert seen(cluster, before) == before
    assert logs_of(cluster, made["running"][0]) == log
    assert [t.id for t in cluster.list_all(label_selector="n in (1,4)")] == by_label
    queues = cluster.admin.ListQueues(stubs.admin.ListQueuesRequest(), timeout=PATIENCE).queues
    assert [(q.name, q.paused, q.paused_reason) for q in queues if q.name == "idle"] == [("idle", True, "moves")]
    worker.reconnect(store_id=store_id)
    assert worker.stream.welcome.store_id == store_id
    assert worker.session > session
    assert set(worker.stream.adopted) == set(made["refs"])
    worker.wait_stop(made["refs"][2])
    worker.log(made["refs"][0], 13, b"!")
    for ref in made["refs"][:2]:
        worker.outcome(ref, log_end=14 if ref == made["refs"][0] else 0)
        assert worker.wait_verdict(ref) == Verdict.RECORDED
        done = cluster.finished(ref[0])
        assert (done.state, done.attempt, len(done.attempts)) == (State.COMPLETED, 1, 1)
    worker.outcome(made["refs"][2], kind=Kind.STOPPED)
    assert cluster.finished(made["refs"][2][0]).state == State.CANCELLED
    assert b"".join(d for _, _, d in logs_of(cluster, made["running"][0])) == b"first\n\x00\x01\xfelast!"
    # Keys answer the same task; a new task comes behind all others.
    for key, task_id in made["keys"].items():
        again = cluster.submit_reply(key=key, name="ok-" + key)
        assert (again.task.id, again.created) == (task_id, False)
    last = cluster.submit(queue="later").id
    other = make_worker(cluster, "w2", slots=1, queues=["later"])
    everything = [*made["ready"], last]
    for i in everything:
        cluster.finished(i)
    order = [1, 4, 0, 2, 5, 6, 3]
    assert [t.task_id for t in other.dispatched] == [everything[n] for n in order]
    assert cluster.get(made["delayed"][0]).state == State.PENDING


def test_programs_go_on_over_the_move(embedded, start_worker, tmp_path):
    """Real ones: one runs all the while, one ends while there is no master."""
    cluster = embedded.start()
    start_worker(cluster)
    gates = [tmp_path / "gate0", tmp_path / "gate1"]
    ids = [
        cluster.submit(command=["sh", "-c", f"echo on; while [ ! -e {g} ]; do sleep 0.05; done; echo off; exit {n}"]).id
        for n, g in enumerate(gates)
    ]
    for i in ids:
        wait_for(lambda: logs_of(cluster, i), "the first words")
    cluster.stop()
    gates[1].touch()
    embedded.move()
    embedded.on_postgres()
    done = cluster.finished(ids[1])
    assert (done.state, done.exit_code, done.attempt, len(done.attempts)) == (State.FAILED, 1, 1, 1)
    gates[0].touch()
    done = cluster.finished(ids[0])
    assert (done.state, done.exit_code, done.attempt, len(done.attempts)) == (State.COMPLETED, 0, 1, 1)
    for i in ids:
        assert b"".join(d for _, _, d in logs_of(cluster, i)) == b"on\noff\n"


def test_a_log_left_behind_by_a_kill(embedded):
    """The master was killed: what is only in the write-ahead log goes along too."""
    cluster = embedded.start()
    ids = submit_many(cluster, 20)
    cluster.kill9()
    assert embedded.path.with_name("reins.db-wal").stat().st_size > 0
    embedded.move()
    embedded.check_counts()
    embedded.on_postgres()
    assert {t.id for t in cluster.list_all(page_size=1000)} == set(ids)
    # And the file is still a store.
    cluster.stop()
    cluster.flags.update({"store": f"sqlite:{embedded.path}", "ignore-moved": "true"})
    cluster.start()
    assert len(cluster.list_all(page_size=1000)) == 20


def add_copies(path, ids, table="task", id_column="id", **changes):
    """Rows like the table's first, with other ids and behind all others."""
    with sqlite3.connect(path) as db:
        for i in ids:
            seq = db.execute("SELECT max(seq) FROM task").fetchone()[0] + (1 if table == "task" else 0)
            db.execute(f"CREATE TEMP TABLE one AS SELECT * FROM {table} ORDER BY seq LIMIT 1")
            db.execute(f"UPDATE one SET {id_column} = ?, seq = ?", (i.bytes, seq))
            for column, value in changes.items():
                db.execute(f"UPDATE one SET {column} = {value}")
            db.execute(f"INSERT INTO {table} SELECT * FROM one")
            db.execute("DROP TABLE one")


def test_older_tasks_get_their_labels_afterwards(embedded):
    """An upgrade had not come to them yet."""
    cluster = embedded.start()
    task = cluster.submit(labels={"team": "vision"}).id
    assert cluster.stop() == 0
    with sqlite3.connect(embedded.path) as db:
        db.execute("UPDATE task SET labels = NULL")
        db.execute("INSERT INTO meta VALUES ('unlabelled_below', 1 + (SELECT max(seq) FROM task))")
    embedded.move()
    embedded.on_postgres()
    request = T.ListTasksRequest(filter=T.TaskFilter(label_selector="team=vision"))
    wait_for(lambda: [t.id for t in cluster.tasks.ListTasks(request, timeout=PATIENCE).tasks] == [task], "it has its labels")
    wait_for(lambda: not cluster.sql("SELECT value FROM reins.meta WHERE key = 'unlabelled_below'"), "none is left")


def test_old_weeks_have_partitions(embedded, make_worker):
    cluster = embedded.start()
    worker = make_worker(cluster, policy=end_by_name)
    cluster.finished(cluster.submit(name="ok").id)
    worker.close()
    cluster.stop()
    days = [datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc), datetime.datetime(2024, 3, 3, 23, 59, 59, 999000, datetime.timezone.utc),
            datetime.datetime(2024, 3, 4, tzinfo=datetime.timezone.utc), datetime.datetime(2025, 12, 31, tzinfo=datetime.timezone.utc)]
    mondays = ["20240226", "20240226", "20240304", "20251229"]
    ids = [uuid.UUID(f"{round(d.timestamp() * 1000):012x}7000800000000000000{n}") for n, d in enumerate(days)]
    odd = uuid.UUID(int=7)  # of no time
    for i in [*ids, odd]:
        add_copies(embedded.path, [i])
        add_copies(embedded.path, [i], "ended", "task_id", finished_us=-5, started_us=1 << 62)
    embedded.move()
    embedded.check_counts()
    for table, column in (("task", "id"), ("ended", "task_id")):
        where = dict(cluster.sql(f"SELECT {column}::text, tableoid::regclass::text FROM reins.{table}"))
        assert [where[str(i)] for i in ids] == [f"{table}_{m}" for m in mondays]
        assert where[str(odd)] == f"{table}_other"
    # What is no time for Postgres: none where there may be none, else the nearest.
    times = cluster.sql("SELECT DISTINCT started_at, extract(epoch FROM finished_at) FROM reins.ended WHERE task_id < %s", str(ids[-1]))
    assert [(s, float(f)) for s, f in times] == [(None, 1e-6)]
    embedded.on_postgres()
    assert cluster.get(str(ids[0])).state == State.COMPLETED


def test_a_row_that_postgres_refuses(embedded):
    cluster = embedded.start()
    submit_many(cluster, 1)
    cluster.stop()
    add_copies(embedded.path, [uuid.uuid4()], name="CAST(x'ff' AS TEXT)")
    said = embedded.move(69)
    assert "refuses a row" in said and "column name" in said and "run the same again" not in said
    assert embedded.marks() and cluster.sql("SELECT count(*) FROM reins.task") == [(0,)]


def test_no_column_is_forgotten(embedded):
    """Who adds a table or a column to a store must say in server/move/move_tables.c whether it goes along."""
    cluster = embedded.start()
    cluster.stop()
    moved = {"task": 24, "ready": 20, "delayed": 20, "running": 27, "ended": 25, "attempt": 20, "idempotency": 3, "worker": 12,
             "log": 6, "metric": 4, "queue": 3}
    embedded.on_postgres()
    there = dict(cluster.sql(
        "SELECT c.relname::text, count(*)::int FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE c.relnamespace = 'reins'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition GROUP BY 1"))
    # Which Hello a session came of counts at the store that it came to: `hello` and `hello_sent` stay behind.
    # Events stay: who watches lists again.
    assert there == {**moved, "worker": 14, "meta": 2, "master": 5, "event": 4, "event_stream": 4, "event_floor": 2}
    here = {}
    for path in (embedded.path, embedded.path.with_name("reins.db-logs")):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            here.update(db.execute("SELECT m.name, count(*) FROM sqlite_schema m, pragma_table_info(m.name) WHERE m.type = 'table' GROUP BY 1"))
    assert here == {**moved, "ended": 26, "worker": 12, "meta": 2, "master": 5, "log_task": 2, "event": 3}


# Columns that a task need not have, with a value for each, as the two stores show it.
WHEN = 4_000_000_000_000_000  # far off: nothing expires while it is looked at
OPTIONAL = {
    "task": {"handler": "h", "custom": "licenses=2", "expires": WHEN},
    "ready": {"handler": "h", "custom": "licenses=2", "expires": WHEN, "open_worker": "w1"},
    "delayed": {"handler": "h", "custom": "licenses=2", "expires": WHEN},
    "running": {"handler": "h", "custom": "licenses=2", "devices": "GPU-1 2", "cause": "cancelled: why \u00e4"},
    "ended": {"session": 7, "lease_ns": 9, "devices": "GPU-1 2", "log_dropped": 5, "cause": "why", "oom_killed": 1,
              "instance": bytes(range(16))},
    "attempt": {"session": 7, "devices": "GPU-1 2", "log_dropped": 5, "cause": "why", "oom_killed": 1, "instance": bytes(range(16))},
    "worker": {"info": b"\x00\xff", "drain_mode": 2, "drain_within_ns": 11, "drain_reason": "new disk", "heard": WHEN},
}


def test_what_a_task_need_not_have_goes_along(embedded, make_worker):
    cluster = embedded.start()
    made = fill(cluster, make_worker(cluster, policy=end_by_name, slots=8, queues=["default"]))
    assert made["bad"] and cluster.stop() == 0
    with sqlite3.connect(embedded.path) as db:
        for table, values in OPTIONAL.items():
            names = [f"{n}_us" if values[n] == WHEN else n for n in values]
            assert db.execute(f"UPDATE {table} SET {', '.join(n + ' = ?' for n in names)}", list(values.values())).rowcount > 0, table
    with sqlite3.connect(embedded.path.with_name("reins.db-logs")) as db:
        db.execute("INSERT INTO metric VALUES (?, 1, 3, ?)", (uuid.UUID(made["ok"][0]).bytes, b"\x00point"))
    embedded.move()
    embedded.on_postgres()
    shown = {n: f"(extract(epoch FROM {n}_at) * 1000000)::int8" for n in ("expires", "heard")}
    shown |= {"instance": "uuid_send(instance)", "oom_killed": "oom_killed::int"}
    for table, values in OPTIONAL.items():
        columns = ", ".join(shown.get(n, n) for n in values)
        rows = {tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)
                for row in cluster.sql(f"SELECT {columns} FROM reins.{table}")}
        assert rows == {tuple(values.values())}, table
    assert [(a, n, bytes(p)) for a, n, p in cluster.sql("SELECT attempt, number, point FROM reins.metric")] == [(1, 3, b"\x00point")]
    assert cluster.sql("SELECT count(*) FROM reins.metric_other") == [(0,)]


# ---- refusals ----


def test_refused_while_a_master_has_the_source(embedded):
    cluster = embedded.start()
    said = embedded.move(64)
    assert "in use by another master" in said and str(cluster.process.pid) in said
    cluster.submit()


def test_refused_when_the_target_has_other_tasks(embedded):
    cluster = embedded.start()
    submit_many(cluster, 3)
    cluster.stop()
    embedded.on_postgres()
    submit_many(cluster, 2)
    assert "a master uses it" in embedded.move(64)
    cluster.stop()
    assert "it holds 2 other tasks" in embedded.move(64)
    embedded.on_postgres()
    assert len(cluster.list_all()) == 2


def test_refused_for_what_the_urls_say(embedded):
    embedded.start().stop()
    same = f"sqlite:{embedded.path}"
    assert "that is the --store itself" in embedded.move(64, target=same)
    assert "no such kind of store" in embedded.move(64, source="mysql://x/y")
    assert "only" in embedded.move(64, source=embedded.url, target=same)
    assert "only" in embedded.move(64, target="sqlite:other.db")
    assert "No such file" in embedded.move(64, source=f"sqlite:{embedded.path}.not")
    stranger = embedded.path.with_name("stranger.db")
    stranger.write_bytes(b"no database at all, but long enough to be looked at as one" * 100)
    assert "not a store of Reins" in embedded.move(64, source=f"sqlite:{stranger}")
    said = embedded.move(69, target=f"postgres://reins@127.0.0.1:{free_port()}/none")
    assert "run the same again" in said


def test_moved_once(embedded):
    """The same again has nothing to do, unless the source went on living."""
    cluster = embedded.start()
    submit_many(cluster, 3)
    cluster.stop()
    embedded.move()
    assert "nothing is left to do" in embedded.move()
    embedded.on_postgres()
    submit_many(cluster, 1)
    cluster.stop()
    assert "nothing is left to do" in embedded.move()
    cluster.flags.update({"store": f"sqlite:{embedded.path}", "ignore-moved": "true"})
    cluster.start().stop()
    assert "was moved there before" in embedded.move(64)
    assert cluster.sql("SELECT count(*) FROM reins.task") == [(4,)]


def refused_start(cluster):
    """What a reinsd says that ends by itself."""
    before = len(cluster.log())
    cluster.start(wait=False)
    assert cluster.process.wait(PATIENCE) == 69
    return cluster.log()[before:]


def test_the_source_is_marked(embedded):
    """Nobody runs both: a master refuses the file that was moved, names where to, and how to go back."""
    cluster = embedded.start()
    ids = submit_many(cluster, 3, queue="later")
    cluster.stop()
    assert embedded.mark() == []
    embedded.move()
    target = f"database {cluster.database} on 127.0.0.1:{cluster.postgres.port}"
    assert embedded.mark() == [target]
    for _ in range(2):
        said = refused_start(cluster)
        assert f"was moved to {target}" in said and "--ignore-moved" in said, said
    # Nor does it go to a second place.
    other = cluster.postgres.create_database()
    try:
        said = embedded.move(64, target=cluster.postgres.url(other))
        assert target in said and "--ignore-moved" in said
        assert cluster.postgres.execute(other, "SELECT count(*) FROM reins.task") == [(0,)]
        # Going back: once, and the mark is gone.
        cluster.flags["ignore-moved"] = "true"
        cluster.start()
        assert [t.id for t in reversed(cluster.list_all())] == ids
        cluster.stop()
        assert embedded.mark() == []
        del cluster.flags["ignore-moved"]
        cluster.start().stop()
        embedded.move(target=cluster.postgres.url(other))
        assert embedded.mark() == [target.replace(cluster.database, other)]
    finally:
        cluster.postgres.drop_database(other)


@needs_crash_points
def test_killed_before_the_mark(embedded):
    """The same command finds all done and marks the source."""
    cluster = embedded.start()
    submit_many(cluster, 3)
    cluster.stop()
    embedded.move(-signal.SIGKILL, env={"REINS_CRASH_POINT": "move-finished"})
    assert embedded.mark() == []
    assert "nothing is left to do" in embedded.move()
    assert len(embedded.mark()) == 1


# ---- interruptions ----


def check_closed(embedded):
    """A master on the half-moved store serves nobody and says why."""
    cluster = embedded.cluster
    if not embedded.marks():
        return
    flags = dict(cluster.flags)
    cluster.flags["store"] = embedded.url
    cluster.start(wait=False)
    wait_for(lambda: "is not finished" in cluster.log(), cluster.log)
    assert cluster.health() != "SERVING"
    cluster.kill9()
    cluster.flags.update(flags)


@needs_crash_points
def test_killed_at_each_point(embedded, make_worker):
    cluster = embedded.start()
    worker = make_worker(cluster, policy=end_by_name, slots=8, queues=["default"])
    fill(cluster, worker)
    submit_many(cluster, 11000, queue="later")
    cluster.stop()
    points = ["move-marked", "move-batch:1", "move-committed:1", "move-batch:2", "move-committed:3", "move-batch:3",
              "move-committed:5", "move-batch:1", "move-finish", "move-finished"]
    for point in points:
        embedded.move(-signal.SIGKILL, env={"REINS_CRASH_POINT": point})
        if point in ("move-marked", "move-batch:2"):
            check_closed(embedded)
        assert bool(embedded.marks()) == (point != "move-finished")
    embedded.check_counts()
    assert "nothing is left to do" in embedded.move()
    at_once = embedded.checksum()
    # The same as in one go.
    cluster.sql("DROP SCHEMA reins CASCADE")
    embedded.move()
    assert embedded.checksum() == at_once


def test_killed_at_any_moment(embedded):
    cluster = embedded.start()
    ids = submit_many(cluster, 20000 if SLOW else 6000, queue="later")
    cluster.stop()
    begin = time.monotonic()
    embedded.move()
    whole = time.monotonic() - begin
    expected = embedded.checksum()
    rounds = 30 if SLOW else 6
    unfinished = 0
    for n in range(rounds):
        cluster.sql("DROP SCHEMA reins CASCADE")
        for _ in range(1 + n % 3):
            with subprocess.Popen(embedded.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                try:
                    process.wait(random.uniform(0, whole))
                except subprocess.TimeoutExpired:
                    process.kill()
            unfinished += process.returncode != 0
        embedded.move()
        assert embedded.checksum() == expected
    assert unfinished
    embedded.on_postgres()
    assert [t.id for t in reversed(cluster.list_all(page_size=1000))] == ids


def test_the_connection_is_lost(embedded):
    cluster = embedded.start()
    ids = submit_many(cluster, 6000, queue="later")
    cluster.stop()
    with subprocess.Popen(embedded.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(lambda: cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reinsd --move-from'"))
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 69 and "run the same again" in said, said
    embedded.move()
    embedded.check_counts()
    embedded.on_postgres()
    assert [t.id for t in reversed(cluster.list_all(page_size=1000))] == ids


@needs_crash_points
def test_the_source_changed_between(embedded):
    """Somebody went back to the file after an interrupted move: what was copied counts for nothing."""
    cluster = embedded.start()
    ids = submit_many(cluster, 100, queue="later")
    cluster.stop()
    embedded.move(-signal.SIGKILL, env={"REINS_CRASH_POINT": "move-committed:1"})
    assert cluster.sql("SELECT count(*) FROM reins.task") == [(100,)]
    cluster.start()
    cluster.cancel(ids[7])
    more = submit_many(cluster, 5, queue="later")
    cluster.stop()
    assert "from the start again" in embedded.move()
    embedded.check_counts()
    embedded.on_postgres()
    assert [t.id for t in reversed(cluster.list_all(page_size=1000))] == ids + more
    assert cluster.get(ids[7]).state == State.CANCELLED


@needs_crash_points
def test_another_source_does_not_finish_it(embedded, make_cluster, tmp_path):
    cluster = embedded.start()
    submit_many(cluster, 3)
    cluster.stop()
    embedded.move(-signal.SIGKILL, env={"REINS_CRASH_POINT": "move-committed:1"})
    cluster.flags["store"] = f"sqlite:{tmp_path}/second.db"
    cluster.start().stop()
    assert "finish that one" in embedded.move(64, source=f"sqlite:{tmp_path}/second.db")
    embedded.move()


# ---- how long ----


def test_many(embedded, make_worker, record_property):
    n = 100_000 if SLOW else 5000
    cluster = embedded.start()
    worker = make_worker(cluster, policy=lambda t: W.Outcome(kind=Kind.SUCCEEDED, result=b"r" * 100, result_bytes=100), slots=200,
                         queues=["default"])
    waiting = submit_many(cluster, n // 2, queue="later", payload=b"p" * 500)
    ended = submit_many(cluster, n - n // 2, payload=b"p" * 500)
    worker.wait(lambda: len(worker.verdicts) >= len(ended), "all have ended", PATIENCE * (20 if SLOW else 1))
    cluster.stop()
    begin = time.monotonic()
    said = embedded.move()
    seconds = time.monotonic() - begin
    record_property("seconds", seconds)
    print(f"\n{n} tasks moved in {seconds:.2f} s\n{said}")
    embedded.check_counts()
    assert cluster.sql("SELECT count(*) FROM reins.ready") == [(len(waiting),)]
    assert cluster.sql("SELECT count(*) FROM reins.ended WHERE state = 3") == [(len(ended),)]
    embedded.on_postgres()
    assert cluster.get(waiting[-1]).state == State.PENDING
    assert cluster.get(ended[-1]).result == b"r" * 100
