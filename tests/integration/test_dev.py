"""reins dev: the whole of Reins in one command, from outside."""
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import termios
import time

import pytest

from real_worker import alive, wait_gone

DEADLINE = 30  # seconds; far more than any of these takes
READY = re.compile(r'^Reins is ready at (http://127\.0\.0\.1:\d+), ', re.M)


class Dev:
    def __init__(self, build_dir, folder, *flags, env=None, slots=2):
        self.reins = str(build_dir / 'client' / 'reins')
        self.folder = folder
        self.data = folder / 'data'
        self.out, self.err = folder / 'out', folder / 'err'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('REINS_')} | (env or {})
        self.command = [self.reins, 'dev', f'--data={self.data}', '--listen=127.0.0.1:0', *flags]
        if slots:
            self.command.append(f'--slots={slots}')
        self.process = None
        self.url = None

    def start(self, ready=True):
        with open(self.out, 'wb') as out, open(self.err, 'wb') as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.env,
                                            start_new_session=True)
        if ready:
            self.wait(lambda: READY.search(self.out.read_text()), 'the line that it is ready')
            self.url = READY.search(self.out.read_text()).group(1)
        return self

    def wait(self, condition, what):
        end = time.monotonic() + DEADLINE
        while not condition():
            assert self.process.poll() is None, f'reins dev ended with {self.process.returncode}\n{self.log()}'
            assert time.monotonic() < end, f'not in time: {what}\n{self.log()}'
            time.sleep(0.01)

    def log(self):
        return self.err.read_text(errors='replace')

    def run(self, *args, code=0):
        r = subprocess.run([self.reins, *args], env=self.env | {'REINS_SERVER': self.url}, capture_output=True, text=True,
                           timeout=DEADLINE)
        assert r.returncode == code, (args, r.stdout, r.stderr, self.log())
        return r.stdout

    def children(self):
        """{'reinsd': pid, 'reins-worker': pid}"""
        found = {}
        for pid in pathlib.Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children').read_text().split():
            found[pathlib.Path(f'/proc/{pid}/comm').read_text().strip()] = int(pid)
        return found

    def end(self, signo=signal.SIGINT):
        """The exit code, once nothing is left of it."""
        children = self.children()
        self.process.send_signal(signo)
        code = self.process.wait(DEADLINE)
        assert not any(alive(pid) for pid in children.values()), children
        return code


@pytest.fixture
def make_dev(build_dir, tmp_path):
    made = []

    def make(*flags, folder=tmp_path, **more):
        made.append(Dev(build_dir, folder, *flags, **more))
        return made[-1]
    yield make
    for dev in made:
        text = dev.log() if dev.err.exists() else ''
        if dev.process and dev.process.poll() is None:
            children = dev.children()
            dev.process.kill()
            dev.process.wait(DEADLINE)
            for pid in children.values():
                wait_gone(pid)
        assert 'Sanitizer' not in text and 'runtime error' not in text, text


def test_start_run_end(make_dev):
    # What leads a client elsewhere must not lead the worker there.
    dev = make_dev(env={'REINS_SERVER': 'https://127.0.0.1:1', 'REINS_TOKEN': 'x', 'REINS_TLS_CA': '/nowhere',
                        'REINS_STATE_DIR': '/nowhere'}).start()
    for name in ('REINS_TOKEN', 'REINS_TLS_CA'):
        del dev.env[name]
    assert dev.run('submit', '--wait', '--', 'echo', 'hello') == 'hello\n'
    assert dev.run('submit', '--wait', '--', 'sh', '-c', 'echo $REINS_SERVER; exit 3', code=3) == f'{dev.url}\n'
    workers = json.loads(dev.run('workers', '-o', 'json'))
    assert workers['workerId'] == 'dev' and workers['slots'] == 2
    text = dev.out.read_text()
    assert str(dev.data) in text and f'export REINS_SERVER={dev.url}' in text and 'export PATH=' in text
    log = dev.log()
    assert re.search(r'^reinsd \| .*listening on', log, re.M) and re.search(r'^worker \| ', log, re.M)
    assert all(re.match(r'(reinsd \| |worker \| |reins dev: )', line) for line in log.splitlines())
    assert '\033' not in log
    assert set(dev.children()) == {'reinsd', 'reins-worker'}
    assert dev.end() == 0


def test_as_many_slots_as_cpus(make_dev):
    dev = make_dev(slots=None).start()
    workers = json.loads(dev.run('workers', '-o', 'json'))
    assert workers['slots'] == len(os.sched_getaffinity(0))
    assert dev.end(signal.SIGTERM) == 0


def test_a_restart_keeps_the_tasks(make_dev):
    dev = make_dev(slots=1).start()
    done = json.loads(dev.run('submit', '--wait', '-o', 'json', '--', 'echo', 'kept'))['id']
    sleeper = dev.run('submit', '--', 'sleep', '300').strip()
    waits = dev.run('submit', '--', 'echo', 'later').strip()
    dev.wait(lambda: '"state": "RUNNING"' in json.dumps([json.loads(x) for x in dev.run('list', '-o', 'json').splitlines()]),
             'the first runs')
    dev.process.send_signal(signal.SIGINT)
    dev.wait(lambda: 'Ctrl-C again' in dev.log(), 'it says what it waits for')
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(DEADLINE) == 0, dev.log()
    dev.start()
    assert dev.run('logs', done) == 'kept\n'
    dev.run('cancel', sleeper)  # given back when its worker left; the one slot may be its again
    dev.run('wait', waits)
    assert dev.run('logs', waits) == 'later\n'
    assert dev.end() == 0


def test_drained_it_can_be_started_again(make_dev):
    dev = make_dev().start()
    marker = dev.folder / 'go'
    task = dev.run('submit', '--', 'sh', '-c', f'echo begun; while [ ! -e {marker} ]; do sleep 0.05; done; echo ended').strip()
    dev.wait(lambda: dev.run('logs', task) == 'begun\n', 'it runs')
    dev.run('drain', 'dev', '--mode', 'detach', '--reason', 'try')
    assert dev.process.wait(DEADLINE) == 0, dev.log()
    assert 'was drained' in dev.log()
    dev.start()
    marker.touch()
    dev.run('wait', task)
    assert dev.run('logs', task) == 'begun\nended\n'
    status = json.loads(dev.run('status', '-o', 'json', task))
    assert status['attempt'] == 1
    assert 'takes tasks again' in dev.log()
    assert dev.run('submit', '--wait', '--', 'echo', 'more') == 'more\n'
    assert dev.end() == 0


def test_what_runs_may_end(make_dev):
    dev = make_dev().start()
    marker = dev.folder / 'go'
    task = dev.run('submit', '--', 'sh', '-c', f'echo begun; while [ ! -e {marker} ]; do sleep 0.05; done; echo ended').strip()
    dev.wait(lambda: dev.run('logs', task) == 'begun\n', 'it runs')
    dev.process.send_signal(signal.SIGTERM)
    dev.wait(lambda: re.search(r'^worker \| .*draining', dev.log(), re.M), 'the worker drains')
    marker.touch()
    assert dev.process.wait(DEADLINE) == 0
    dev.start()
    assert dev.run('logs', task) == 'begun\nended\n'
    assert json.loads(dev.run('status', '-o', 'json', task))['state'] == 'COMPLETED'
    assert dev.end() == 0


@pytest.mark.parametrize('victim, other', [('reinsd', 'reins-worker'), ('reins-worker', 'reinsd')])
def test_one_of_them_dies(make_dev, victim, other):
    dev = make_dev().start()
    children = dev.children()
    os.kill(children[victim], signal.SIGKILL)
    assert dev.process.wait(DEADLINE) == 1
    assert not alive(children[other])
    assert f'{victim} was ended by signal 9' in dev.log()


def test_another_worker_of_its_id(make_dev, build_dir, tmp_path):
    """Somebody starts a worker of the same id: the newer one wins, and we say why we end."""
    dev = make_dev().start()
    other = subprocess.Popen([str(build_dir / 'worker' / 'reins-worker'), f'--server={dev.url}', '--id=dev',
                              f'--state-dir={tmp_path}/other'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        assert dev.process.wait(DEADLINE) == 1
        assert re.search(r'^reins dev: reins-worker ended with exit code 1: .*has taken over the id "dev"', dev.log(), re.M)
    finally:
        other.kill()
        other.wait()


def test_killed_itself_nothing_is_left(make_dev):
    dev = make_dev().start()
    children = dev.children()
    dev.process.kill()
    dev.process.wait(DEADLINE)
    for pid in children.values():
        wait_gone(pid)
    # And the next one goes on there.
    dev.start()
    assert dev.end() == 0


def refused(dev, *flags):
    r = subprocess.run([dev.reins, 'dev', *flags], env=dev.env, cwd=dev.folder, capture_output=True, text=True, timeout=DEADLINE)
    assert r.returncode != 0 and r.stdout == ''
    return r.returncode, r.stderr


def test_what_is_in_use(make_dev):
    dev = make_dev().start()
    port = dev.url.rsplit(':', 1)[1]
    code, text = refused(dev, f'--listen=127.0.0.1:{port}', '--data=other')
    assert code == 1 and f'port {port} is in use' in text and '--listen' in text
    code, text = refused(dev, '--listen=127.0.0.1:0', f'--data={dev.data}')
    assert code == 1 and 'in use by another reins dev' in text and str(dev.process.pid) in text
    assert dev.run('submit', '--wait', '--', 'echo', 'unharmed') == 'unharmed\n'
    assert dev.end() == 0


def test_what_cannot_be(make_dev):
    dev = make_dev()
    code, text = refused(dev, '--data=/proc/none/data')
    assert code == 1 and '/proc/none/data' in text and '--data' in text
    (dev.folder / 'file').touch()
    code, text = refused(dev, '--data=file')
    assert code == 1 and 'Not a directory' in text
    code, text = refused(dev, '--listen=tls://127.0.0.1:1')
    assert code == 64 and 'tls' in text
    code, text = refused(dev, 'surplus')
    assert code == 64
    code, text = refused(dev, '--listen=127.0.0.1:0', '--server-flag=--no-such-flag')
    assert code == 1 and 'no-such-flag' in text and 'reinsd ended with exit code 64' in text
    code, text = refused(dev, '--listen=127.0.0.1:0', '--worker-flag=--slots=x')
    assert code == 1 and 'reins-worker ended with exit code 64' in text


def test_flags_are_handed_on(make_dev):
    dev = make_dev('--server-flag=--master-id=m7', '--worker-flag=--id=w7').start()
    assert json.loads(dev.run('workers', '-o', 'json'))['workerId'] == 'w7'
    assert 'master m7' in dev.run('ping')
    assert dev.end() == 0


def test_on_a_terminal(make_dev):
    """Colours, and a Ctrl-C that the terminal sends to all of its foreground: the two must hear of it from us alone."""
    dev = make_dev()
    try:
        main, side = os.openpty()
    except OSError as e:
        pytest.skip(f'no pseudo-terminals here: {e}')
    with open(dev.out, 'wb') as out:
        dev.process = subprocess.Popen(dev.command, stdin=side, stdout=out, stderr=side, env=dev.env, start_new_session=True,
                                       preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(side)
    text = b''

    def read_until(condition):
        nonlocal text
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, text
            text += os.read(main, 4096)

    read_until(lambda: b'\033[36mreinsd |\033[0m ' in text and b'\033[33mworker |\033[0m ' in text)
    dev.err.touch()
    dev.wait(lambda: READY.search(dev.out.read_text()), 'the line that it is ready')
    dev.url = READY.search(dev.out.read_text()).group(1)
    marker = dev.folder / 'go'
    task = dev.run('submit', '--', 'sh', '-c', f'echo begun; while [ ! -e {marker} ]; do sleep 0.05; done; echo ended').strip()
    dev.wait(lambda: dev.run('logs', task) == 'begun\n', 'it runs')
    os.write(main, b'\x03')
    read_until(lambda: b'draining' in text)
    marker.touch()
    try:
        read_until(lambda: False)
    except OSError:  # EIO: nobody has the other end any more
        pass
    os.close(main)
    assert dev.process.wait(DEADLINE) == 0, text
    assert text.count(b'ending;') == 1 and b'second signal' not in text, text
    dev.start()
    assert dev.run('logs', task) == 'begun\nended\n'
    assert dev.end() == 0
