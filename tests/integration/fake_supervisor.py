"""A supervisor that does not do its work: fake_supervisor.py MODE FOLDER, started by an agent as reins-supervisor is.

  stuck        takes the job, says that the program runs; after a stop, that its tree can't be ended, until FOLDER/gone
  own-failure  can't start the program, for a reason of the worker's
  dies         ends when it gets the job
"""
import fcntl
import os
import pathlib
import select
import socket
import struct
import sys
import time

JOB, DEADLINES, STOP, SEEN, STATUS = range(1, 6)
STARTING, RUNNING, LAUNCH_FAILED, EXITED, EMPTY = range(1, 6)
BY_AGENT = 1
FORMAT = '=IIIiiiiiiiiiiiqqqq512s'


class Supervisor:
    def __init__(self):
        self.socket = socket.socket(fileno=3)
        self.socket.setblocking(True)
        self.fields = dict(version=1, phase=STARTING, stopped_by=0, stop_reason=0, launch_errno=0, launch_own=0, exit_code=0,
                           signal=0, oom_kills=0, stuck=0, pid=0, pad=0, started=0, exited=0, log_end=0, dropped=0, text=b'')

    def say(self, **changes):
        self.fields.update(changes)
        packet = struct.pack(FORMAT, STATUS, struct.calcsize(FORMAT), *self.fields.values())
        fd = os.open('status.next', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self.dir)
        os.write(fd, packet)
        os.close(fd)
        os.rename('status.next', 'status', src_dir_fd=self.dir, dst_dir_fd=self.dir)
        self.socket.send(packet)

    def take_job(self):
        packet, fds, _, _ = socket.recv_fds(self.socket, 4096, 3)
        if not packet:
            sys.exit(0)
        assert struct.unpack_from('=I', packet)[0] == JOB
        self.dir = fds[0]

    def lock(self):
        self.lock_fd = os.open('supervisor', os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.dir)
        fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def wait_for_stop(self):
        while True:
            packet = self.socket.recv(4096)
            if not packet:
                sys.exit(0)
            if struct.unpack_from('=I', packet)[0] == STOP:
                return struct.unpack_from('=i', packet, 8)[0]

    def wait_for_file(self, path):
        while not path.exists():
            if select.select([self.socket], [], [], 0.02)[0] and not self.socket.recv(4096):
                sys.exit(0)


def main():
    mode, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    s = Supervisor()
    s.take_job()
    if mode == 'dies':
        return
    s.lock()
    now = int(time.time() * 1e6)
    if mode == 'own-failure':
        s.say(phase=LAUNCH_FAILED, launch_errno=28, launch_own=1, text=b'no cgroup for it')
        s.say(phase=EMPTY)
        return
    s.say(phase=RUNNING, started=now)
    s.say(stopped_by=BY_AGENT, stop_reason=s.wait_for_stop(), text=b'stopped')
    s.say(phase=EXITED, exited=now, signal=9)
    s.say(stuck=1, text=b'not ended 1 s after SIGKILL: 17 (d\xff)')
    s.wait_for_file(folder / 'gone')
    s.say(stuck=0, text=b'stopped')
    s.say(phase=EMPTY)


main()
