"""What programs of a worker may have and do: cgroups, users, programs, environment, descriptors."""
import contextlib
import os
import pathlib
import pwd
import shutil
import sys
import tempfile
import time

import pytest
from alone import cause, kind, make_worker, master  # noqa: F401
from real_worker import DEADLINE, wait_gone

EAT = (sys.executable, '-c', 'b = bytearray(256 << 20)\nfor i in range(0, len(b), 512): b[i] = 1')
ROOT = os.geteuid() == 0


@pytest.fixture
def need(master):
    return lambda **kw: master.task_pb.Resources(**kw)


def line_of(worker, word):
    return next((line for line in worker.log().splitlines() if word in line), '')


def cgroups_of(worker):
    """{controller or 'kill': the worker's directory}, from what it says at its start."""
    found = {}
    for part in line_of(worker, 'cgroups:').partition('cgroups:')[2].split(';'):
        words, _, place = part.partition(' in ')
        if place.startswith('/'):
            found.update({w: pathlib.Path(place.rpartition(' (')[0]) for w in words.split()})
    return found


def need_cgroup(worker, which):
    found = cgroups_of(worker)
    if which not in found:
        pytest.skip(f'no cgroup for {which} here: {line_of(worker, "cgroup")}')
    return found[which]


# ---- cgroups

def test_memory(master, make_worker, need):
    """S42: over the limit, and ends that look the same but are the program's own."""
    worker = make_worker()
    s = master.session()
    need_cgroup(worker, 'memory')
    assert s.hello.resources.memory_bytes > 0
    limit = need(memory_bytes=64 << 20)
    o = master.ended(master.run(s, *EAT, resources=limit)).outcome
    assert kind(o) == 'FAILED' and o.oom_killed
    assert o.error.startswith(b'out of memory: over its limit of 64MiB')
    for script, code, signal in (('exit 137', 137, 0), ('kill -9 $$', 0, 9)):
        o = master.ended(master.run(s, 'sh', '-c', script, resources=limit)).outcome
        assert kind(o) == 'FAILED' and not o.oom_killed and b'memory' not in o.error
        assert (o.exit_code, o.signal) == (code, signal)
    assert kind(master.ended(master.run(s, *EAT)).outcome) == 'SUCCEEDED'
    refused = master.refused(master.run(s, 'true', resources=need(memory_bytes=1 << 47)))
    assert cause(refused) == 'UNSUPPORTED' and 'memory_bytes' in refused.text


def test_no_memory_without_the_means(master, make_worker, need):
    worker = make_worker(cgroup='off')
    s = master.session()
    assert s.hello.resources.memory_bytes == 0 and s.hello.resources.cpu_millis > 0
    refused = master.refused(master.run(s, 'true', resources=need(memory_bytes=1 << 20)))
    assert (cause(refused), refused.text) == (
        'UNSUPPORTED', "this worker can't enforce a limit of memory (see its --cgroup and --memory)")
    # cpu is counted all the same.
    assert kind(master.ended(master.run(s, 'true', resources=need(cpu_millis=500))).outcome) == 'SUCCEEDED'
    assert cause(master.refused(master.run(s, 'true', resources=need(cpu_millis=10**8)))) == 'UNSUPPORTED'
    assert 'no cgroups' in worker.log()


def test_memory_flag_without_the_means(build_dir, make_worker, master):
    w = make_worker(cgroup='off', memory='1GiB')
    assert w.wait() == 1
    assert "--memory: programs can't be held to a limit of memory here" in w.log()


def test_cpu(master, make_worker, need, tmp_path):
    worker = make_worker(cpus=3)
    s = master.session()
    folder = need_cgroup(worker, 'cpu')
    assert s.hello.resources.cpu_millis == 3000
    key = master.run(s, 'sh', '-c', f'until [ -e {tmp_path}/go ]; do sleep 0.02; done', resources=need(cpu_millis=2500))
    master.started(key)
    own = folder / f'{key[0]}.{key[1]}'
    if (own / 'cpu.max').exists():
        assert (own / 'cpu.max').read_text() == '250000 100000\n'
    else:
        assert (own / 'cpu.cfs_quota_us').read_text() == '250000\n'
    assert (own / 'cgroup.procs').read_text().split()
    assert cause(master.refused(master.run(s, 'true', resources=need(cpu_millis=501)))) == 'BUSY'
    (tmp_path / 'go').touch()
    assert kind(master.ended(key).outcome) == 'SUCCEEDED'
    assert not own.exists()


def test_processes(master, make_worker):
    worker = make_worker(pids_limit=20)
    s = master.session()
    need_cgroup(worker, 'pids')
    a = master.ended(master.run(s, sys.executable, '-c', '''
import os, signal
pids = []
try:
    for i in range(50):
        pids.append(os.fork() or signal.pause())
except BlockingIOError:
    print("no more after", len(pids))
'''))
    assert a.log == b'no more after 19\n'
    # All that it started has gone with it.
    assert kind(a.outcome) == 'SUCCEEDED'


def test_directories_go_with_the_attempt_and_the_worker(master, make_worker):
    worker = make_worker()
    s = master.session()
    folders = set(cgroups_of(worker).values())
    if not folders:
        pytest.skip(f'no cgroups here: {line_of(worker, "cgroup")}')
    for _ in range(3):
        master.ended(master.run(s, 'true'))
    for folder in folders:
        assert [p for p in folder.iterdir() if p.is_dir()] == []
    worker.stop()
    assert not any(folder.exists() for folder in folders)


def test_double_fork_and_setsid_end_with_the_cgroup(master, make_worker):
    """S41: what left its session, ignores SIGTERM and lost its parent is still in the cgroup."""
    worker = make_worker()
    s = master.session()
    need_cgroup(worker, 'kill')
    a = master.ended(master.run(s, 'sh', '-c', "setsid sh -c 'trap \"\" TERM; echo $$; sleep 300' & sleep 0.3; exit 0"))
    assert kind(a.outcome) == 'SUCCEEDED'
    wait_gone(int(a.log))


def test_what_a_dead_worker_left_is_swept(master, make_worker):
    """Agent and supervisors are killed; the cgroup still has the program's processes."""
    worker = make_worker()
    s = master.session()
    folder = need_cgroup(worker, 'kill')
    key = master.run(s, 'sh', '-c', "setsid sh -c 'trap \"\" TERM; echo pid $$; sleep 300' & wait")
    pid = int(master.printed(key, b'\n').split()[1])
    own = folder / f'{key[0]}.{key[1]}'
    supervisors = [p for p in supervisors_of(pid)]
    worker.kill()
    for p in supervisors:
        with contextlib.suppress(ProcessLookupError):
            os.kill(p, 9)
    worker.start()
    wait_gone(pid)
    master.session(2)
    end = time.monotonic() + DEADLINE
    while own.exists():
        assert time.monotonic() < end, 'the cgroup of an attempt that is gone is still there'
        time.sleep(0.02)
    assert kind(master.ended(key).outcome) == 'LOST'


def supervisors_of(pid):
    """Ancestors of a program named reins-supervisor."""
    while pid > 1:
        with open(f'/proc/{pid}/status') as f:
            fields = dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)
        if fields['Name'].startswith('reins-supervis'):
            yield pid
        pid = int(fields['PPid'])


# ---- what is not handed on

def test_environment_is_a_list(master, make_worker):
    make_worker(env={'LC_TEST': 'x', 'PASSWORD': 'secret', 'REINS_SERVER': 'http://10.1.1.1:7'})
    s = master.session()
    env = dict(line.split('=', 1) for line in master.ended(master.run(s, 'env')).log.decode().splitlines())
    assert env['LC_TEST'] == 'x' and env['REINS_SERVER'] == 'http://10.1.1.1:7' and env['PATH'] == os.environ['PATH']
    assert not {'PASSWORD', 'HELLO_FROM_WORKER', 'REINS_TOKEN'} & set(env)


def test_inherit_env(master, make_worker):
    make_worker(inherit_env='HELLO_*,REINS_TOKEN')
    s = master.session()
    log = master.ended(master.run(s, 'env')).log
    assert b'\nHELLO_FROM_WORKER=yes\n' in b'\n' + log and b'REINS_TOKEN' not in log


def test_descriptors(master, make_worker, tmp_path):
    with open(tmp_path / 'secret', 'w') as secret:
        os.set_inheritable(secret.fileno(), True)
        make_worker(pass_fds=(secret.fileno(),))
    s = master.session()
    for _ in range(3):  # of a supervisor started ahead, and of one started later
        a = master.ended(master.run(s, sys.executable, '-c', 'import os; print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])'))
        assert a.log == b'[0, 1, 2]\n'


def status_of(master, s, *names, **kw):
    log = master.ended(master.run(s, 'cat', '/proc/self/status', **kw)).log.decode()
    fields = dict(line.split(':\t', 1) for line in log.splitlines() if ':\t' in line)
    return tuple(fields[n].strip() for n in names)


def test_no_new_privileges(master, make_worker):
    make_worker()
    assert status_of(master, master.session(), 'NoNewPrivs') == ('1',)


def test_privileges_by_flag(master, make_worker):
    make_worker(allow_privileges='true')
    assert status_of(master, master.session(), 'NoNewPrivs') == ('0',)


def test_limits_and_umask(master, make_worker):
    make_worker(open_files=333)
    s = master.session()
    a = master.ended(master.run(s, 'sh', '-c', 'ulimit -c; ulimit -n; umask'))
    core, files, umask = a.log.decode().split()
    assert (core, files) == ('0', '333') and int(umask, 8) & 0o022 == 0o022


def test_allow(master, make_worker, tmp_path):
    tool, other = tmp_path / 'tool', tmp_path / 'other'
    for path in (tool, other):
        path.write_text('#!/bin/sh\necho here\n')
        path.chmod(0o755)
    worker = make_worker(allow=f'{tmp_path}/t*,{shutil.which("env")}', env={'PATH': f'{tmp_path}:{os.environ["PATH"]}'})
    s = master.session()
    for command in (('tool',), (str(tool),), ('env', 'true')):
        assert kind(master.ended(master.run(s, *command)).outcome) == 'SUCCEEDED'
    assert kind(master.ended(master.run(s, './tool', working_dir=str(tmp_path))).outcome) == 'SUCCEEDED'
    for command in (('other',), (str(other),), (f'{tmp_path}/../{tmp_path.name}/tool',)):
        a = master.ended(master.run(s, *command))
        assert kind(a.outcome) == 'LAUNCH_FAILED' and a.started is None
        assert a.outcome.error.decode().endswith('is not allowed on this worker (see its --allow)')
        assert b'/' in a.outcome.error
    a = master.ended(master.run(s, 'no-such-program'))
    assert kind(a.outcome) == 'LAUNCH_FAILED' and b'no-such-program' in a.outcome.error and b'--allow' in a.outcome.error
    assert worker.process.poll() is None


# ---- another user

@pytest.fixture
def reachable():
    """A folder that every user can get to; pytest's own can't be."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix='reins-test-'))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


needs_root = pytest.mark.skipif(not ROOT, reason='only root can run programs as another user')


@needs_root
def test_run_as(reachable, master, make_worker):
    worker = make_worker(folder=reachable, run_as='nobody')
    worker_env = pwd.getpwnam('nobody')
    s = master.session()
    a = master.ended(master.run(s, 'sh', '-c', '''
id -un; id -Gn; echo "$HOME $USER $LOGNAME $SHELL"; pwd
echo work > here && echo result > "$REINS_RESULT.new" && mv "$REINS_RESULT.new" "$REINS_RESULT"
echo '{"step": 1, "x": 2}' >> "$REINS_METRICS"
echo out > /dev/stdout
'''))
    assert kind(a.outcome) == 'SUCCEEDED', a.log
    lines = a.log.decode().splitlines()
    assert lines[0] == 'nobody' and 'root' not in lines[1]
    assert lines[2] == f'{worker_env.pw_dir} nobody nobody {worker_env.pw_shell}'
    assert lines[3].startswith(str(worker.state)) and lines[-1] == 'out'
    assert a.outcome.result == b'result\n'
    assert status_of(master, s, 'NoNewPrivs', 'CapEff') == ('1', '0000000000000000')


@needs_root
def test_run_as_can_not_look_around(reachable, master, make_worker):
    worker = make_worker(folder=reachable, run_as='nobody')
    s = master.session()
    a = master.ended(master.run(s, 'sh', '-c', f'''
cd {worker.state}
for d in . attempts "attempts/$REINS_TASK_ID.1"; do ls $d 2>/dev/null && echo "listed $d"; touch $d/mine 2>/dev/null && echo "wrote $d"; done
for f in lock identity outcomes store-id attempts/$REINS_TASK_ID.1/*; do cat "$f" >/dev/null 2>&1 && echo "read $f"; done
for f in attempt status supervisor socket log log.0; do
  f=attempts/$REINS_TASK_ID.1/$f; cat "$f" >/dev/null 2>&1 && echo "read $f"; rm -f "$f" 2>/dev/null; done
kill -0 $PPID 2>/dev/null && echo "may signal its parent"
echo done'''))
    assert a.log == b'done\n'


@needs_root
def test_run_as_a_link_to_what_it_may_not_read(reachable, master, make_worker):
    """A name given to root's file is no result; the kernel refuses the link itself where it protects them."""
    secret = reachable / 'secret'
    secret.write_text('secret')
    secret.chmod(0o600)
    make_worker(folder=reachable, run_as='nobody')
    s = master.session()
    for how in ('ln', 'ln -s'):
        o = master.ended(master.run(s, 'sh', '-c', f'{how} {secret} "$REINS_RESULT"; true')).outcome
        assert (kind(o), o.result) == ('SUCCEEDED', b'')


@needs_root
def test_run_as_where_the_user_can_not_go(make_worker, master):
    w = make_worker(run_as='nobody')
    assert w.wait() == 1
    assert "that user can't enter" in w.log() and 'give another --state-dir' in w.log()


def test_run_as_nobody_at_all(make_worker, master):
    w = make_worker(run_as='no-such-user')
    assert w.wait() == 1
    assert '--run-as no-such-user: ' in w.log()
