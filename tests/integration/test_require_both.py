"""--require-both: a call takes a token and a certificate, and certificates without lines of a file."""
import subprocess

import grpc
import pytest

import stubs
from certs import Certs
from cluster import BUILD, PATIENCE, wait_for
from lone_master import Caller
from real_worker import Worker
from test_auth import State, Tokens, info, make_certificate, refused, reins, tls_master

Code = grpc.StatusCode
NOT_BOTH = 'this server wants both: a certificate, and `authorization: Bearer TOKEN` of the same name'


def cancel(who, task_id):
    return who.tasks.CancelTask(stubs.tasks.CancelTaskRequest(task_id=task_id))


def follow(who, task_id):
    """A stream that stays open until somebody ends it."""
    return who.tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=task_id, follow=True), timeout=PATIENCE)


@pytest.fixture(scope='module')
def certs(tmp_path_factory):
    made = Certs(tmp_path_factory.mktemp('tls') / 'tls')
    made.make('--client', 'alice', '--client', 'bob', '--worker', 'gpu-1', '--worker', 'gpu-2')
    make_certificate(made, 'nobody', '')
    return made


@pytest.fixture
def house(tmp_path, certs):
    tokens = Tokens(tmp_path / 'tokens')
    master = tls_master(tmp_path, certs, client_ca=certs.ca, tokens_file=tokens.path, require_both='true')
    master.both, master.file = certs, tokens
    yield master
    master.close()


def caller(master, certificate, token):
    return Caller(master.channel(master.both.credentials(certificate)), token)


def test_either_alone_is_not_enough(house):
    alice, bob = house.file.add('alice', 'submitter'), house.file.add('bob', 'submitter')
    house.start()
    t = caller(house, 'client-alice', alice).submit()
    assert t.owner == 'alice'
    assert refused(lambda: caller(house, 'client-alice', None).submit()) == (Code.UNAUTHENTICATED, NOT_BOTH)
    # Without a certificate there is no connection, so not even health.
    assert refused(lambda: caller(house, None, alice).submit())[0] == Code.UNAVAILABLE
    for certificate, token in (('client-bob', alice), ('client-alice', bob), ('worker-gpu-1', alice)):
        assert refused(lambda c=certificate, k=token: caller(house, c, k).submit()) == (
            Code.UNAUTHENTICATED, 'the token and the certificate stand for different names')
    assert refused(lambda: caller(house, 'nobody', alice).submit())[1] == 'the certificate names nobody who is known here'
    assert refused(lambda: info(house, ()))[0] == Code.UNAVAILABLE
    # The token's roles count beside the certificate's, which are an admin's.
    assert refused(lambda: caller(house, 'client-alice', alice).admin.DrainWorker(stubs.admin.DrainWorkerRequest(worker_id='w')))[0] == (
        Code.PERMISSION_DENIED)
    assert refused(lambda: cancel(caller(house, 'client-bob', bob), t.id))[0] == Code.PERMISSION_DENIED
    assert cancel(caller(house, 'client-alice', alice), t.id).state == State.CANCELLED
    env = {'REINS_SERVER': f'https://{house.address}', 'REINS_TLS_CA': str(house.both.ca), 'REINS_TOKEN': alice}
    both = {**env, 'REINS_TLS_CERT': str(house.both.path('client-alice')), 'REINS_TLS_KEY': str(house.both.key('client-alice'))}
    assert reins('list', env=both).returncode == 0
    assert reins('list', env=env).returncode in (69, 77)
    assert reins('list', env={**both, 'REINS_TOKEN': ''}).returncode == 77


def test_metrics_take_both(house):
    reader, plain = house.file.add('alice', 'reader'), house.file.add('bob', 'worker')
    house.start()

    def status(certificate, token):
        done = subprocess.run(['curl', '-sS', '-o', '/dev/null', '-w', '%{http_code}', '--cacert', house.both.ca, '--cert',
                               house.both.path(certificate), '--key', house.both.key(certificate),
                               *(['-H', f'authorization: Bearer {token}'] if token else []),
                               f'https://localhost:{house.port}/metrics'], capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout

    assert status('client-alice', reader) == '200'
    assert status('client-alice', None) == '401'
    assert status('client-bob', reader) == '401'
    assert status('client-bob', plain) == '403'


def test_a_worker_shows_both(house, tmp_path):
    alice = house.file.add('alice', 'submitter')
    tokens = {name: house.file.add(name, 'worker', worker='gpu-*') for name in ('gpu-1', 'gpu-2')}
    house.start()

    def start(worker_id, token, certificate, folder):
        (tmp_path / folder).mkdir()
        w = Worker(BUILD, tmp_path / folder, f'https://{house.address}', id=worker_id, tls_ca=house.both.ca,
                   tls_cert=house.both.path(certificate), tls_key=house.both.key(certificate))
        w.env['REINS_TOKEN'] = token
        return w.start()

    workers = [start('gpu-2', tokens['gpu-1'], 'worker-gpu-1', 'a'), start('gpu-1', tokens['gpu-1'], 'worker-gpu-2', 'b'),
               start('gpu-1', tokens['gpu-1'], 'worker-gpu-1', 'c')]
    try:
        # The token would let it be gpu-2; the certificate does not.
        wait_for(lambda: 'the certificate names worker "gpu-1", not worker "gpu-2"' in workers[0].log(), workers[0].log)
        wait_for(lambda: 'stand for different names' in workers[1].log(), workers[1].log)
        t = caller(house, 'client-alice', alice).submit()
        done = caller(house, 'client-alice', alice).tasks.GetTask(stubs.tasks.GetTaskRequest(task_id=t.id, wait={'seconds': 20}))
        assert (done.state, done.worker_id) == (State.COMPLETED, 'gpu-1')
    finally:
        for w in workers:
            w.stop()


def test_lines_for_certificates(house):
    """What a line says of a certificate counts beside what the token's says, and its end ends what is open."""
    token = house.file.add('alice', 'admin')
    other = house.file.add('root', 'admin')
    line = 'cert reins:client:alice roles=submitter,reader queues=a\ncert reins:client:bob name=root roles=admin\n'
    house.file.path.write_text(house.file.path.read_text() + line)
    house.start()
    alice, root = caller(house, 'client-alice', token), caller(house, 'client-bob', other)
    t = alice.submit(queue='a')
    assert root.submit(queue='b').owner == 'root'
    assert refused(lambda: alice.submit(queue='b'))[0] == Code.PERMISSION_DENIED
    assert refused(lambda: alice.admin.PauseQueue(stubs.admin.PauseQueueRequest(queue='a')))[1] == (
        '"alice" may not: it takes one of the roles operator,admin; yours: reader,submitter')
    open_one, stays = follow(alice, t.id), follow(root, t.id)
    wait_for(lambda: house.log().count('TaskService/ReadLogs from') == 2, house.log)
    house.file.path.write_text(house.file.path.read_text().replace('queues=a', 'queues=b'))
    house.hang_up()
    wait_for(open_one.done, house.log)
    assert (open_one.code(), open_one.details()) == (Code.UNAUTHENTICATED, 'the right to this call was taken back')
    assert not stays.done()
    house.file.path.write_text(house.file.path.read_text().replace(' roles=admin\ncert', ' roles=reader\ncert'))
    house.file.drop(other)
    house.hang_up()
    wait_for(stays.done, house.log)
    assert stays.code() == Code.UNAUTHENTICATED


@pytest.mark.parametrize('flags, said', [
    ({'tokens-file': 'x'}, 'require-both: give --tokens-file and --client-ca'),
    ({'client-ca': 'x'}, 'require-both: give --tokens-file and --client-ca'),
    ({'tokens-file': 'x', 'client-ca': 'x', 'listen': '127.0.0.1:1'}, 'clear text, where nobody can show the certificate'),
])
def test_refused_at_start(tmp_path, flags, said):
    done = subprocess.run([BUILD / 'server' / 'reinsd', '--require-both', f'--store=sqlite:{tmp_path}/db',
                           *(f'--{k}={v}' for k, v in flags.items())], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 64 and said in done.stderr, done


def test_the_first_line_for_certificates(tmp_path, certs):
    """Who was let in as reins:client:NAME goes on when a line comes that says the same of that name."""
    tokens = Tokens(tmp_path / 'tokens')
    tokens.write()
    master = tls_master(tmp_path, certs, client_ca=certs.ca, tokens_file=tokens.path).start()
    master.both = certs
    try:
        alice, bob = (caller(master, f'client-{n}', None) for n in ('alice', 'bob'))
        t = alice.submit()
        assert t.owner == 'alice'
        stays, ends = follow(alice, t.id), follow(bob, t.id)
        wait_for(lambda: master.log().count('TaskService/ReadLogs from') == 2, master.log)
        tokens.path.write_text('cert reins:client:alice roles=admin\n')
        master.hang_up()
        wait_for(ends.done, master.log)
        assert ends.code() == Code.UNAUTHENTICATED and not stays.done()
        assert alice.submit().owner == 'alice'
    finally:
        master.close()
