"""reins-worker against a master in Python: the wire contract of a worker, without reinsd."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import grpc
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from alone import KIND, REASON, make_worker, master, session, worker  # noqa: E402, F401
from fake_master import DEADLINE, FakeMaster  # noqa: E402
from real_worker import alive, wait_gone  # noqa: E402


def pid_in(log):
    return int(re.search(rb'pid (\d+)', log).group(1))


# ---- Hello and heartbeats

def test_hello(master, make_worker):
    make_worker(queues='a,b', labels='zone=x,rack=7', slots=3)
    hello = master.session().hello
    assert (hello.protocol, hello.worker_id, hello.slots, hello.last) == (1, 'w1', 3, True)
    assert re.fullmatch('[0-9a-f]{32}', hello.instance)
    assert list(hello.queues) == ['a', 'b']
    assert dict(hello.labels) == {'zone': 'x', 'rack': '7'}
    assert hello.runs_commands and hello.enforces_exclusive_lease and not hello.paused
    assert not hello.tasks_die_with_process
    assert hello.store_id == '' and not hello.attempts
    assert hello.hostname and hello.version.startswith('reins-worker/')


def test_heartbeats_are_numbered_and_list_what_is_held(master, session):
    key = master.run(session, 'sh', '-c', 'sleep 60')
    master.started(key)
    n = len(session.heartbeats)
    master.wait(lambda: len(session.heartbeats) >= n + 3, 'heartbeats')
    beat = session.heartbeats[-1][1]
    assert [(a.task_id, a.attempt) for a in beat.attempts] == [key]
    assert beat.last_dispatch == 1


def test_unanswered_heartbeat_makes_a_new_session(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo pid $$; sleep 2; echo end')
    master.printed(key, b'pid')
    master.auto_heartbeat_ack = False
    master.wait(lambda: session.closed, 'the old stream is left')
    master.auto_heartbeat_ack = True
    again = master.session(2)
    assert key in again.held and not again.held[key].has_outcome
    assert again.hello.resumes_session == session.number
    assert again.hello.store_id == 'store-1'
    assert master.ended(key).outcome.kind == KIND['SUCCEEDED']
    assert len(master.attempts[key].outcomes) == 1


# ---- ends

def test_true(master, session):
    a = master.ended(master.run(session, 'true'))
    assert a.accepted and a.started.started_at.seconds > 0
    assert a.outcome.kind == KIND['SUCCEEDED'] and a.outcome.exit_code == 0
    assert a.outcome.WhichOneof('has_exit_code') == 'exit_code' and a.outcome.signal == 0
    assert a.outcome.finished_at.ToNanoseconds() >= a.outcome.started_at.ToNanoseconds() > 0
    assert a.outcome.log_end == 0


def test_exit_code(master, session):
    o = master.ended(master.run(session, 'sh', '-c', 'exit 3')).outcome
    assert (o.kind, o.exit_code, o.signal) == (KIND['FAILED'], 3, 0)


def test_signal_death(master, session):
    o = master.ended(master.run(session, 'sh', '-c', 'kill -SEGV $$')).outcome
    assert (o.kind, o.signal) == (KIND['FAILED'], signal.SIGSEGV)
    assert o.WhichOneof('has_exit_code') is None
    assert b'signal 11' in o.error


@pytest.mark.parametrize('command, text', [
    (('no-such-program-here',), b'no-such-program-here: No such file'),
    (('/etc/passwd',), b'/etc/passwd: Permission denied'),
    (('',), b'No such file'),
])
def test_launch_failure(master, session, command, text):
    a = master.ended(master.run(session, *command))
    assert a.outcome.kind == KIND['LAUNCH_FAILED'] and text in a.outcome.error
    assert a.started is None and not a.outcome.HasField('started_at')
    assert a.outcome.WhichOneof('has_exit_code') is None


def test_launch_failure_beside_a_directory_that_may_not_be_entered(master, make_worker, tmp_path):
    closed, plain = tmp_path / 'closed', tmp_path / 'plain'
    closed.mkdir(mode=0)
    plain.mkdir()
    (plain / 'data').write_text('no program')
    # Root gives up its way around permissions.
    prefix = [shutil.which('setpriv'), '--inh-caps=-all', '--bounding-set=-dac_override,-dac_read_search'] if os.geteuid() == 0 else []
    make_worker(prefix=prefix, env={'PATH': f'{closed}:{plain}'})
    s = master.session()
    o = master.ended(master.run(s, 'no-such-program-here')).outcome
    assert (o.kind, o.error) == (KIND['LAUNCH_FAILED'], b'no-such-program-here: No such file or directory')
    o = master.ended(master.run(s, 'data')).outcome
    assert (o.kind, o.error) == (KIND['LAUNCH_FAILED'], b'data: Permission denied')


def test_launch_failure_of_the_directory(master, session):
    o = master.ended(master.run(session, 'true', working_dir='/no/such/place')).outcome
    assert o.kind == KIND['LAUNCH_FAILED'] and b'/no/such/place: No such file' in o.error


def test_words_too_long_for_the_kernel(master, session):
    a = master.ended(master.run(session, 'true', 'x' * 200_000))
    assert a.outcome.kind == KIND['LAUNCH_FAILED'] and b'Argument list too long' in a.outcome.error
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']


def test_no_interpreter_is_no_shell_script(master, session, tmp_path):
    script = tmp_path / 'script'
    script.write_text('echo hello\n')
    script.chmod(0o755)
    o = master.ended(master.run(session, str(script))).outcome
    assert o.kind == KIND['LAUNCH_FAILED'] and b'Exec format error' in o.error


# ---- what the program gets

def test_environment(master, session):
    trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    key = master.run(session, 'env', '-0', attempt=7, queue='q/1', traceparent=trace,
                     params={'lr': '0.1', 'name': 'a "b"\n\u00e9'}, env={'MINE': 'a=b', 'HELLO_FROM_WORKER': 'no'})
    a = master.ended(key)
    env = dict(v.split(b'=', 1) for v in a.stream(1).split(b'\0') if v)
    assert env[b'REINS_TASK_ID'].decode() == key[0]
    assert env[b'REINS_ATTEMPT'] == b'7'
    assert env[b'REINS_QUEUE'] == b'q/1'
    assert env[b'REINS_WORKER_ID'] == b'w1'
    assert json.loads(env[b'REINS_PARAMS']) == {'lr': '0.1', 'name': 'a "b"\n\u00e9'}
    assert env[b'TRACEPARENT'].decode() == trace
    assert (env[b'MINE'], env[b'HELLO_FROM_WORKER']) == (b'a=b', b'no')
    assert b'REINS_RESULT' in env and b'REINS_METRICS' in env and b'REINS_TOKEN' not in env
    assert len(a.stream(1).split(b'HELLO_FROM_WORKER=')) == 2


def test_words_are_not_touched(master, session):
    a = master.ended(master.run(session, 'printf', '%s|', '$HOME', '*', 'a b', '', "'"))
    assert a.stream(1) == b"$HOME|*|a b||'|"


def test_own_directory_and_session(master, worker, session):
    a = master.ended(master.run(session, 'python3', '-c', '''
import os
print(os.getcwd()); print(os.listdir()); print(os.getsid(0) == os.getpid() == os.getpgid(0))
print(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1], os.get_blocking(1))
open("left-behind", "w").write("x"); os.makedirs("deep/er")
'''))
    where, entries, leader, files = a.stream(1).decode().splitlines()
    assert where.startswith(str(worker.state)) and entries == '[]' and leader == 'True'
    assert files == '[0, 1, 2] True'
    end = time.monotonic() + DEADLINE
    while list((worker.state / 'attempts').iterdir()):
        assert time.monotonic() < end, 'what the attempt left is not removed'
        time.sleep(0.01)


def test_working_dir(master, session, tmp_path):
    assert master.ended(master.run(session, 'pwd', working_dir=str(tmp_path))).stream(1).decode().strip() == str(tmp_path)


def test_payload_is_stdin(master, session):
    payload = bytes(range(256)) * 4096
    a = master.ended(master.run(session, 'sha256sum', payload=payload))
    import hashlib
    assert a.stream(1).split()[0].decode() == hashlib.sha256(payload).hexdigest()


def test_no_payload_is_an_empty_stdin(master, session):
    assert master.ended(master.run(session, 'cat')).outcome.kind == KIND['SUCCEEDED']


def test_signals_are_as_after_login(master, session):
    key = master.run(session, 'python3', '-c', '''
import signal
print(signal.getsignal(signal.SIGPIPE), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([l.split()[1] for l in open("/proc/self/status") if l.startswith(("SigBlk", "ShdPnd"))])
''')
    assert b"['0000000000000000', '0000000000000000']" in master.ended(key).log


# ---- results

def test_result(master, session):
    o = master.ended(master.run(session, 'sh', '-c', r'printf "a\000b\377" > "$REINS_RESULT"')).outcome
    assert (o.result, o.result_bytes) == (b'a\0b\xff', 4)


def test_result_over_the_limit(master, make_worker):
    master.result_bytes = 1000
    make_worker()
    s = master.session()
    o = master.ended(master.run(s, 'sh', '-c', 'head -c 1001 /dev/zero > "$REINS_RESULT"')).outcome
    assert (o.kind, o.result, o.result_bytes) == (KIND['SUCCEEDED'], b'', 1001)
    o = master.ended(master.run(s, 'sh', '-c', 'head -c 1000 /dev/zero > "$REINS_RESULT"')).outcome
    assert (len(o.result), o.result_bytes) == (1000, 1000)


def test_result_of_the_full_size(master, session):
    o = master.ended(master.run(session, 'sh', '-c', 'head -c 1048576 /dev/urandom > "$REINS_RESULT"')).outcome
    assert len(o.result) == o.result_bytes == 1 << 20


@pytest.mark.parametrize('make', ['mkfifo "$REINS_RESULT"', 'ln -s /etc/passwd "$REINS_RESULT"', 'mkdir "$REINS_RESULT"'])
def test_result_that_is_no_file(master, session, make):
    o = master.ended(master.run(session, 'sh', '-c', make)).outcome
    assert (o.kind, o.result, o.result_bytes) == (KIND['SUCCEEDED'], b'', 0)


# ---- logs

def test_many_lines(master, session):
    a = master.ended(master.run(session, 'seq', '200000'), deadline=60)
    expected = b''.join(b'%d\n' % i for i in range(1, 200001))
    assert a.stream(1) == expected
    assert a.outcome.log_end == len(expected) and a.dropped == 0


def test_binary_output(master, session):
    a = master.ended(master.run(session, 'python3', '-c',
                                'import sys; sys.stdout.buffer.write(bytes(range(256)) * 5000)'))
    assert a.stream(1) == bytes(range(256)) * 5000


def test_both_streams_in_the_order_of_reading(master, session):
    key = master.run(session, 'python3', '-uc', '''
import sys, time, os
for i in range(20):
    os.write(1 + i % 2, b"%d\\n" % i)
    time.sleep(0.02)
''')
    a = master.ended(key)
    assert a.log == b''.join(b'%d\n' % i for i in range(20))
    assert a.stream(2) == b''.join(b'%d\n' % i for i in range(1, 20, 2))
    assert [offset for _, offset, _, _ in a.pieces] == sorted(offset for _, offset, _, _ in a.pieces)


def test_log_comes_while_the_program_runs(master, session):
    key = master.run(session, 'sh', '-c', 'echo first; sleep 60')
    master.printed(key, b'first\n')
    assert not master.attempts[key].outcomes


def test_log_limit(master, make_worker):
    make_worker(log_limit='100KiB')
    a = master.ended(master.run(master.session(), 'sh', '-c', 'seq 100000; echo late >&2'), deadline=60)
    expected = b''.join(b'%d\n' % i for i in range(1, 100001)) + b'late\n'
    assert a.outcome.log_end == a.log_end == len(expected)
    gaps = [(offset, dropped) for _, offset, _, dropped in a.pieces if dropped]
    assert gaps[0][0] == 75 * 1024, 'three quarters for the start'
    assert all(sum(before) == after[0] for before, after in zip(gaps, gaps[1:])), 'one hole, in one piece or more'
    assert a.log == expected[:75 * 1024] + expected[sum(gaps[-1]):]
    assert len(expected) - sum(gaps[-1]) <= 25 * 1024 and a.stream(2) == b'late\n'


def test_a_fast_printer_and_a_store_that_is_slow(master, make_worker):
    """Nothing is stored: the worker sends no more than it was allowed to, holds nothing in memory, and heartbeats go on."""
    master.auto_log_ack = False
    master.log_window = (1 << 20, 4 << 20)
    worker = make_worker()
    session = master.session()
    key = master.run(session, 'sh', '-c', 'head -c 40000000 /dev/zero | tr "\\0" x')
    master.wait(lambda: master.attempts[key].log_end > 500000, 'some log')
    n = len(session.heartbeats)
    master.wait(lambda: len(session.heartbeats) > n + 5, 'heartbeats meanwhile')
    assert master.attempts[key].log_end < 2 << 20
    status = pathlib.Path(f'/proc/{worker.process.pid}/status').read_text()
    assert int(re.search(r'VmRSS:\s+(\d+)', status).group(1)) < 200_000
    master.auto_log_ack = True
    a = master.ended(key, deadline=60)
    assert a.log_end == a.outcome.log_end == 40000000
    assert a.dropped == 0


def test_a_program_does_not_wait_for_a_master_that_is_away(master, session, tmp_path):
    done = tmp_path / 'done'
    key = master.run(session, 'sh', '-c', f'read x; head -c 8000000 /dev/zero | tr "\\0" x; echo > {done}', payload=b'go\n')
    master.started(key)
    master.auto_welcome = False
    session.cut()
    end = time.monotonic() + DEADLINE
    while not done.exists():
        assert time.monotonic() < end, 'the program waits for a master'
        time.sleep(0.02)
    master.auto_welcome = True
    a = master.ended(key, deadline=30)
    assert a.log_end == a.outcome.log_end == 8000000
    assert a.log == b'x' * 8000000
    assert a.most_in_flight <= 1 << 20


def test_what_is_behind_the_head_goes_live_to_those_who_follow(master, make_worker, tmp_path):
    make_worker(log_limit='64KiB')
    s = master.session()
    go, more = tmp_path / 'go', tmp_path / 'more'
    script = f"""head -c 60000 /dev/zero | tr '\\0' h
while [ ! -e {go} ]; do sleep 0.02; done; echo one; echo two >&2
while [ ! -e {more} ]; do sleep 0.02; done; seq 20000; echo end"""
    key = master.run(s, 'sh', '-c', script)
    a = master.attempts[key]
    master.wait(lambda: a.log_end == 48 * 1024, 'the head')
    s.follow(key)
    master.wait(lambda: sum(len(d) for _, _, d in a.live) == 60000 - 48 * 1024, 'what came before it was followed')
    go.touch()
    master.wait(lambda: {(1, b'one\n'), (2, b'two\n')} <= {(st, d) for st, _, d in a.live}, 'live lines')
    assert a.log_end == 48 * 1024 and not a.outcomes
    s.follow(key, False)
    n = len(a.live)
    more.touch()
    master.ended(key)
    assert len(a.live) == n and a.log.endswith(b'end\n')
    # What was live came again where it is kept, and what is not kept was told.
    assert a.log_end == a.outcome.log_end and a.dropped == a.log_end - len(a.log) > 0


# ---- stopping

def test_timeout(master, session):
    a = master.ended(master.run(session, 'sleep', '60', timeout=0.3))
    assert a.outcome.kind == KIND['TIMED_OUT'] and a.outcome.signal == signal.SIGTERM
    assert b'300ms' in a.outcome.error
    took = a.outcome.finished_at.ToMilliseconds() - a.outcome.started_at.ToMilliseconds()
    assert took >= 299


def test_stop(master, session):
    key = master.run(session, 'sh', '-c', 'trap "echo bye; exit 0" TERM; echo ready; sleep 60 & wait')
    master.printed(key, b'ready')
    session.stop(key)
    a = master.ended(key)
    assert (a.outcome.kind, a.outcome.stop_reason) == (KIND['STOPPED'], REASON['CANCELLED'])
    assert a.outcome.exit_code == 0 and b'bye' in a.log
    assert a.outcome.error == b'the test says so'


@pytest.mark.parametrize('reason, text', [('CANCELLED', b'cancelled'), ('DRAINED', b'stopped by the master')])
def test_stop_without_a_text(master, session, reason, text):
    key = master.run(session, 'sh', '-c', 'echo ready; sleep 60')
    master.printed(key, b'ready')
    session.stop(key, reason, '')
    assert master.ended(key).outcome.error == text


def test_stop_of_a_program_that_ignores_sigterm(master, session):
    key = master.run(session, 'sh', '-c', 'trap "" TERM; echo pid $$; while :; do sleep 1; done')
    pid = pid_in(master.printed(key, b'pid'))
    session.stop(key)
    a = master.ended(key)
    assert (a.outcome.kind, a.outcome.signal) == (KIND['STOPPED'], signal.SIGKILL)
    assert not alive(pid)


def test_stop_of_a_stopped_program(master, session):
    key = master.run(session, 'sh', '-c', 'echo pid $$; kill -STOP $$; sleep 60')
    master.printed(key, b'pid')
    session.stop(key)
    assert master.ended(key).outcome.signal == signal.SIGTERM


def test_recall_leaves_a_started_attempt_alone(master, session):
    key = master.run(session, 'sh', '-c', 'echo ready; sleep 1')
    master.printed(key, b'ready')
    session.stop(key, 'RECALLED')
    assert master.ended(key).outcome.kind == KIND['SUCCEEDED']


def test_fenced(master, session):
    key = master.run(session, 'sh', '-c', 'trap "" TERM; echo pid $$; while :; do sleep 1; done')
    pid = pid_in(master.printed(key, b'pid'))
    session.stop(key, 'FENCED')
    wait_gone(pid)
    master.wait(lambda: not session.heartbeats[-1][1].attempts, 'it is no longer listed')
    assert not master.attempts[key].outcomes


def test_stop_of_an_unknown_attempt_is_nothing(master, session):
    session.stop(('0195f3a0-0000-7000-8000-000000000000', 1))
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']


def test_children_left_over_are_ended(master, session):
    key = master.run(session, 'sh', '-c', 'trap "" TERM; sleep 300 & echo pid $!; exit 5')
    a = master.ended(key)
    assert (a.outcome.kind, a.outcome.exit_code) == (KIND['FAILED'], 5)
    assert not alive(pid_in(a.log))


def test_a_runaway_that_keeps_stdout_does_not_keep_the_slot(master, session):
    key = master.run(session, 'sh', '-c', 'setsid sleep 20 & echo pid $!; sleep 0.3')
    a = master.ended(key, deadline=10)
    assert a.outcome.kind == KIND['SUCCEEDED']
    assert not alive(pid_in(a.log)), 'what left the session is ended all the same'


# ---- slots and refusals

def test_busy_held_and_unsupported(master, make_worker):
    make_worker(slots=1)
    s = master.session()
    key = master.run(s, 'sh', '-c', 'echo ready; sleep 60')
    master.printed(key, b'ready')
    cause = master.pb.RefusedAttempt

    def refused(**kw):
        k = master.run(s, *kw.pop('command', ['true']), **kw)
        return master.wait(lambda: master.attempts[k].refused, 'refusal').cause
    assert refused() == cause.BUSY
    assert refused(command=[]) == cause.UNSUPPORTED
    # The newest attempt of a task is held: the same number again, and an older one, are refused.
    t = master.task('true', task_id=key[0], attempt=1)
    s.dispatch(t)
    master.wait(lambda: master.attempts[key].refused, 'refusal')
    assert master.attempts[key].refused.cause == cause.HELD
    s.stop(key)
    master.wait(lambda: master.attempts[key].outcomes, 'outcome')
    assert master.ended(master.run(s, 'true')).outcome.kind == KIND['SUCCEEDED']


@pytest.mark.parametrize('field, seconds', [('lease_ttl', 86401), ('lease_ttl', 2**40), ('lease_ttl', -1), ('timeout', 2**33), ('timeout', -1)])
def test_times_that_make_no_sense_are_refused(master, session, field, seconds):
    t = master.task('true', exclusive=True)
    getattr(t if field == 'lease_ttl' else t.spec, field).seconds = seconds
    session.dispatch(t)
    key = (t.task_id, t.attempt)
    refused = master.wait(lambda: master.attempts[key].refused, 'refusal')
    assert refused.cause == master.pb.RefusedAttempt.UNSUPPORTED
    # What it said is no reason to give up: the next one runs.
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']


def test_many_at_once(master, make_worker):
    make_worker(slots=200)
    s = master.session()
    tasks = [master.task('sh', '-c', f'echo {i}; exit {i % 3}') for i in range(200)]
    s.dispatch(*tasks)
    for i, t in enumerate(tasks):
        a = master.ended((t.task_id, 1), deadline=60)
        assert a.outcome.exit_code == i % 3 and a.log == b'%d\n' % i
    assert not s.closed, 'starting many programs held back heartbeats'


# ---- sessions come and go

def test_the_start_is_said_again_in_the_next_session(master, worker, session):
    # The stream may have ended, or the master, before it was stored.
    key = master.run(session, 'sh', '-c', 'echo ready; exec sleep 60')
    first = master.started(key).started
    master.printed(key, b'ready')
    master.attempts[key].started = None
    session.cut()
    again = master.session(2)
    said = master.started(key).started
    assert (said.started_at, list(said.devices)) == (first.started_at, list(first.devices))
    again.stop(key)
    master.ended(key)


def test_stream_cut_while_it_runs(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo one; read x < go; echo two', working_dir=str(worker.folder))
    os.mkfifo(worker.folder / 'go')
    master.printed(key, b'one')
    session.cut()
    again = master.session(2)
    assert key in again.held and again.held[key].started_at.seconds > 0
    assert again.hello.instance == session.hello.instance
    (worker.folder / 'go').write_text('x\n')
    a = master.ended(key)
    assert a.log == b'one\ntwo\n' and len(a.outcomes) == 1


def test_outcome_comes_again_in_the_next_session(master, worker, session):
    master.auto_outcome_ack = False
    key = master.run(session, 'sh', '-c', 'echo x; exit 4')
    master.ended(key)
    session.cut()
    again = master.session(2)
    assert again.held[key].has_outcome
    master.wait(lambda: len(master.attempts[key].outcomes) == 2, 'the outcome again')
    master.ack_outcome(again, key, 'DUPLICATE')
    master.wait(lambda: not again.heartbeats[-1][1].attempts, 'it is forgotten')


def test_outcome_comes_again_on_a_live_session(master, session):
    master.auto_outcome_ack = False
    key = master.run(session, 'true')
    master.ended(key)
    master.wait(lambda: len(master.attempts[key].outcomes) == 2, 'the outcome again', deadline=20)
    assert not session.closed
    master.auto_outcome_ack = True
    master.ack_outcome(session, key)


def test_kill_9_keeps_outcomes(master, worker, session):
    master.auto_outcome_ack = False
    key = master.run(session, 'sh', '-c', 'echo x; printf r > "$REINS_RESULT"; exit 4')
    first = master.ended(key).outcome
    running = master.run(session, 'sh', '-c', 'sleep 300 & echo pid $! $$; wait')
    log = master.printed(running, b'pid')
    worker.kill()
    worker.start()
    again = master.session(2)
    assert set(again.held) == {key, running}
    assert again.held[key].has_outcome and not again.held[running].has_outcome
    assert again.hello.instance == session.hello.instance and again.hello.store_id == 'store-1'
    master.wait(lambda: len(master.attempts[key].outcomes) == 2, 'the outcome again')
    assert master.attempts[key].outcomes[1] == first
    pids = [int(pid) for pid in re.findall(rb'\d+', log)]
    assert all(alive(pid) for pid in pids)
    again.stop(running)
    assert master.ended(running).outcome.kind == KIND['STOPPED']
    assert not any(alive(pid) for pid in pids)
    master.ack_outcome(again, key)
    master.ack_outcome(again, running)
    master.wait(lambda: not again.heartbeats[-1][1].attempts, 'it is forgotten')
    worker.kill()
    worker.start()
    assert not master.session(3).held


def test_the_log_of_a_killed_worker_is_still_there(master, worker, session):
    master.auto_outcome_ack = master.auto_log_ack = False
    key = master.run(session, 'sh', '-c', 'echo 0123456789')
    master.ended(key)
    worker.kill()
    a = master.attempts[key]
    a.pieces, a.log_end, a.stored = [(1, 0, b'0123', 0)], 4, 4
    worker.start()
    master.session(2)
    master.wait(lambda: len(a.outcomes) == 2, 'the outcome again')
    assert a.pieces[1][1:] == (4, b'456789\n', 0) and a.outcome.log_end == 11
    master.ack_outcome(master.sessions[1], key)


def test_long_list_in_pieces(master, make_worker):
    master.auto_outcome_ack = False
    w = make_worker(slots=1500)
    s = master.session()
    tasks = [master.task('true') for _ in range(1500)]
    for i in range(0, 1500, 100):
        s.dispatch(*tasks[i:i + 100])
    for t in tasks:
        master.ended((t.task_id, 1), deadline=90)
    w.kill()
    master.auto_welcome = False
    with master.changed:
        for t in tasks:
            master.attempts[t.task_id, 1].outcomes.clear()
    w.start()
    master.wait(lambda: len(master.sessions) == 2 and len(master.sessions[1].held) == 1500, 'the list')
    again = master.sessions[1]
    master.auto_outcome_ack = master.auto_welcome = True
    again.welcome(pieces=3)
    master.wait(lambda: all(master.attempts[t.task_id, 1].outcomes for t in tasks), 'all again', deadline=30)
    master.wait(lambda: again.heartbeats and not again.heartbeats[-1][1].attempts, 'all are forgotten')


def test_another_store_is_left(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo pid $$; sleep 60')
    pid = pid_in(master.printed(key, b'pid'))
    master.store_id = 'store-2'
    session.cut()
    master.wait(lambda: len(master.sessions) >= 3 and master.sessions[1].closed, 'it leaves and tries again')
    assert all(not s.heartbeats for s in master.sessions[1:])
    assert alive(pid)
    assert 'store-2' in worker.log() and 'store-1' in worker.log()
    master.store_id = 'store-1'
    master.wait(lambda: master.sessions[-1].heartbeats, 'a session with the right one')
    assert key in master.sessions[-1].held


def test_the_next_server_is_tried(master, make_worker, stubs):
    import socket
    # One address refuses, one accepts and says nothing.
    with socket.socket() as silent:
        silent.bind(('127.0.0.1', 0))
        silent.listen()
        port = silent.getsockname()[1]
        make_worker(server=f'127.0.0.1:1,127.0.0.1:{port},127.0.0.1:{master.port}')
        assert master.session().hello.worker_id == 'w1'


def make_certificate(folder, name, ca=None, san=None):
    key, cert = folder / f'{name}.key', folder / f'{name}.pem'
    command = ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
               '-subj', f'/CN={name}', '-keyout', str(key), '-out', str(cert)]
    if san:
        command += ['-addext', f'subjectAltName=DNS:{san}']
    if ca:
        command += ['-CA', str(folder / f'{ca}.pem'), '-CAkey', str(folder / f'{ca}.key'),
                    '-addext', 'basicConstraints=critical,CA:FALSE']
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE)
    return key.read_bytes(), cert.read_bytes()


def test_tls_with_certificates_and_token(stubs, make_worker, tmp_path):
    _, ca = make_certificate(tmp_path, 'ca')
    pair = make_certificate(tmp_path, 'server', 'ca', 'localhost')
    make_certificate(tmp_path, 'client', 'ca', 'w1')
    m = FakeMaster(stubs, grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=True))
    try:
        tls = {'tls_ca': tmp_path / 'ca.pem', 'tls_cert': tmp_path / 'client.pem', 'tls_key': tmp_path / 'client.key'}
        make_worker(server=f'tls://localhost:{m.port}', **tls)
        s = m.session()
        assert dict(s.context.invocation_metadata())['authorization'] == 'Bearer secret-token'
        assert s.context.auth_context()['x509_subject_alternative_name'] == [b'w1']
        assert m.ended(m.run(s, 'true')).outcome.kind == KIND['SUCCEEDED']
        wrong = make_worker(name='wrong', server=f'tls://127.0.0.1:{m.port}', **tls)
        end = time.monotonic() + DEADLINE
        while 'WARN  link' not in wrong.log():
            assert time.monotonic() < end, 'no word about the failed handshake'
            time.sleep(0.02)
        assert len(m.sessions) == 1
    finally:
        m.close()


def test_aborted_ends_the_worker(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo pid $$; sleep 60')
    pid = pid_in(master.printed(key, b'pid'))
    session.end(grpc.StatusCode.ABORTED, 'a newer session of w1')
    assert worker.wait() == 1
    assert not alive(pid)
    assert 'a newer session of w1' in worker.log()


# ---- the exclusive lease

def test_exclusive_runs_while_the_lease_is_renewed(master, session):
    a = master.ended(master.run(session, 'sleep', '4', exclusive=True, lease=1.5))
    assert a.outcome.kind == KIND['SUCCEEDED']


def test_exclusive_is_ended_before_the_lease_ends(master, make_worker):
    """Neither answers nor anything else: the tree, which ignores SIGTERM, is gone before S + L."""
    master.lease = 5.0
    make_worker(kill_grace='10s')
    s = master.session()
    key = master.run(s, 'sh', '-c', 'trap "echo TERM" TERM; sleep 300 & echo pid $$ $!; while :; do sleep 1; done',
                     exclusive=True)
    other = master.run(s, 'sh', '-c', 'echo pid $$; sleep 300')
    pids = [int(p) for p in re.findall(rb'\d+', master.printed(key, b'pid'))]
    free = pid_in(master.printed(other, b'pid'))
    master.auto_heartbeat_ack = False
    with master.changed:
        n = len(s.heartbeats)
    master.wait(lambda: len(s.heartbeats) > n or s.closed, 'a heartbeat after the last answered one')
    received = s.heartbeats[n - 1][0]  # later than S
    while any(alive(p) for p in pids):
        assert time.monotonic() < received + master.lease, 'the tree outlives the lease'
        time.sleep(0.005)
    assert alive(free)
    master.auto_heartbeat_ack = True
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason) == (KIND['STOPPED'], REASON['LEASE_ENDED'])
    assert b'TERM' in master.attempts[key].log


def test_exclusive_is_ended_when_answers_do_not_renew(master, session):
    key = master.run(session, 'sh', '-c', 'echo ready; sleep 60', exclusive=True)
    master.printed(key, b'ready')
    master.renew_exclusive = False
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason) == (KIND['STOPPED'], REASON['LEASE_ENDED'])
    assert not session.closed


def test_exclusive_is_not_started_without_a_lease(master, make_worker):
    master.renew_exclusive = False
    make_worker()
    s = master.session()
    key = master.run(s, 'true', exclusive=True)
    master.wait(lambda: master.attempts[key].accepted, 'accepted')
    n = len(s.heartbeats)
    master.wait(lambda: len(s.heartbeats) > n + 3, 'heartbeats')
    assert master.attempts[key].started is None
    stopped = master.run(s, 'true', exclusive=True)
    s.stop(stopped)
    assert master.wait(lambda: master.attempts[stopped].refused, 'refusal').cause == master.pb.RefusedAttempt.STOPPED
    master.renew_exclusive = True
    assert master.ended(key).outcome.kind == KIND['SUCCEEDED']


# ---- leaving

def test_sigterm_drains(master, make_worker):
    w = make_worker(drain_timeout='30s')
    s = master.session()
    key = master.run(s, 'sh', '-c', 'echo ready; sleep 1')
    master.printed(key, b'ready')
    w.process.send_signal(signal.SIGTERM)
    master.wait(lambda: s.draining, 'draining')
    assert (s.draining[0].mode, s.draining[0].within.seconds) == (3, 30)
    late = master.run(s, 'true')
    assert master.wait(lambda: master.attempts[late].refused, 'refusal').cause == master.pb.RefusedAttempt.DRAINING
    assert master.ended(key).outcome.kind == KIND['SUCCEEDED']
    assert w.wait() == 0


def test_drain_timeout_gives_back(master, make_worker):
    w = make_worker(drain_timeout='300ms')
    s = master.session()
    key = master.run(s, 'sh', '-c', 'echo ready; sleep 60')
    master.printed(key, b'ready')
    w.process.send_signal(signal.SIGTERM)
    o = master.ended(key).outcome
    assert (o.kind, o.stop_reason) == (KIND['STOPPED'], REASON['DRAINED'])
    assert w.wait() == 0


def test_second_sigterm_is_quick_and_keeps_outcomes(master, make_worker):
    w = make_worker(drain_timeout='60s', kill_grace='60s')
    s = master.session()
    master.auto_outcome_ack = False
    key = master.run(s, 'sh', '-c', 'trap "" TERM; echo pid $$; while :; do sleep 1; done')
    pid = pid_in(master.printed(key, b'pid'))
    w.process.send_signal(signal.SIGTERM)
    master.wait(lambda: s.draining, 'draining')
    w.process.send_signal(signal.SIGTERM)
    assert w.wait(5) == 0
    assert not alive(pid)
    w.start()
    assert master.session(2).held[key].has_outcome
    master.wait(lambda: any(o.stop_reason == REASON['DRAINED'] for o in master.attempts[key].outcomes), 'outcome')
    master.ack_outcome(master.sessions[1], key)


def test_drain_by_the_master_and_resume(master, worker, session):
    key = master.run(session, 'sh', '-c', 'echo ready; sleep 60')
    master.printed(key, b'ready')
    session.send(drain=master.pb.Drain(mode=1))
    master.wait(lambda: session.draining, 'draining')
    assert session.draining[0].mode == 1
    late = master.run(session, 'true')
    assert master.wait(lambda: master.attempts[late].refused, 'refusal').cause == master.pb.RefusedAttempt.DRAINING
    session.send(drain=master.pb.Drain(resume=True))
    master.wait(lambda: len(session.draining) == 2, 'resumed')
    assert session.draining[1].resumed
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']
    session.send(drain=master.pb.Drain(mode=3))
    session.stop(key)
    assert master.ended(key).outcome.kind == KIND['STOPPED']
    session.send(drain=master.pb.Drain(resume=True))
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']


@pytest.mark.parametrize('mode', [1, 3])
def test_a_drained_worker_that_is_idle_stays(master, worker, session, mode):
    """Who has drained it may want it back; a signal ends it."""
    within = master.pb.Drain(mode=mode)
    within.within.FromMilliseconds(0)
    session.send(drain=within)
    master.wait(lambda: session.draining, 'draining')
    beats = len(session.heartbeats)
    master.wait(lambda: len(session.heartbeats) > beats + 2, 'heartbeats')
    assert worker.process.poll() is None
    session.send(drain=master.pb.Drain(resume=True))
    assert master.ended(master.run(session, 'true')).outcome.kind == KIND['SUCCEEDED']
    session.send(drain=within)
    worker.process.terminate()
    assert worker.wait() == 0


def test_a_drain_that_detaches_ends_an_idle_worker(master, worker, session):
    session.send(drain=master.pb.Drain(mode=2))
    assert worker.wait() == 0


# ---- the state directory

def test_state_dir_is_locked_and_bound(make_worker, master, worker, session, build_dir):
    flags = [f'--state-dir={worker.state}', '--server=127.0.0.1:1']
    program = str(build_dir / 'worker' / 'reins-worker')
    taken = subprocess.run([program, *flags, '--id=w1'], capture_output=True, text=True, timeout=DEADLINE)
    assert taken.returncode == 1 and 'in use by another' in taken.stderr
    worker.kill()
    other = subprocess.run([program, *flags, '--id=w2'], capture_output=True, text=True, timeout=DEADLINE)
    assert other.returncode == 1 and '"w1"' in other.stderr
    identity = worker.state / 'identity'
    text = identity.read_text()
    identity.write_text(re.sub('machine-id = .*', 'machine-id = 00000000000000000000000000000000', text))
    if pathlib.Path('/etc/machine-id').exists() and pathlib.Path('/etc/machine-id').read_text().strip():
        moved = subprocess.run([program, *flags, '--id=w1'], capture_output=True, text=True, timeout=DEADLINE)
        assert moved.returncode == 1 and 'another machine' in moved.stderr


def test_torn_spool(master, worker, session):
    master.auto_outcome_ack = False
    key = master.run(session, 'true')
    master.ended(key)
    worker.kill()
    with open(worker.state / 'outcomes', 'ab') as f:
        f.write(b'\x40\0\0\0half a record')
    worker.start()
    assert key in master.session(2).held
    assert 'no whole record' in worker.log()
    master.auto_outcome_ack = True
    master.ack_outcome(master.sessions[1], key)


def test_full_spool_takes_no_tasks(master, make_worker):
    make_worker(spool_limit='64KiB')
    s = master.session()
    master.auto_outcome_ack = False
    key = master.run(s, 'sh', '-c', 'head -c 100000 /dev/zero > "$REINS_RESULT"')
    master.ended(key)
    master.wait(lambda: s.heartbeats[-1][1].paused, 'paused')
    assert 'spool is full' in s.heartbeats[-1][1].paused_reason
    late = master.run(s, 'true')
    assert master.wait(lambda: master.attempts[late].refused, 'refusal').cause == master.pb.RefusedAttempt.PAUSED
    master.auto_outcome_ack = True
    master.ack_outcome(s, key)
    master.wait(lambda: not s.heartbeats[-1][1].paused, 'no longer paused')
    assert master.ended(master.run(s, 'true')).outcome.kind == KIND['SUCCEEDED']
