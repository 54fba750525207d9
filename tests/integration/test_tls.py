"""TLS: who is let in and who isn't, what both sides say about it, certificates that change or end under running work."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import grpc
import pytest
import stubs
from certs import Certs
from cluster import PATIENCE, QUICK, wait_for

State = stubs.State


@pytest.fixture
def tls(make_cluster):
    return make_cluster(tls=True).start()


@pytest.fixture(scope='module')
def strangers(tmp_path_factory):
    """An authority that the cluster's server doesn't know."""
    certs = Certs(tmp_path_factory.mktemp('strangers'))
    certs.make('--worker', 'w1')
    return certs


def ways_in(cluster, name, ca=None, certs=None):
    """The TLS flags of a Worker, with another certificate than its own."""
    flags = (certs or cluster.certs).flags(name, ca=ca or cluster.certs.ca)
    return {'tls_cert': None, 'tls_key': None, **{k.replace('-', '_'): v for k, v in flags.items()}}


def serial(cluster):
    """Of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=cluster.certs.ca)
    context.load_cert_chain(cluster.certs.path('client-admin'), cluster.certs.key('client-admin'))
    context.set_alpn_protocols(['h2'])
    with socket.create_connection(('127.0.0.1', cluster.port), timeout=PATIENCE) as s:
        with context.wrap_socket(s, server_hostname='localhost') as t:
            return t.getpeercert()['serialNumber']


def serial_in_file(path):
    text = subprocess.run(['openssl', 'x509', '-noout', '-serial', '-in', path], capture_output=True, text=True).stdout
    return text.strip().split('=')[1]


def hang_up(cluster):
    """SIGHUP, and what the master says to it."""
    before = cluster.log().count('SIGHUP: ')
    cluster.process.send_signal(signal.SIGHUP)
    wait_for(lambda: cluster.log().count('SIGHUP: ') > before, 'an answer to SIGHUP')
    return re.findall('SIGHUP: (.*)', cluster.log())[-1]


def until_file(folder, name='go'):
    """A program that says its pid, prints a line again and again, and ends when the file is there."""
    return ['sh', '-c', f'echo $$; until [ -e {folder}/{name} ]; do echo tick; sleep 0.02; done; echo end']


def lines(cluster, task_id):
    return b''.join(c.data for c in cluster.read_logs(task_id)).split()


def ticks_on(cluster, task_id):
    n = len(lines(cluster, task_id))
    wait_for(lambda: len(lines(cluster, task_id)) > n, 'the next lines of the program')


def reins(build_dir, *arguments, env=None, **kwargs):
    clean = {k: v for k, v in os.environ.items() if not k.startswith('REINS_')}
    return subprocess.run([build_dir / 'client' / 'reins', *map(str, arguments)], capture_output=True, text=True,
                          env={**clean, **(env or {})}, timeout=PATIENCE, **kwargs)


def client_env(cluster, name='client-admin'):
    return {'REINS_SERVER': cluster.url,
            **{f'REINS_{k.upper().replace("-", "_")}': str(v) for k, v in cluster.certs.flags(name).items()}}


# ---- deploy/tls ----

def deploy_tls(folder, *arguments):
    return subprocess.run([stubs.ROOT / 'deploy' / 'tls', '--dir', folder, *arguments], capture_output=True, text=True)


def verifies(folder, name, purpose):
    return subprocess.run(['openssl', 'verify', '-purpose', purpose, '-x509_strict', '-CAfile', folder / 'ca.pem',
                           folder / name], capture_output=True).returncode == 0


def test_what_deploy_tls_makes(tmp_path):
    made = deploy_tls(tmp_path, 'ca', 'server', 'localhost', '::1', '10.0.0.7', 'worker', 'w1', 'rack/w_2', 'client', 'admin')
    assert made.returncode == 0, made.stderr
    assert f'--tls-cert {tmp_path}/worker-rack%2Fw_2.pem' in made.stdout and '--client-ca' in made.stdout
    files = {p.name: p for p in tmp_path.iterdir()}
    keys = {name for name in files if name.endswith('-key.pem')}
    assert keys == {'ca-key.pem', 'server-key.pem', 'worker-w1-key.pem', 'worker-rack%2Fw_2-key.pem', 'client-admin-key.pem'}
    assert {files[k].stat().st_mode & 0o777 for k in keys} == {0o600} and len(files) == 2 * len(keys)
    assert verifies(tmp_path, 'server.pem', 'sslserver') and not verifies(tmp_path, 'server.pem', 'sslclient')
    assert verifies(tmp_path, 'worker-w1.pem', 'sslclient') and not verifies(tmp_path, 'worker-w1.pem', 'sslserver')
    text = subprocess.run(['openssl', 'x509', '-noout', '-ext', 'subjectAltName', '-in', files['server.pem']],
                          capture_output=True, text=True).stdout
    assert 'DNS:localhost, IP Address:0:0:0:0:0:0:0:1, IP Address:10.0.0.7' in text


def test_deploy_tls_again(tmp_path):
    def contents():
        return {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def changed(*arguments):
        before = contents()
        done = deploy_tls(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
        return {name for name, b in contents().items() if before.get(name) != b}
    assert changed('--worker', 'w1') == {'ca.pem', 'ca-key.pem', 'worker-w1.pem', 'worker-w1-key.pem'}
    assert changed('--worker', 'w1') == {'worker-w1.pem'}
    assert changed('--ca') == set()
    assert changed('--force', '--worker', 'w1') == {'worker-w1.pem', 'worker-w1-key.pem'}
    assert changed('--force', 'ca') == {'ca.pem', 'ca-key.pem'}
    assert contents()['ca.pem'].count(b'BEGIN') == 2 and verifies(tmp_path, 'worker-w1.pem', 'sslclient')
    assert changed('--drop-old-ca') == {'ca.pem'}
    assert not verifies(tmp_path, 'worker-w1.pem', 'sslclient')
    before = contents()
    (tmp_path / 'ca.pem').unlink()
    assert deploy_tls(tmp_path, '--worker', 'w2').returncode == 1  # a key without its certificate is not thrown away
    assert (tmp_path / 'ca-key.pem').read_bytes() == before['ca-key.pem']


@pytest.mark.parametrize('arguments', [
    [], ['w1'], ['--days', '0', 'ca'], ['--days', 'x', 'ca'], ['--server', 'a b'], ['--server', '-x'], ['--worker', 'a,b c'],
    ['--worker', 'a:b'], ['--worker', ''], ['--client', 'x' * 201], ['--nonsense'], ['--worker'], ['--days']])
def test_deploy_tls_is_misused(tmp_path, arguments):
    done = deploy_tls(tmp_path, *arguments)
    assert done.returncode == 64 and 'deploy/tls:' in done.stderr and not list(tmp_path.iterdir()), done


# ---- let in ----

def test_the_main_job(tls, start_worker, build_dir):
    """A program of a grpcio client, and of the command line, on another machine's slot over TLS."""
    start_worker(tls, 'gpu-1')
    t = tls.submit(command=[sys.executable, '-c', 'import sys; print(sys.stdin.read()); sys.exit(7)'], payload=b'in')
    done = tls.finished(t.id)
    assert (done.state, done.exit_code, done.attempt, done.worker_id) == (State.FAILED, 7, 1, 'gpu-1')
    assert lines(tls, t.id) == [b'in']

    done = reins(build_dir, 'submit', '--wait', '--', 'sh', '-c', 'echo out; echo err >&2; exit 5', env=client_env(tls))
    assert (done.returncode, done.stdout) == (5, 'out\n'), done
    assert 'err\n' in done.stderr
    flags = [f'--{k}={v}' for k, v in tls.certs.flags('client-admin').items()]
    done = reins(build_dir, 'list', '-o', 'json', '--server', tls.url, *flags)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0]), done


@pytest.mark.parametrize('name', ['rack/gpu_1', 'w.example.org', '-', 'a' * 200])
def test_any_id_can_have_a_certificate(tls, start_worker, name):
    start_worker(tls, name)
    assert tls.finished(tls.submit().id).worker_id == name


def test_a_certificate_with_a_host_name_only(tls, start_worker):
    """Of another authority's making, without our URI: the DNS name is the id."""
    folder = tls.certs.folder
    with open(folder / 'ext', 'w') as f:
        f.write('subjectAltName=DNS:w1.example.org\nextendedKeyUsage=clientAuth\n')
    key, cert = folder / 'host-key.pem', folder / 'host.pem'
    subprocess.run(f'openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -subj /CN=x -out {folder}/r && '
                   f'openssl x509 -req -in {folder}/r -CA {folder}/ca.pem -CAkey {folder}/ca-key.pem -set_serial 77 '
                   f'-extfile {folder}/ext -days 1 -out {cert}', shell=True, check=True, capture_output=True)
    start_worker(tls, 'w1.example.org', **ways_in(tls, 'host'))
    assert tls.finished(tls.submit().id).worker_id == 'w1.example.org'


# ---- refused ----

def missing(cluster, strangers):
    return ways_in(cluster, None)


def of_strangers(cluster, strangers):
    return ways_in(cluster, 'worker-w1', certs=strangers)


def expired(cluster, strangers):
    cluster.certs.make('--seconds', 0, '--worker', 'w1')
    return ways_in(cluster, 'worker-w1')


def a_servers(cluster, strangers):
    return ways_in(cluster, 'server')


def other_server(cluster, strangers):
    return ways_in(cluster, 'worker-w1', ca=strangers.ca)


def of_another_worker(cluster, strangers):
    cluster.certs.make('--worker', 'w2')
    return ways_in(cluster, 'worker-w2')


def of_a_client(cluster, strangers):
    return ways_in(cluster, 'client-admin')


REFUSED = [
    (missing, 'wants a certificate and we gave none', 'it gave no certificate'),
    (of_strangers, "doesn't trust the authority", 'certificate of "w1" refused: unable to get local issuer'),
    (expired, 'it has expired; renew it', 'certificate of "w1" refused: certificate has expired'),
    (a_servers, 'made for another use', 'certificate of "localhost" refused: unsuitable certificate purpose'),
    (other_server, 'not of an authority in our CA file', "doesn't trust the authority"),
    (of_another_worker, 'names worker "w2", not worker "w1"', 'names worker "w2", not worker "w1"'),
    (of_a_client, 'names client "admin", not worker "w1"', 'names client "admin", not worker "w1"'),
]


@pytest.mark.parametrize('how, worker_says, master_says', REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_a_worker_is_refused(make_cluster, start_worker, strangers, how, worker_says, master_says):
    """Both sides say why, and who; the worker tries on, without a line for each try; it works once that is put right."""
    cluster = make_cluster(QUICK, tls=True).start()
    cluster.certs.worker('w1')
    w = start_worker(cluster, 'w1', **how(cluster, strangers))
    wait_for(lambda: worker_says in w.log(), lambda: w.log())
    wait_for(lambda: master_says in cluster.log(), lambda: cluster.log())
    line = next(x for x in cluster.log().splitlines() if master_says in x)
    assert re.search(r' 127\.0\.0\.1:\d+', line), line
    task = cluster.submit()
    time.sleep(1.5)  # ten tries and more; no condition would show that nothing is said
    assert w.process.poll() is None
    assert w.log().count(worker_says) == 1, w.log()
    assert cluster.log().count(master_says) == 1, cluster.log()
    assert 'connected from' not in cluster.log() and cluster.get(task.id).state == State.PENDING
    if how is expired:
        cluster.certs.make('--worker', 'w1')  # in place: the worker finds it by itself
        assert cluster.finished(task.id).worker_id == 'w1'
        assert 'certificates read again' in w.log()


@pytest.mark.parametrize('how, text', [(None, None), ('strangers', None), ('expired', None)])
def test_a_client_is_refused(tls, build_dir, strangers, how, text):
    env = client_env(tls)
    credentials = tls.certs.credentials(None)
    if how == 'strangers':
        env['REINS_TLS_CERT'], env['REINS_TLS_KEY'] = strangers.path('client-admin'), strangers.key('client-admin')
        credentials = grpc.ssl_channel_credentials(
            tls.certs.ca.read_bytes(), env['REINS_TLS_KEY'].read_bytes(), env['REINS_TLS_CERT'].read_bytes())
    elif how == 'expired':
        tls.certs.make('--seconds', 0, '--client', 'late')
        env = client_env(tls, 'client-late')
        credentials = tls.certs.credentials('client-late')
    else:
        del env['REINS_TLS_CERT'], env['REINS_TLS_KEY']
    done = reins(build_dir, 'ping', env=env)
    assert done.returncode == 77 and 'certificate' in done.stderr and '--tls-cert' in done.stderr, done
    with tls.open_channel([('grpc.use_local_subchannel_pool', 1)], credentials) as channel:
        with pytest.raises(grpc.RpcError) as e:
            stubs.tasks_grpc.TaskServiceStub(channel).ListTasks(stubs.tasks.ListTasksRequest(), timeout=5)
    assert e.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_clear_text_on_a_tls_port(tls, build_dir):
    def told():  # again and again: of lines that come at once the log keeps the first
        done = reins(build_dir, 'ping', '--server', tls.address)
        assert done.returncode == 69 and 'https://' in done.stderr, done
        return 'clear text, not TLS' in tls.log()

    wait_for(told, lambda: tls.log())
    assert tls.health() == 'SERVING'


def test_an_expired_server_says_so(make_cluster):
    cluster = make_cluster(tls=True)
    cluster.certs.make('--seconds', 0, '--server', 'localhost,127.0.0.1')
    cluster.start(wait=False)
    wait_for(lambda: 'server.pem has expired: clients refuse it' in cluster.log(), lambda: cluster.log())
    with pytest.raises(ssl.SSLCertVerificationError):
        wait_for(lambda: serial(cluster))
    cluster.certs.make('--server', 'localhost,127.0.0.1')
    hang_up(cluster)
    assert 'good for 364 days' in cluster.log()
    wait_for(lambda: cluster.health() == 'SERVING')


# ---- certificates that change under running work ----

def test_rotation_under_a_running_task(tls, start_worker, tmp_path):
    """Server's and worker's certificate, a broken one, then another authority: the task and its stream notice nothing."""
    w = start_worker(tls)
    t = tls.submit(command=until_file(tmp_path))
    wait_for(lambda: len(lines(tls, t.id)) > 2)
    first = serial(tls)
    assert first == serial_in_file(tls.certs.path('server'))

    tls.certs.make('--server', 'localhost,127.0.0.1', '--worker', 'w1')
    assert 'read again' in hang_up(tls)
    second = serial(tls)
    assert second == serial_in_file(tls.certs.path('server')) != first
    ticks_on(tls, t.id)

    for broken in (b'', b'rubbish', tls.certs.path('server').read_bytes()[:-200]):
        shutil.copy(tls.certs.path('server'), tmp_path / 'good')
        tls.certs.path('server').write_bytes(broken)
        said = hang_up(tls)
        assert 'the old certificates stay in use' in said and 'server.pem' in said
        assert serial(tls) == second
        shutil.copy(tmp_path / 'good', tls.certs.path('server'))
    for name in ('ca.pem', 'server-key.pem'):  # a CA that is none; the key of another certificate
        path = tls.certs.folder / name
        good = path.read_bytes()
        path.write_bytes(tls.certs.key('client-admin').read_bytes())
        assert 'the old certificates stay in use' in hang_up(tls)
        path.write_bytes(good)
        assert serial(tls) == second
    ticks_on(tls, t.id)

    # Another authority: first both are trusted, then all get new certificates, then the old one goes.
    old_worker = {k: tmp_path / f'old-{k}' for k in ('tls_cert', 'tls_key')}
    shutil.copy(tls.certs.path('worker-w1'), old_worker['tls_cert'])
    shutil.copy(tls.certs.key('worker-w1'), old_worker['tls_key'])
    tls.certs.make('--force', '--ca')
    hang_up(tls)
    w.process.send_signal(signal.SIGHUP)
    wait_for(lambda: 'certificates read again' in w.log(), lambda: w.log())
    tls.certs.make('--server', 'localhost,127.0.0.1', '--worker', 'w1', '--client', 'admin')
    hang_up(tls)
    assert serial(tls) not in (first, second)
    tls.certs.make('--drop-old-ca')
    hang_up(tls)
    ticks_on(tls, t.id)
    assert tls.log().count('connected from') == 1 and 'stream' not in w.log()

    # Who has a certificate of the old one is a stranger now; the worker, which has read its files again, is not.
    late = start_worker(tls, 'w1', **old_worker)
    wait_for(lambda: "doesn't trust the authority" in late.log(), lambda: late.log())
    late.kill()
    (tmp_path / 'go').touch()
    done = tls.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert lines(tls, t.id)[-1] == b'end' and tls.log().count('connected from') == 1
    tls._channels.pop().close()  # with the old authority's certificate
    del tls._tasks
    tls.restart()
    assert tls.finished(tls.submit().id, timeout=60).worker_id == 'w1'


def test_a_workers_broken_files_change_nothing(tls, start_worker, tmp_path):
    w = start_worker(tls)
    tls.finished(tls.submit().id)
    good = tls.certs.path('worker-w1').read_bytes()
    tls.certs.path('worker-w1').write_bytes(b'rubbish')
    w.process.send_signal(signal.SIGHUP)
    wait_for(lambda: 'the old certificates stay in use' in w.log(), lambda: w.log())
    tls.restart()
    assert tls.finished(tls.submit().id).state == State.COMPLETED
    assert w.log().count('the old certificates stay in use') == 1
    tls.certs.path('worker-w1').write_bytes(good)
    w.process.send_signal(signal.SIGHUP)
    wait_for(lambda: 'certificates read again' in w.log(), lambda: w.log())


def test_a_certificate_that_ends_under_a_running_task(tls, start_worker, tmp_path):
    """Its stream ends with it, the program does not; renewed, the worker goes on with the same attempt."""
    tls.certs.make('--seconds', 5, '--worker', 'w1')
    w = start_worker(tls)
    t = tls.submit(command=until_file(tmp_path))
    wait_for(lambda: len(lines(tls, t.id)) > 2)
    assert 'ends in 0 hours: renew it' in w.log()
    said = "the certificate of this call has expired: renew it"
    wait_for(lambda: said in tls.log() and said in w.log(), lambda: tls.log()[-3000:] + w.log())
    wait_for(lambda: 'it has expired; renew it' in w.log(), lambda: w.log())
    tls.certs.make('--worker', 'w1')
    ticks_on(tls, t.id)
    (tmp_path / 'go').touch()
    done = tls.finished(t.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert lines(tls, t.id)[-1] == b'end'


# ---- many ----

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def memory_kib(pid):
    with open(f'/proc/{pid}/smaps_rollup') as f:
        return int(re.search(r'^Rss:\s+(\d+)', f.read(), re.M)[1])


def test_the_root_is_not_sent(tls):
    """Who trusts it has it; each connection of the peer would keep a copy."""
    done = subprocess.run(['openssl', 's_client', '-connect', tls.address, '-CAfile', tls.certs.ca, '-cert',
                           tls.certs.path('client-admin'), '-key', tls.certs.key('client-admin'), '-showcerts', '-alpn', 'h2'],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert 'Verify return code: 0' in done.stdout, done
    assert done.stdout.count('BEGIN CERTIFICATE') == 1, done.stdout


def test_idle_connections(tls, record_property):
    n = 300
    context = ssl.create_default_context(cafile=tls.certs.ca)
    context.load_cert_chain(tls.certs.path('client-admin'), tls.certs.key('client-admin'))
    context.set_alpn_protocols(['h2'])

    def connect():
        s = context.wrap_socket(socket.create_connection(('127.0.0.1', tls.port), timeout=PATIENCE),
                                server_hostname='localhost')
        s.sendall(PREFACE)
        assert s.recv(9)[3] == 4  # its SETTINGS
        return s
    connected = [connect() for _ in range(20)]
    before = memory_kib(tls.process.pid)
    began = time.monotonic()
    connected += [connect() for _ in range(n)]
    took = time.monotonic() - began
    each = (memory_kib(tls.process.pid) - before) / n
    print(f'{n} idle TLS connections: {each:.1f} KiB each, {took / n * 1000:.2f} ms to make one')
    record_property('kib_per_idle_tls_connection', each)
    if 'asan' not in str(os.environ.get('REINS_BUILD')):
        assert each < 48
    assert tls.health() == 'SERVING'
    for s in connected:
        s.close()
