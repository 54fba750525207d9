"""Handlers for test_python_worker.py, on the Worker of client/examples/python: python_handlers.py ID DRAIN_TIMEOUT KILL_GRACE."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'client' / 'examples' / 'python'))

from worker import Worker  # noqa: E402

worker = Worker(sys.argv[1], slots=3, drain_timeout=float(sys.argv[2]), kill_grace=float(sys.argv[3]))


@worker.handler('echo')
def echo(task):
    return task.payload


@worker.handler('fails')
def fails(task):
    task.log('about to')
    raise ValueError('as it \udcff should')


@worker.handler('until')
def until(task):
    """Until the file is there, or asked to stop."""
    go = task.params['go']
    task.log(f'pid {os.getpid()}')
    while not os.path.exists(go):
        task.log('tick')
        if task.stopped.wait(0.02):
            task.log('stopped')
            open(go + '.stopped', 'w').close()
            return b'stopped'
    open(go + '.went', 'w').close()
    return b'went'


@worker.handler('deaf')
def deaf(task):
    """Until the file is there, whatever it is told; holds the interpreter for most of the time."""
    task.log(f'pid {os.getpid()}')
    while not os.path.exists(task.params['go']):
        sum(range(100000))


@worker.handler('prints')
def prints(task):
    if 'go' in task.params:
        while not os.path.exists(task.params['go']):
            task.stopped.wait(0.01)
    line = b'x' * 3999 + b'\n'
    for _ in range(int(task.params['bytes']) // len(line)):
        task.log(line)
    if 'go' in task.params:
        open(task.params['go'] + '.printed', 'w').close()
    return b'y' * int(task.params.get('result', 0))


worker.run()
