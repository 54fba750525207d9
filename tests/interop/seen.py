"""What every client was asked to do, and must have seen."""

import json
import subprocess

from examples import environment

CALLED = ("submit twice, get with wait, list, watch from before to the end, log, errors with details, of a stream too, deadline, streams "
          "cancelled, cancel, 5 MiB, large pages")
WANTED = {
    "created": True, "again": False, "state": "COMPLETED", "result": "00ff800a", "payload": "00ff800a", "log": "006c6f67ff",
    "code": 3, "field": "spec.priority", "not_found": 5, "stream_not_found": 5, "deadline": 4, "cancelled": 1, "followed": b"here\n".hex(),
    "stopped": "CANCELLED", "large": 5, "watch_cancelled": 1,
}
# A task that fits an idle worker is RUNNING when it is created.
WATCHED = (["CREATED RUNNING", "CHANGED COMPLETED"], ["CREATED PENDING", "CHANGED RUNNING", "CHANGED COMPLETED"])


def check(cluster, command, **kwargs):
    """The program's line of JSON, which must say all that."""
    env = environment(cluster, **kwargs.pop("env", {}))
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, env=env, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    other = {k: (seen.get(k), v) for k, v in WANTED.items() if seen.get(k) != v}
    assert not other, f"seen and wanted: {other}"
    assert seen["message"].startswith("spec.priority"), seen["message"]
    assert seen["listed"] == [seen["id"]]
    assert seen["watched"] in [[f"{seen['id']} {change}" for change in changes] for changes in WATCHED], seen["watched"]
    assert seen["too_large"] in (8, 3), seen["too_large"]
    task = cluster.get(seen["id"])
    assert task.result.hex() == seen["result"] and task.spec.params["ä"] == "€"
    return seen
