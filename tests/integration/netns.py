"""A network of its own for a worker, whose packets can be dropped both ways: no FIN, no RST, nobody is told."""
import os
import shutil
import subprocess

import pytest


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f'{" ".join(command)}: {done.stderr.strip()}')


class Network:
    """The host is .host in it. .prefix goes before the command that is to live there; not `ip netns exec`, which mounts
    another /sys, without cgroups."""

    def __init__(self):
        n = os.getpid() % 16000
        self.name, self.link = f'reins-{os.getpid()}', f'rnsh{n}'
        first = f'10.213.{n // 64}.{n % 64 * 4}'.rsplit('.', 1)
        self.host, self.inside = (f'{first[0]}.{int(first[1]) + i}' for i in (1, 2))
        self.rule = ['INPUT', '-i', self.link, '-j', 'DROP']
        self.dropping = False
        self.prefix = ['nsenter', f'--net=/run/netns/{self.name}']
        try:
            run('ip', 'netns', 'add', self.name)
            run('ip', 'link', 'add', self.link, 'type', 'veth', 'peer', 'name', f'rnsw{n}')
            run('ip', 'link', 'set', f'rnsw{n}', 'netns', self.name)
            run('ip', 'addr', 'add', f'{self.host}/30', 'dev', self.link)
            run('ip', 'link', 'set', self.link, 'up')
            run(*self.prefix, 'ip', 'addr', 'add', f'{self.inside}/30', 'dev', f'rnsw{n}')
            run(*self.prefix, 'ip', 'link', 'set', f'rnsw{n}', 'up')
        except OSError:
            self.close()
            raise

    def drop(self, out=True, into=True):
        """On the side that receives: who sends sees nothing of it. `out`: what comes from this network; `into`: what goes to
        it."""
        if out:
            run('iptables', '-w', '-I', *self.rule)
            self.dropping = True
        if into:
            run(*self.prefix, 'iptables', '-w', '-I', 'INPUT', '-j', 'DROP')

    def heal(self):
        if self.dropping:
            run('iptables', '-w', '-D', *self.rule)
            self.dropping = False
        run(*self.prefix, 'iptables', '-w', '-F', 'INPUT')

    def close(self):
        try:
            self.heal()
        finally:
            subprocess.run(['ip', 'link', 'del', self.link], capture_output=True, timeout=30)
            subprocess.run(['ip', 'netns', 'del', self.name], capture_output=True, timeout=30)


@pytest.fixture
def network():
    if os.geteuid() != 0:
        pytest.skip('only root can make a network namespace')
    missing = [p for p in ('ip', 'iptables', 'nsenter') if not shutil.which(p)]
    if missing:
        pytest.skip(f'no {", ".join(missing)} here')
    try:
        made = Network()
    except OSError as e:
        pytest.skip(f'no network namespace here: {e}')
    try:
        made.drop()
        made.heal()
    except OSError as e:
        made.close()
        pytest.skip(f'packets can not be dropped here: {e}')
    yield made
    made.close()
