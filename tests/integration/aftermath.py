"""What must be true after every scenario of docs/scenarios.md, whatever died in it.

Each accepted task has one terminal record, each attempt one outcome, no Redis key is left without a row, no slot is
counted, and no process is left over."""
import os
import pathlib

import stubs
from cluster import wait_for

ENDED = (stubs.State.COMPLETED, stubs.State.FAILED, stubs.State.CANCELLED)
Info = stubs.admin.WorkerInfo


def processes_of(task_ids):
    """{pid: its command} of all that live and were started for these tasks, in whatever session they hide."""
    marks = [f'REINS_TASK_ID={i}'.encode() for i in task_ids]
    found = {}
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            environment = (folder / 'environ').read_bytes().split(b'\0')
            if any(m in environment for m in marks) and int(folder.name) != os.getpid():
                found[int(folder.name)] = (folder / 'cmdline').read_bytes().replace(b'\0', b' ').decode(errors='replace')
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def keys_of(cluster, task_ids):
    """Redis keys that say a task still runs somewhere."""
    owners = [k for k in cluster.keys.keys('*') if any(i in k for i in task_ids)]
    held = [k for k in cluster.keys.keys('*:task') if set(cluster.keys.hkeys(k)) & set(task_ids)]
    return owners + held


def running(cluster):
    """{(task id, attempt): (worker, session)} of the rows that are RUNNING."""
    rows = cluster.sql('SELECT task_id::text, attempt, worker, session FROM running')
    return {(task, attempt): (worker, session) for task, attempt, worker, session in rows}


def owners(cluster):
    """{(task id, attempt): (worker, session)} of the owner keys."""
    found = {}
    for key in cluster.keys.keys('*task:{*}:workerId'):
        value = cluster.keys.get(key)
        if value:  # it may go between the two
            worker, session, attempt = value.rsplit(' ', 2)
            found[key.partition('{')[2].partition('}')[0], int(attempt)] = worker, int(session)
    return found


def fields(cluster):
    """{(task id, attempt): worker} of the workers' hashes."""
    found = {}
    for key in cluster.keys.keys('*worker:{*}:task'):
        worker = key.partition('{')[2].partition('}')[0]
        found.update({(task, int(attempt)): worker for task, attempt in cluster.keys.hgetall(key).items()})
    return found


def without_row(cluster):
    """Keys that no row answers for; some may be on their way, and go."""
    owned, held = owners(cluster), fields(cluster)
    rows = running(cluster)
    sessions = dict(cluster.sql('SELECT id, session FROM worker'))
    wrong = [f'owner {ref}: {who[0]}' for ref, who in owned.items() if rows.get(ref, ('',))[0] != who[0]]
    wrong += [f'field {ref}: {worker}' for ref, worker in held.items() if rows.get(ref, ('',))[0] != worker]
    for key in cluster.keys.keys('*worker:{*}:hb'):
        session = (cluster.keys.get(key) or ' 0').rsplit(' ', 1)[1]
        if int(session) > sessions.get(key.partition('{')[2].partition('}')[0], 0):
            wrong.append(f'{key} of session {session}')
    return wrong


def without_key(cluster):
    """Running rows that lack a key or have another's. All workers are taken to be alive."""
    rows = running(cluster)
    owned, held = owners(cluster), fields(cluster)
    alive = {key.partition('{')[2].partition('}')[0] for key in cluster.keys.keys('*worker:{*}:hb')}
    wrong = [f'no hb of {worker}' for worker in {w for w, _ in rows.values()} - alive]
    wrong += [f'owner {ref}: {owned.get(ref)}, not {who}' for ref, who in rows.items() if owned.get(ref) != who]
    return wrong + [f'field {ref}: {held.get(ref)}, not {who[0]}' for ref, who in rows.items() if held.get(ref) != who[0]]


def compares_keys(cluster):
    return cluster.flags['store'].startswith('postgres') and cluster.flags['lease'].startswith('redis')


def check(cluster, task_ids):
    """All tasks have ended, or do so soon."""
    task_ids = list(task_ids)
    for i in task_ids:
        t = cluster.finished(i)
        assert [a.number for a in t.attempts] == list(range(1, t.attempt + 1)), t
        assert all(a.end for a in t.attempts), f'an attempt without an outcome: {t}'
        assert sum(a.end == stubs.End.SUCCEEDED for a in t.attempts) == (t.state == stubs.State.COMPLETED), t
    listed = [t.id for t in cluster.list_all(page_size=1000)]
    assert all(listed.count(i) == 1 for i in task_ids), 'one record for each'
    if cluster.flags['store'].startswith('postgres'):
        ids = '{' + ','.join(task_ids) + '}'
        for table, rows in (('ended', len(task_ids)), ('running', 0), ('ready', 0), ('delayed', 0)):
            assert cluster.sql(f'SELECT count(*) FROM {table} WHERE task_id = ANY (%s::uuid[])', ids) == [(rows,)], table
    if cluster.flags['lease'].startswith('redis'):
        wait_for(lambda: not keys_of(cluster, task_ids), lambda: f'keys of tasks that have ended: {keys_of(cluster, task_ids)}')
    if compares_keys(cluster):
        wait_for(lambda: not without_row(cluster), lambda: f'keys without a row: {without_row(cluster)}')

    def workers():
        return cluster.admin.ListWorkers(stubs.admin.ListWorkersRequest(), timeout=30).workers
    wait_for(lambda: all(w.slots_used == 0 for w in workers() if w.state == Info.CONNECTED), lambda: f'slots in use: {workers()}')
    wait_for(lambda: not processes_of(task_ids), lambda: f'processes left: {processes_of(task_ids)}')
