#!/usr/bin/python3
"""Some handlers, and a worker that runs them: handlers.py [WORKER-ID]. Where the master is, see connect.py."""
import json
import os
import sys

from worker import Worker

worker = Worker(sys.argv[1] if len(sys.argv) > 1 else 'python-example', slots=4,
                drain_timeout=float(os.environ.get('REINS_DRAIN_TIMEOUT', '60')))


@worker.handler('add')
def add(task):
    """The payload is JSON, an array of numbers; the result is their sum."""
    numbers = json.loads(task.payload)
    task.log(f'adding {len(numbers)} numbers')
    return json.dumps(sum(numbers))


@worker.handler('count')
def count(task):
    """Counts up to params["to"], ten a second, and says so."""
    for i in range(1, int(task.params['to']) + 1):
        task.log(f'{i}')
        if task.stopped.wait(0.1):
            task.log('asked to stop')
            return None
    return b'done'


@worker.handler('stubborn')
def stubborn(task):
    """Never looks at task.stopped. As an exclusive task it ends with its process when its lease does."""
    while not os.path.exists(task.params['until']):
        pass


if __name__ == '__main__':
    worker.run()
