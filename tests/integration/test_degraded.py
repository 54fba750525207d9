"""Redis down, silent, full, evicting, flushed, a replica, loading, or nothing like Redis: work goes on, the state can be
seen while it lasts, the log has one line each way, memory is bounded, and the return is by itself."""
import signal
import threading
import time

import pytest
import stubs
from aftermath import check
from angry_redis import AngryRedis
from cluster import PATIENCE, wait_for
from fake_worker import hold, success
from monitor import brief, lines, metrics, readyz
from test_outages import keys_are_right

State, A = stubs.State, stubs.admin
# Keys that nobody could delete end by themselves.
SOON = {'redis-timeout': '300ms', 'task-key-ttl': '3s'}
MEMORY = 64 << 20  # more than this reinsd does not grow by, whatever Redis says


def run_some(cluster, n):
    """Tasks submitted and ended; their ids."""
    ids = [cluster.submit().id for _ in range(n)]
    assert all(cluster.finished(i).state == State.COMPLETED for i in ids)
    return ids


def lease_up(cluster, up):
    """The metrics once they say so."""
    return wait_for(lambda: (lambda m: m if m['reins_lease_table_up'] == up else None)(metrics(cluster)),
                    lambda: f'lease table up {up}: {readyz(cluster)}')


def endless():
    return b'$1000000000\r\n' + b'x' * (1 << 20)


# What a Redis that is not passed through says.
SAID = {
    'loading': b'-LOADING Redis is loading the dataset in memory\r\n',
    'masterdown': b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    'moved': b'-MOVED 3999 127.0.0.1:6381\r\n',
    'clusterdown': b'-CLUSTERDOWN The cluster is down\r\n',
    'garbage': b'\x00\xff\xfeHTTP/1.1 400 Bad Request\r\n\r\n',
    'half': b'$40\r\nhalf',
    'endless': endless,
    'mute': b'',
}


class Fault:
    """One way for Redis to be of no use: on() and off()."""

    def __init__(self, cluster, name):
        self.name, self.redis, self.keys = name, cluster.redis_server, cluster.keys
        self.angry = None
        if name in SAID:
            self.angry = AngryRedis(self.redis.port)
            db = cluster.flags['lease'].rsplit('/', 1)[1]
            cluster.flags['lease'] = f'redis://127.0.0.1:{self.angry.port}/{db}'

    def on(self):
        if self.angry:
            self.angry.answer(SAID[self.name])
        elif self.name == 'killed':
            self.redis.stop()
        elif self.name == 'silent':
            self.redis.process.send_signal(signal.SIGSTOP)
        elif self.name == 'full':
            self.keys.config_set('maxmemory-policy', 'noeviction')
            self.keys.config_set('maxmemory', '1')
        elif self.name == 'replica':
            self.keys.execute_command('REPLICAOF', '127.0.0.1', '1')

    def off(self):
        if self.angry:
            self.angry.answer(None)
        elif self.name == 'killed':
            self.redis.start()
        elif self.name == 'silent':
            self.redis.process.send_signal(signal.SIGCONT)
        elif self.name == 'full':
            self.keys.config_set('maxmemory', '0')
        elif self.name == 'replica':
            self.keys.execute_command('REPLICAOF', 'NO', 'ONE')

    def close(self):
        self.off()
        if self.angry:
            self.angry.close()


@pytest.fixture
def fault(request, make_cluster):
    """(cluster, Fault)"""
    cluster = make_cluster(SOON)
    made = Fault(cluster, request.param)
    try:
        yield cluster.start(), made
    finally:
        made.close()


@pytest.mark.parametrize('fault', ['killed', 'silent', 'full', 'replica', *SAID], indirect=True)
def test_redis_is_of_no_use(fault, make_worker):
    cluster, fault = fault
    worker = make_worker(cluster, slots=4, policy=hold)
    before = lease_up(cluster, 1)
    held = worker.wait_dispatch(cluster.submit().id)
    wait_for(lambda: keys_are_right(cluster, worker), 'keys')
    worker.policy = success
    fault.on()
    ids = run_some(cluster, 10)
    away = lease_up(cluster, 0)
    assert away['reins_lease_table_outages_total'] == 1 and away['reins_store_up'] == 1
    status, text = readyz(cluster)
    assert status == 200 and text.startswith('ready\ndegraded: lease table down since 20'), text
    info = cluster.admin.GetServerInfo(A.GetServerInfoRequest(), timeout=PATIENCE)
    assert (info.store, info.lease) == (info.UP, info.DOWN) and cluster.health() == 'SERVING'
    ids += run_some(cluster, 20)
    worker.wait_heartbeat_acked()
    away = metrics(cluster)
    assert away['reins_lease_table_up'] == 0 and away['reins_lease_table_outages_total'] == 1
    assert away['reins_lease_table_pending_commands'] < 200
    assert away['process_resident_memory_bytes'] < before['process_resident_memory_bytes'] + MEMORY
    assert len(lines(cluster, 'lease')) == 2, lines(cluster, 'lease')
    fault.off()
    back = lease_up(cluster, 1)
    assert back['reins_lease_table_down_seconds_total'] > 0
    assert readyz(cluster) == (200, 'ready\n')
    wait_for(lambda: keys_are_right(cluster, worker), 'keys are right again')
    worker.outcome(held)
    check(cluster, [held[0], *ids])
    said = lines(cluster, 'lease')
    assert len(said) == 3 and said[0].startswith('up') and said[1].startswith('down, going on without: ') \
        and said[2].startswith('up after '), said
    assert metrics(cluster)['reins_lease_table_outages_total'] == 1


def test_redis_is_slow(make_cluster, make_worker):
    """It answers all, and always too late: it is not waited for again and again, but tried ever more rarely."""
    cluster = make_cluster({**SOON, 'redis-timeout': '100ms'})
    angry = AngryRedis(cluster.redis_server.port)
    try:
        db = cluster.flags['lease'].rsplit('/', 1)[1]
        cluster.flags['lease'] = f'redis://127.0.0.1:{angry.port}/{db}'
        cluster.start()
        worker = make_worker(cluster, slots=4)
        lease_up(cluster, 1)
        angry.delay = 0.25
        began, ids = time.monotonic(), []
        while time.monotonic() < began + 6:
            ids += run_some(cluster, 1)
        away = metrics(cluster)
        assert 1 <= away['reins_lease_table_outages_total'] <= 8, brief(cluster)
        assert away['reins_lease_table_timeouts_total'] >= 1
        angry.delay = 0
        lease_up(cluster, 1)
        worker.policy = hold
        ref = worker.wait_dispatch(cluster.submit().id)
        wait_for(lambda: keys_are_right(cluster, worker), 'keys are right again')
        worker.outcome(ref)
        check(cluster, [*ids[:50], ref[0]])
        assert len(lines(cluster, 'lease')) <= 20
    finally:
        angry.close()


def test_s32_redis_is_full(make_cluster, make_worker):
    """With noeviction it refuses; with allkeys-lru it takes everything and forgets: both can be seen, neither matters."""
    cluster = make_cluster(SOON)
    full = Fault(cluster, 'full')
    cluster.start()
    worker = make_worker(cluster, slots=8, policy=hold)
    held = [worker.wait_dispatch(cluster.submit().id) for _ in range(4)]
    wait_for(lambda: keys_are_right(cluster, worker), 'keys')
    worker.policy = success
    stop = threading.Event()

    def fill():  # others need room too
        junk = cluster.redis_server.db(15)
        n = 0
        while not stop.is_set():
            junk.set(f'junk:{n}', 'x' * 2000, ex=60)
            n += 1
    try:
        full.on()
        ids = run_some(cluster, 20)
        away = lease_up(cluster, 0)
        assert away['reins_lease_table_refused_commands_total'] > 0
        full.off()
        back = lease_up(cluster, 1)
        used = cluster.keys.info('memory')['used_memory']
        cluster.keys.config_set('maxmemory-policy', 'allkeys-lru')
        cluster.keys.config_set('maxmemory', str(used + (1 << 20)))
        filler = threading.Thread(target=fill)
        filler.start()
        # Heartbeats find their keys gone, and write them anew.
        evicting = wait_for(
            lambda: (lambda m: m if m['reins_lease_table_missing_keys_total'] >= back['reins_lease_table_missing_keys_total'] + 2
                     else None)(metrics(cluster)), lambda: brief(cluster))
        ids += run_some(cluster, 20)
        assert evicting['reins_lease_table_up'] == 1
        assert not worker.stops
    finally:
        stop.set()
        cluster.keys.config_set('maxmemory', '0')
        cluster.keys.config_set('maxmemory-policy', 'noeviction')
        filler.join(PATIENCE)
    cluster.redis_server.db(15).flushdb()
    wait_for(lambda: keys_are_right(cluster, worker), 'keys are right again')
    for ref in held:
        worker.outcome(ref)
    check(cluster, [t for t, _ in held] + ids)
    assert all(len(cluster.get(i).attempts) == 1 for i in ids)


def test_redis_forgets(make_cluster, make_worker):
    """FLUSHALL and SCRIPT FLUSH are no outage: the next heartbeat puts all right, and a forgotten script is sent anew."""
    cluster = make_cluster(SOON).start()
    worker = make_worker(cluster, slots=6, policy=hold)
    held = worker.wait_dispatch(cluster.submit().id)
    wait_for(lambda: keys_are_right(cluster, worker), 'keys')
    worker.policy = success
    before = metrics(cluster)
    ids = []
    for _ in range(10):
        cluster.keys.execute_command('SCRIPT', 'FLUSH')
        cluster.keys.flushall()
        ids += run_some(cluster, 2)
    cluster.keys.flushall()  # a dispatch would write what is missing before the heartbeat does
    after = wait_for(
        lambda: (lambda m: m if m['reins_lease_table_missing_keys_total'] > before['reins_lease_table_missing_keys_total']
                 else None)(metrics(cluster)), 'a heartbeat found its key gone')
    wait_for(lambda: keys_are_right(cluster, worker), 'keys')
    for unchanged in ('up', 'outages_total', 'timeouts_total', 'dropped_commands_total', 'connects_total'):
        assert after[f'reins_lease_table_{unchanged}'] == before[f'reins_lease_table_{unchanged}'], unchanged
    assert len(lines(cluster, 'lease')) == 1
    worker.outcome(held)
    check(cluster, [held[0], *ids])
