"""The program reins-worker, as tests start and end it."""
import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import pytest

DEADLINE = 15  # seconds until something that does not happen fails the test


class Worker:
    def __init__(self, build_dir, folder, server, prefix=(), env=None, **flags):
        self.folder = folder
        self.state = folder / 'state'
        settings = {'server': server, 'id': 'w1', 'slots': 4, 'state-dir': self.state,
                    'kill-grace': '1s', 'log-level': 'debug',
                    # Programs outlive a worker: what a test leaves running is to end with it.
                    'drain': 'requeue', 'orphan-timeout': '5s'}
        settings.update({k.replace('_', '-'): v for k, v in flags.items()})
        self.command = [*prefix, str(build_dir / 'worker' / 'reins-worker')]
        self.command += [f'--{k}={v}' for k, v in settings.items() if v is not None]
        self.env = dict(env or {})  # of the agent, beside what the tests run with
        self.pass_fds = ()
        self.process = None
        self.log_path = folder / 'worker.log'

    def start(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith('REINS_')}
        env['REINS_TOKEN'] = 'secret-token'
        env['REINS_INSECURE'] = 'true'  # some masters of the tests are in a namespace of their own
        env['HELLO_FROM_WORKER'] = 'yes'
        env.update(self.env)
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdout=log, stdin=subprocess.DEVNULL, env=env,
                                            pass_fds=self.pass_fds)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self, deadline=DEADLINE):
        return self.process.wait(deadline)

    def log(self):
        return self.log_path.read_text(errors='replace')

    def supervisors(self):
        """{name of the attempt's directory: pid} of those that live."""
        found = {}
        for f in self.state.glob('attempts/*/supervisor'):
            try:
                _, _, pid, ticks = struct.unpack_from('=IIqQ', f.read_bytes())
            except (struct.error, FileNotFoundError):
                continue
            if start_ticks(pid) == ticks and alive(pid):
                found[f.parent.name] = pid
        return found

    def kill_all(self):
        """As when the machine goes: the agent first, so that it does not see its supervisors die."""
        self.process.kill()
        pids = list(self.supervisors().values())
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pid in pids:
            wait_gone(pid)

    def reboot(self):
        """As when the machine goes and comes back: the boot id in the files is another one. Nothing is started."""
        self.kill_all()
        for f in self.state.glob('attempts/*/supervisor'):
            data = bytearray(f.read_bytes())
            data[24:60] = b'00000000-0000-0000-0000-000000000000'
            f.write_bytes(data)

    def end_supervisors(self):
        """Of an agent that has gone: told to end their trees."""
        for pid in self.supervisors().values():
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def stop(self):
        """As an operator in a hurry: SIGTERM, and SIGTERM again."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(0.2)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(DEADLINE)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                    pytest.fail('the worker did not end on a second SIGTERM')
        self.end_supervisors()
        text = self.log()
        remove_cgroups(text)
        assert 'Sanitizer' not in text and 'runtime error' not in text, text


def remove_cgroups(log):
    """Of a worker that was killed and did not come back; as far as they are empty."""
    for folder in set(re.findall(r' in (/\S*/reins-\S+) \(v', log)):
        for path in [*pathlib.Path(folder).glob('*/'), pathlib.Path(folder)]:
            with contextlib.suppress(OSError):
                path.rmdir()


def alive(pid):
    try:
        with open(f'/proc/{pid}/stat') as f:
            return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


def start_ticks(pid):
    try:
        with open(f'/proc/{pid}/stat') as f:
            return int(f.read().rsplit(')', 1)[1].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_gone(pid):
    end = time.monotonic() + DEADLINE
    while alive(pid):
        assert time.monotonic() < end, f'process {pid} is still there'
        time.sleep(0.01)


@contextlib.contextmanager
def workers(build_dir, folder):
    """start(cluster, id, flags) -> a Worker that runs; ended with the block."""
    made = []

    def start(cluster, name='w1', **flags):
        own = folder / f'{name.replace("/", "_")}-{len(made)}'
        own.mkdir()
        server = flags.pop('server', cluster.url)
        made.append(Worker(build_dir, own, server, **{'id': name, **cluster.worker_flags(name), **flags}))
        return made[-1].start()
    try:
        yield start
    finally:
        for w in made:
            w.stop()


# ---- a fixture; test modules get it through conftest.py ----


@pytest.fixture
def start_worker(build_dir, tmp_path):
    """start_worker(cluster, id, flags) -> a Worker that runs; ended with the test."""
    with workers(build_dir, tmp_path) as start:
        yield start
