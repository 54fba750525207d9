"""/healthz, /readyz and /metrics over HTTP/1.1 on gRPC's port; and what HTTP/1.1 may not do there."""
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time

import grpc
import pytest
import stubs
from cluster import PATIENCE, wait_for
from fake_worker import W, hold
from monitor import brief, conventions, get, metrics, readyz

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS, DEPLOY = ROOT / 'docs', ROOT / 'deploy'
NAMES = re.compile(r'\b((?:reins|process)_[a-z0-9]+_?[a-z0-9_]*)')


def exchange(cluster, *pieces):
    """Sends the pieces one by one, as soon as the one before is on its way; all that came until the server closed."""
    with socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            s.sendall(piece)
        s.shutdown(socket.SHUT_WR)
        got = b''
        while data := s.recv(65536):
            got += data
        return got


def test_the_three_pages(shared):
    status, body, headers = get(shared, '/healthz')
    assert (status, body) == (200, 'ok\n')
    assert headers['server'].startswith('reins/') and headers['date'].endswith(' GMT')
    assert readyz(shared) == (200, 'ready\n')
    status, body, headers = get(shared, '/metrics')
    assert status == 200 and headers['content-type'].startswith('text/plain; version=0.0.4')
    status, nothing, headers = get(shared, '/metrics', 'HEAD')
    assert status == 200 and not nothing and abs(int(headers['content-length']) - len(body)) < 2000
    assert get(shared, '/metrics', 'POST')[0] == 405
    status, body, _ = get(shared, '/')
    assert status == 404 and '/readyz' in body


def test_with_curl(shared):
    """A client of another's making; an offer to speak HTTP/2 is passed over."""
    url = f'http://{shared.address}/readyz'
    for flags in (['--http1.1'], ['--http2'], ['--http1.0'], ['-I']):
        done = subprocess.run(['curl', '-sS', '-i', *flags, url], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and done.stdout.startswith('HTTP/1.1 200'), done
    done = subprocess.run(['curl', '-sS', url, url, url, '-w', '%{num_connects}'], capture_output=True, text=True, timeout=30)
    assert done.stdout == 'ready\n1ready\n0ready\n0', 'one connection serves all three'


def test_over_tls(make_cluster):
    """With ALPN for it, and without any; a client that asked for HTTP/2 and speaks something else is told so in HTTP/2."""
    cluster = make_cluster(tls=True).start()
    for alpn in (None, ['http/1.1']):
        assert get(cluster, '/readyz', alpn=alpn)[:2] == (200, 'ready\n')
    assert metrics(cluster)['reins_store_up'] == 1
    assert cluster.health() == 'SERVING'
    context = ssl.create_default_context(cafile=cluster.certs.ca)
    context.load_cert_chain(cluster.certs.path('client-admin'), cluster.certs.key('client-admin'))
    context.set_alpn_protocols(['h2'])
    with socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE) as s:
        with context.wrap_socket(s, server_hostname='localhost') as t:
            t.sendall(b'GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n')
            assert not t.recv(1000).startswith(b'HTTP/1.1 200')
    # Who has no certificate gets no page.
    context = ssl.create_default_context(cafile=cluster.certs.ca)
    with socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE) as s:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with context.wrap_socket(s, server_hostname='localhost') as t:
                t.sendall(b'GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n')
                assert t.recv(1000), 'closed'
    m = wait_for(lambda: (lambda m: m if m['reins_rpc_refused_connections_total{cause="handshake"}'] else None)(metrics(cluster)),
                 lambda: brief(cluster))
    ended = {how: m[f'reins_tls_handshakes_total{{result="{how}"}}'] for how in ('full', 'resumed', 'failed', 'timed_out')}
    assert ended['failed'] == 1 and ended['timed_out'] == 0, ended
    assert m['reins_tls_handshake_seconds_count'] == ended['full'] + ended['resumed'] > 4
    assert m['reins_tls_handshakes_in_flight'] == 0 and m['reins_connections_accepted_total'] == sum(ended.values())


@pytest.mark.parametrize('cut', [1, 2, 3, 5, 17])
def test_sniffing(shared, cut):
    """A request whose first bytes are those of HTTP/2's preface, in pieces."""
    for request in (b'PRI * HTTP/1.1\r\nHost: a\r\n\r\n', b'PUT /healthz HTTP/1.1\r\nHost: a\r\n\r\n',
                    b'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'):
        got = exchange(shared, request[:cut], request[cut:])
        assert got.startswith(b'HTTP/1.1 501' if request[1:3] == b'RI' else b'HTTP/1.1 405' if request[:1] == b'P'
                              else b'HTTP/1.1 200'), got


@pytest.mark.parametrize('request_, status', [
    (b'GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', 400),
    (b'GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n', 413),
    (b'GET /healthz HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n', 400),
    (b'GET /healthz HTTP/1.1\nHost: a\n\n', 400),
    (b'GET /healthz HTTP/1.1\r\nHost: a\0b\r\n\r\n', 400),
    (b'GET /healthz HTTP/1.1\r\nHost: a\r\nX: ' + b'y' * 17000 + b'\r\n\r\n', 431),
    (b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n', 400),
])
def test_what_is_refused(shared, request_, status):
    got = exchange(shared, request_)
    assert got.startswith(b'HTTP/1.1 %d ' % status), got
    assert got.count(b'HTTP/1.1 ') == 1 and b'connection: close' in got


def test_what_is_counted(cluster, make_worker):
    """Tasks, workers, sessions, calls by method and status, the store's operations and how long they took."""
    worker = make_worker(cluster, slots=3, policy=hold)
    ref = worker.wait_dispatch(cluster.submit().id)
    for _ in range(4):
        cluster.submit()
    try:
        cluster.submit(command=[''])
    except grpc.RpcError:
        pass
    m = wait_for(lambda: (lambda m: m if m['reins_ready_tasks'] == 2 else None)(metrics(cluster)), lambda: brief(cluster))
    assert m['reins_worker_sessions'] == m['reins_workers'] == 1
    assert m['reins_worker_slots'] == m['reins_worker_slots_used'] == m['reins_running_attempts'] == 3
    assert m['reins_store_up'] == m['reins_lease_table_up'] == m['reins_ready'] == 1
    submit = 'method="reins.v1.TaskService/SubmitTask"'
    grpcs = f'{submit},protocol="grpc"'
    assert m[f'reins_rpc_started_total{{{grpcs}}}'] == 6 and m[f'reins_rpc_in_flight{{{submit}}}'] == 0
    assert m[f'reins_rpc_handled_total{{{grpcs},code="OK"}}'] == 5
    assert m[f'reins_rpc_handled_total{{{grpcs},code="INVALID_ARGUMENT"}}'] == 1
    assert m[f'reins_rpc_handling_seconds_count{{{submit}}}'] == m[f'reins_rpc_received_messages_total{{{submit}}}'] == 6
    assert m[f'reins_rpc_sent_messages_total{{{submit}}}'] == 5
    assert 5 * 16 < m[f'reins_rpc_sent_message_bytes_total{{{submit}}}'] < m['reins_rpc_sent_bytes_total']
    assert m['reins_rpc_in_flight{method="reins.v1.WorkerService/Session"}'] == 1
    assert m['reins_store_operations_total{kind="insert",result="ok"}'] == 5
    assert m['reins_store_operation_seconds_count{kind="insert"}'] == 5
    assert 0 < m['reins_store_operation_seconds_sum{kind="insert"}'] < 60
    assert m['reins_store_operation_seconds_bucket{kind="insert",le="+Inf"}'] == 5
    for operation in ('preempt', 'own', 'beat'):
        assert m[f'reins_lease_table_command_seconds_count{{operation="{operation}"}}'] > 0, operation
    assert m['reins_tasks_submitted_total'] == 5 and m['reins_dispatches_total'] == 3 and m['reins_redispatches_total'] == 0
    for name in ('reins_task_queue_wait', 'reins_dispatch_wait', 'reins_dispatch'):
        assert m[f'{name}_seconds_count'] == 3 and 0 <= m[f'{name}_seconds_sum'] < 60, name
    assert m['reins_loop_timer_late_seconds_count'] > 0 and m['reins_buffer_bytes'] > 0
    assert 10 < m['process_open_fds'] < m['process_max_fds']
    assert m['reins_loop_turn_seconds_count'] > 0 and m['process_resident_memory_bytes'] > 1e6
    worker.outcome(ref)
    wait_for(lambda: metrics(cluster)['reins_store_operations_total{kind="record",result="ok"}'] == 1, 'the outcome')
    after = wait_for(lambda: (lambda m: m if m['reins_dispatches_total'] == 4 else None)(metrics(cluster)), lambda: brief(cluster))
    assert after['reins_attempts_ended_total{outcome="succeeded"}'] == after['reins_tasks_ended_total{state="completed"}'] == 1
    assert after['reins_outcome_reports_total{verdict="recorded"}'] == 1
    grow = ('reins_rpc_handled_total{', 'reins_tasks{', 'reins_queue')
    assert {name for name in set(after) ^ set(m) if not name.startswith(grow)} == set(), 'the same series whatever happens'


def test_runs_again(cluster, make_worker):
    """What is taken back and given out again is counted as such."""
    worker = make_worker(cluster, slots=1, refuse=W.RefusedAttempt.BUSY)
    cluster.submit()
    m = wait_for(lambda: (lambda m: m if m['reins_redispatches_total'] else None)(metrics(cluster)), lambda: brief(cluster))
    assert m['reins_take_backs_total{cause="refused"}'] == m['reins_attempts_ended_total{outcome="not_taken"}'] >= 1
    assert m['reins_dispatches_total'] == 1 + m['reins_redispatches_total'] and m['reins_task_queue_wait_seconds_count'] == 1
    assert m['reins_tasks_submitted_total'] == 1 and worker.dispatched


def test_tasks_by_queue_and_state(make_cluster, make_worker):
    """As the store has them: the first queues by name one by one, the others together."""
    cluster = make_cluster({'metrics-queues': 2}).start()
    worker = make_worker(cluster, slots=1, policy=hold, queues=['a'])
    worker.wait_dispatch(cluster.submit(queue='a').id)
    later = {'run_at': {'seconds': 4000000000}}
    for queue, more in (('a', {}), ('b/1', later), ('b/1', {}), ('c', {}), ('c', later), ('d', {}), ('d', {})):
        cluster.submit(queue=queue, **more)
    cluster.admin.PauseQueue(stubs.admin.PauseQueueRequest(queue='d'), timeout=PATIENCE)
    m = wait_for(lambda: (lambda m: m if 'reins_queues' in m else None)(metrics(cluster)), 'the counts')
    found = {k: v for k, v in m.items() if k.startswith('reins_tasks{')}
    expected = {'a': (1, 0, 1), 'b/1': (1, 1, 0), '(other)': (3, 1, 0)}
    assert found == {f'reins_tasks{{queue="{queue}",state="{state}"}}': n for queue, counts in expected.items()
                     for state, n in zip(('ready', 'delayed', 'running'), counts)}
    assert m['reins_queues'] == 4 and m['reins_queue_paused{queue="a"}'] == 0 and m['reins_queue_paused{queue="(other)"}'] == 1
    assert abs(m['reins_queue_oldest_ready_timestamp_seconds{queue="(other)"}'] - time.time()) < 120


def test_tasks_are_not_counted(make_cluster):
    cluster = make_cluster({'metrics-queues': 0}).start()
    for _ in range(2):
        assert not [k for k in metrics(cluster) if k.startswith(('reins_tasks{', 'reins_queue'))]
        wait_for(lambda: metrics(cluster)['reins_http1_requests_total'] > 1, 'another page')


def test_what_became_no_call(cluster):
    """A method that there is not, and one whose client goes away."""
    channel = grpc.insecure_channel(cluster.address)
    with pytest.raises(grpc.RpcError):
        channel.unary_unary('/reins.v1.TaskService/Nothing')(b'', timeout=PATIENCE)
    wait_for(lambda: metrics(cluster).get('reins_rpc_handled_total{method="none",protocol="grpc",code="UNIMPLEMENTED"}') == 1,
             lambda: brief(cluster))
    task = cluster.submit()
    request = stubs.tasks.GetTaskRequest(task_id=task.id)
    request.wait.FromSeconds(60)
    waits = channel.unary_unary('/reins.v1.TaskService/GetTask').future(request.SerializeToString(), timeout=PATIENCE)
    going = 'reins_rpc_in_flight{method="reins.v1.TaskService/GetTask"}'
    wait_for(lambda: metrics(cluster)[going] == 1, 'the call')
    waits.cancel()
    wait_for(lambda: metrics(cluster)[going] == 0, 'its end')
    assert metrics(cluster)['reins_rpc_handled_total{method="reins.v1.TaskService/GetTask",protocol="grpc",code="CANCELLED"}'] == 1
    channel.close()


def test_protocols(shared):
    """The same method in other words."""
    before = metrics(shared)
    for content, of_grpc in (('application/json', False), ('application/grpc-web+proto', True)):
        done = subprocess.run(['curl', '-sS', '--fail', '-H', f'content-type: {content}', '--data-binary', '@-', '--http2-prior-knowledge',
                               f'http://{shared.address}/reins.v1.AdminService/GetServerInfo'], input=b'\0' * 5 if of_grpc else b'{}',
                              capture_output=True, timeout=30)
        assert done.returncode == 0 and done.stdout, done
    for protocol in ('connect', 'grpc_web'):
        for name, more in (('started', ''), ('handled', ',code="OK"')):
            series = f'reins_rpc_{name}_total{{method="reins.v1.AdminService/GetServerInfo",protocol="{protocol}"{more}}}'
            wait_for(lambda: metrics(shared)[series] == before[series] + 1, series)


def test_who_may_not(make_cluster, tmp_path):
    """Who shows no token, or one that is unknown."""
    tokens = tmp_path / 'tokens'
    tokens.write_text(f'token t0001 {"0" * 64} name=alice roles=admin\n')
    cluster = make_cluster({'tokens-file': tokens, 'open-metrics': 'true'}).start()
    for metadata, reason in (((), 'nothing_shown'), ((('authorization', f'Bearer reins_t0009_{"1" * 64}'),), 'unknown')):
        with pytest.raises(grpc.RpcError) as refused:
            cluster.admin.GetServerInfo(stubs.admin.GetServerInfoRequest(), timeout=PATIENCE, metadata=metadata)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        wait_for(lambda: metrics(cluster)[f'reins_auth_failures_total{{reason="{reason}"}}'] == 1, reason)
    m = metrics(cluster)
    assert m['reins_auth_entries'] == 1
    info = 'method="reins.v1.AdminService/GetServerInfo"'
    assert m[f'reins_rpc_handled_total{{{info},protocol="grpc",code="UNAUTHENTICATED"}}'] == 2
    assert m[f'reins_rpc_in_flight{{{info}}}'] == 0


def promtool(*words, text=''):
    """Its verdict, where it is installed."""
    if not shutil.which('promtool'):
        return
    done = subprocess.run(['promtool', *words], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr.strip(), (done.stdout + done.stderr)[-3000:]


def test_conventions(shared):
    """Names, types and helps, by rules of our own and by promtool's."""
    shared.submit()
    text = get(shared, '/metrics')[1]
    assert conventions(text) == []
    promtool('check', 'metrics', text=text)


def test_what_is_written_about_them(shared):
    """Each family is explained; alerts and dashboard ask for what there is."""
    there = set(re.findall('^# TYPE ([a-z_0-9]+) ', wait_for(lambda: (lambda text: text if 'reins_tasks{' in text else None)(
        get(shared, '/metrics')[1]), 'the counts'), re.M))
    documented = set(NAMES.findall((DOCS / 'operations.md').read_text()))
    assert there - documented == set(), 'not in docs/operations.md'
    parts = {f'{name}_{part}' for name in there for part in ('bucket', 'sum', 'count')}
    rules, board = DEPLOY / 'prometheus-rules.yml', DEPLOY / 'dashboards' / 'reins.json'
    for file in (rules, board, DOCS / 'operations.md'):
        found = {name for name in NAMES.findall(file.read_text()) if not name.endswith('_')}
        assert len(found) > 15 and found - there - parts == set(), f'{file} names what is not there'
    promtool('check', 'rules', str(rules))
    alerts = set(re.findall('alert: (Reins[A-Za-z]+)', rules.read_text()))
    assert alerts == set(re.findall('`(Reins[A-Za-z]+)`', (DOCS / 'operations.md').read_text()))
    panels = json.loads(board.read_text())['panels']
    assert len({p['id'] for p in panels}) == len(panels) and all(p['targets'] for p in panels if p['type'] != 'row')


def test_keep_alive_ends_with_the_master(cluster):
    """An open connection of a scraper does not hold up the end."""
    with socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE) as s:
        s.sendall(b'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
        assert s.recv(1000).startswith(b'HTTP/1.1 200')
        cluster.process.terminate()
        assert s.recv(1000) == b''
        assert cluster.process.wait(PATIENCE) == 0
