"""A program as people hand it to Reins: it reads its parameters, prints as it goes, and ends with an exit code."""
import json
import os
import random
import sys
import time

params = json.loads(os.environ.get('REINS_PARAMS') or '{}')
points = int(params.get('points', 300000))
rounds = int(params.get('rounds', 3))

print(f'task {os.environ.get("REINS_TASK_ID", "(none)")}, attempt {os.environ.get("REINS_ATTEMPT", "?")}, '
      f'Python {sys.version.split()[0]}', flush=True)
random.seed(1)
inside = total = 0
for step in range(1, rounds + 1):
    inside += sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(points))
    total += points
    print(f'round {step}: pi is about {4 * inside / total:.5f}', flush=True)
    time.sleep(0.2)
print('a warning on stderr, as an example', file=sys.stderr)
sys.exit(0 if abs(4 * inside / total - 3.14159) < 0.01 else 1)
