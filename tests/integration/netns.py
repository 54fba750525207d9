"""A network of its own for a worker, whose packets can be dropped: no FIN, no RST, nobody is told."""
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
        self.name, self.link, self.inner = f'reins-{os.getpid()}', f'rnsh{n}', f'rnsw{n}'
        first = f'10.213.{n // 64}.{n % 64 * 4}'.rsplit('.', 1)
        self.host, self.inside = (f'{first[0]}.{int(first[1]) + i}' for i in (1, 2))
        self.prefix = ['nsenter', f'--net=/run/netns/{self.name}']
        self.undo = []  # commands, the newest last
        try:
            run('ip', 'netns', 'add', self.name)
            run('ip', 'link', 'add', self.link, 'type', 'veth', 'peer', 'name', self.inner)
            run('ip', 'link', 'set', self.inner, 'netns', self.name)
            run('ip', 'addr', 'add', f'{self.host}/30', 'dev', self.link)
            run('ip', 'link', 'set', self.link, 'up')
            run(*self.prefix, 'ip', 'addr', 'add', f'{self.inside}/30', 'dev', self.inner)
            run(*self.prefix, 'ip', 'link', 'set', self.inner, 'up')
        except OSError:
            self.close()
            raise

    def drop(self, ways=('out', 'in')):
        """`out`: what is sent from in there, `in`: what is sent to it. On the side that receives: who sends sees nothing of it."""
        for way in ways:
            where = [] if way == 'out' else self.prefix
            rule = ['INPUT', *(['-i', self.link] if way == 'out' else []), '-j', 'DROP']
            run(*where, 'iptables', '-w', '-I', *rule)
            self.undo.append([*where, 'iptables', '-w', '-D', *rule])

    def down(self):
        """The interface in there; the host sees a link without carrier."""
        run(*self.prefix, 'ip', 'link', 'set', self.inner, 'down')
        self.undo.append([*self.prefix, 'ip', 'link', 'set', self.inner, 'up'])

    def heal(self):
        while self.undo:
            run(*self.undo.pop())

    def close(self):
        try:
            self.heal()
        finally:
            subprocess.run(['ip', 'link', 'del', self.link], capture_output=True, timeout=30)
            subprocess.run(['ip', 'netns', 'del', self.name], capture_output=True, timeout=30)


def make_network():
    """A Network and None, or None and the reason why there can be none here."""
    if os.geteuid() != 0:
        return None, 'only root can make a network namespace'
    missing = [p for p in ('ip', 'iptables', 'nsenter') if not shutil.which(p)]
    if missing:
        return None, f'no {", ".join(missing)} here'
    try:
        made = Network()
    except OSError as e:
        return None, f'no network namespace here: {e}'
    try:
        made.drop()
        made.heal()
    except OSError as e:
        made.close()
        return None, f'packets can not be dropped here: {e}'
    return made, None


@pytest.fixture
def network():
    made, reason = make_network()
    if not made:
        pytest.skip(reason)
    yield made
    made.close()
