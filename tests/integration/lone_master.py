"""A reinsd on a file of its own: without Postgres and Redis, for what these have no part in."""
import os
import signal
import subprocess

import grpc

import stubs
from cluster import PATIENCE, REINSD, dying_with_us, free_port, wait_for


class LoneMaster:
    certs = None

    def __init__(self, folder, **flags):
        self.folder = folder
        self.port = free_port()
        self.address = f'127.0.0.1:{self.port}'
        self.flags = {'listen': self.address, 'store': f'sqlite:{folder}/reins.db', 'log-level': 'debug',
                      **{k.replace('_', '-'): v for k, v in flags.items()}}
        self.log_path = folder / 'reinsd.log'
        self.channels = []
        self.process = None

    def start(self):
        command = [*dying_with_us(), str(REINSD), *(f'--{k}={v}' for k, v in self.flags.items())]
        env = {k: v for k, v in os.environ.items() if not k.startswith('REINS_')}
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        wait_for(self._ready, lambda: self.log())
        return self

    def _ready(self):
        assert self.process.poll() is None, self.log()
        return 'listening on' in self.log() and 'ready master=' in self.log()

    def log(self):
        return self.log_path.read_text(errors='replace') if self.log_path.exists() else ''

    def channel(self, credentials=None):
        options = [('grpc.use_local_subchannel_pool', 1)]
        made = (grpc.secure_channel(self.address, credentials, options=options) if credentials
                else grpc.insecure_channel(self.address, options=options))
        self.channels.append(made)
        return made

    def hang_up(self):
        """SIGHUP, and all that it says to it."""
        before = self.log()
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: 'certificates' in self.log()[len(before):], lambda: self.log())
        return self.log()[len(before):]

    def peak(self):
        """Bytes of memory that it had at most."""
        with open(f'/proc/{self.process.pid}/status') as f:
            return next(int(line.split()[1]) for line in f if line.startswith('VmHWM')) << 10

    def close(self):
        for channel in self.channels:
            channel.close()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(PATIENCE) == 0, self.log()
        assert 'Sanitizer' not in self.log() and 'runtime error' not in self.log(), self.log()


class Caller:
    """Stubs over one channel, with a token or none."""

    def __init__(self, channel, token=None):
        self.raw = channel
        self.channel = grpc.intercept_channel(channel, _Bearer(token)) if token else channel
        self.tasks = stubs.tasks_grpc.TaskServiceStub(self.channel)
        self.admin = stubs.admin_grpc.AdminServiceStub(self.channel)

    def submit(self, **spec):
        spec.setdefault('command', ['/bin/true'])
        request = stubs.tasks.SubmitTaskRequest(spec=stubs.task.TaskSpec(**spec))
        return self.tasks.SubmitTask(request, timeout=PATIENCE).task


class _Details(grpc.ClientCallDetails):
    def __init__(self, of, metadata):
        self.method, self.timeout, self.credentials = of.method, of.timeout, of.credentials
        self.wait_for_ready, self.compression, self.metadata = of.wait_for_ready, of.compression, metadata


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    def __init__(self, token):
        self.metadata = (('authorization', f'Bearer {token}'),)

    def intercept_unary_unary(self, go_on, details, request):
        return go_on(_Details(details, (*(details.metadata or ()), *self.metadata)), request)

    intercept_unary_stream = intercept_unary_unary
    intercept_stream_stream = intercept_unary_unary
