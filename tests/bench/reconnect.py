#!/usr/bin/python3
"""A master is killed and started again under a fleet of workers that all hold attempts.

    tests/bench/reconnect.py [--workers N] [--slots N] [--away SECONDS] [--build DIR]

A Postgres (without fsync) and a Redis of its own, reinsd with its default times, and N sessions in one process that come
again as reins-worker does (load reconnect). It says how long after the new master listened the last of them had its
session and its attempts back, whether anything was dispatched or taken back, and how evenly heartbeats come then:
the busiest tenth of a second against the mean. Workers share the machine with the master.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--workers", type=int, default=1000)
parser.add_argument("--slots", type=int, default=1)
parser.add_argument("--away", type=float, default=3, help="seconds without a master")
parser.add_argument("--build", default=os.environ.get("REINS_BUILD", str(ROOT / "build")))
arguments = parser.parse_args()
os.environ["REINS_BUILD"] = arguments.build

import stubs  # noqa: E402
from cluster import BUILD, Cluster, Postgres, Redis, make_spec, wait_for  # noqa: E402


def listening(log):
    """When the newest reinsd of this log began to listen, in seconds."""
    at = re.findall(r"^(\S+) INFO +master: listening on", log, re.MULTILINE)[-1]
    return datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-rc-"))
    folder.chmod(0o755)
    started = []
    try:
        postgres, redis = Postgres(folder), Redis(folder)
        started += [postgres, redis]
        defaults = {"heartbeat-interval": "2s", "lease-ttl": "10s", "reconcile-interval": "2s", "recovery-interval": "5s",
                    "redis-timeout": "50ms", "log-level": "info"}
        cluster = Cluster(postgres, redis, folder, defaults)
        started.append(cluster)
        cluster.start()
        n = arguments.workers * arguments.slots
        fleet = subprocess.Popen(
            [BUILD / "tests" / "bench" / "load", "reconnect", "--server", cluster.address, "--workers", str(arguments.workers), "--slots",
             str(arguments.slots), "--seconds", "6s", "-o", "json"], stdout=subprocess.PIPE, text=True)
        try:
            for first in range(0, n, 10000):
                many = [stubs.tasks.SubmitTaskRequest(spec=make_spec(handler="noop"))] * min(10000, n - first)
                cluster.tasks.SubmitTasks(stubs.tasks.SubmitTasksRequest(requests=many), timeout=60)
            assert fleet.stdout.readline() == "holding\n", "the fleet does not hold what was submitted"
            wait_for(lambda: cluster.sql("SELECT count(*) FROM running") == [(n,)], "all of them run")
            cluster.kill9()
            time.sleep(arguments.away)
            cluster.start(wait=False)
            said = fleet.stdout.read()
            assert fleet.wait() == 0, f"the fleet ended with {fleet.returncode}: {said}"
            result = json.loads(said)
        finally:
            if fleet.poll() is None:
                fleet.kill()
            fleet.wait()
        number = lambda name: result[name]["value"] if isinstance(result[name], dict) else result[name]  # noqa: E731
        took = (number("last_welcome") - listening(cluster.log())) % 1000
        rows = cluster.sql("SELECT count(*), count(*) FILTER (WHERE attempt = 1) FROM running") + cluster.sql(
            "SELECT (SELECT count(*) FROM ready), (SELECT count(*) FROM attempt)")
        print(f"{arguments.workers} workers with {n} attempts, master away for {arguments.away:g} s:")
        print(f"  {took:.2f} s from listening to the last session with its attempts ({number('connects'):.0f} connects)")
        print(f"  running, of these attempt 1: {rows[0]}; ready, attempts that ended: {rows[1]}")
        print(f"  heartbeats then: {number('beats_per_s'):.0f} a second (H {number('interval'):g} s), "
              f"{number('beats_busiest_100ms'):.0f} in the busiest tenth")
        return rows != [(n, n), (0, 0)]
    finally:
        for server in reversed(started):
            server.close() if isinstance(server, Cluster) else server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
