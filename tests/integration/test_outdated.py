"""A reinsd whose store a later one has upgraded: it says so and ends, and systemd does not start it again."""

import sqlite3

import pytest
from cluster import CALM, PATIENCE, ROOT, wait_for

OUTDATED = 78


class Postgres:
    def __init__(self, make_cluster, folder):
        self.cluster = make_cluster({**CALM})

    def ask(self, statement):
        return self.cluster.postgres.execute(self.cluster.database, statement)

    def raise_schema(self, by):
        self.ask(f"UPDATE reins.meta SET value = value::int + {by} WHERE key = 'schema'")

    def upgrade_in_an_outage(self):
        """One connection is enough to see it, though the others could go on."""
        self.raise_schema(1)
        self.ask("SELECT pg_terminate_backend((SELECT min(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
                 "application_name = 'reinsd'))")


class Sqlite:
    def __init__(self, make_cluster, folder):
        self.path = folder / "reins.db"
        self.cluster = make_cluster({**CALM, "store": f"sqlite:{self.path}", "lease": "memory"})

    def raise_schema(self, by, held=None):
        db = held or sqlite3.connect(self.path)
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + by}")
        if held is None:
            db.close()

    def upgrade_in_an_outage(self):
        """Whoever has it locked is the outage."""
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        wait_for(lambda: "is locked by another program" in self.cluster.log(), "it is away")
        self.raise_schema(1, db)
        db.execute("COMMIT")
        db.close()


@pytest.fixture(params=[Postgres, Sqlite], ids=["postgres", "sqlite"])
def store(request, make_cluster, tmp_path):
    return request.param(make_cluster, tmp_path)


def ends_outdated(store):
    process = store.cluster.process
    assert process.wait(PATIENCE) == OUTDATED, store.cluster.log()
    said = [line for line in store.cluster.log().splitlines() if "is newer than this program's" in line]
    assert any("start that one: leaving" in line for line in said), store.cluster.log()


def test_at_its_start_and_after_an_outage(store):
    store.cluster.start()
    task = store.cluster.submit().id
    store.upgrade_in_an_outage()
    ends_outdated(store)
    log = len(store.cluster.log())
    store.cluster.start(wait=False)
    ends_outdated(store)
    assert "start that one: leaving" in store.cluster.log()[log:]
    # Nothing was done to it.
    store.raise_schema(-1)
    store.cluster.start()
    assert store.cluster.get(task).id == task


def test_systemd_leaves_it_so():
    unit = (ROOT / "deploy" / "systemd" / "reinsd.service").read_text()
    assert f"\nRestartPreventExitStatus={OUTDATED}\n" in unit
