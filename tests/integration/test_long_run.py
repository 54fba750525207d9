"""A week's run in small: one task that lives through the restart of everything around it, as one attempt with a whole log."""
import pathlib
import re
import sys
import time

import stubs

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster import owner_key, wait_for  # noqa: E402

# Counts until the file appears; says its pid first, and reports a point and a result.
PROGRAM = """
echo pid $$
i=0
until [ -e "$GO" ]; do
    i=$((i+1)); echo $i; echo "{\\"step\\":$i,\\"reward\\":$i}" >>"$REINS_METRICS"; sleep 0.01
done
echo $i >"$REINS_RESULT"
echo end
"""


def printed(cluster, task):
    return b''.join(c.data for c in cluster.read_logs(task))


def further(cluster, task):
    """The program goes on, and what it prints arrives."""
    before = len(printed(cluster, task))
    wait_for(lambda: len(printed(cluster, task)) > before + 20, 'more of the log')
    return True


def test_outlives_everything(quick, start_worker, tmp_path):
    cluster, go = quick, tmp_path / 'go'
    worker = start_worker(cluster)
    task = cluster.submit(command=['sh', '-c', PROGRAM], env={'GO': str(go)}).id
    wait_for(lambda: re.match(rb'pid \d+\n', printed(cluster, task)), 'its first line')

    worker.kill()                              # the agent dies, and comes again
    worker.start()
    assert further(cluster, task)
    cluster.kill9()                            # the master
    cluster.start()
    cluster.connect_anew()
    assert further(cluster, task)
    cluster.keys.flushall()                    # the lease table
    wait_for(lambda: cluster.keys.get(owner_key(task)), 'its owner key')
    assert further(cluster, task)
    cluster.postgres.stop()                    # the store
    time.sleep(3)                              # more than a lease
    cluster.postgres.start()
    wait_for(lambda: cluster.health() == 'SERVING', 'the store')
    assert further(cluster, task)
    worker.kill()                              # agent and master at once
    cluster.kill9()
    cluster.start()
    worker.start()
    cluster.connect_anew()
    assert further(cluster, task)

    go.write_text('')
    done = cluster.finished(task)
    lines = printed(cluster, task).split(b'\n')
    numbers = [int(n) for n in lines[1:-2]]
    assert done.state == stubs.State.COMPLETED and done.attempt == 1 and len(done.attempts) == 1
    assert numbers == list(range(1, len(numbers) + 1)) and lines[-2:] == [b'end', b'']
    assert int(done.result) == len(numbers) == done.metrics.step
