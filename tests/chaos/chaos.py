"""Real reinsd, workers, Postgres and Redis, while whatever can fail fails; then every task is accounted for against what
the programs themselves wrote. README.md says how to run it and what the table means."""

import argparse
import concurrent.futures
import contextlib
import fnmatch
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import faults  # noqa: E402
import report  # noqa: E402
import schedule  # noqa: E402
from accounting import Accounting  # noqa: E402
from clients import Client  # noqa: E402
from cluster import BUILD, REINSD, wait_for  # noqa: E402
from detection import Detection  # noqa: E402
from place import Place, Watchdog  # noqa: E402

CLIENTS = 4
RSS_MAX = 192 << 10  # KiB; a master with so few workers and tasks has a tenth of it


class Chaos:
    def __init__(self, options, folder, stack):
        self.options, self.begun = options, time.monotonic()
        self.place = Place(folder, options.store, options.masters)
        stack.callback(self.place.close)
        self.where = faults.targets(self.place)
        self.kinds = [k for k in faults.KINDS.values() if k.on in self.where
                      and (not options.faults or any(fnmatch.fnmatch(k.name, p) for p in options.faults.split(",")))]
        if not self.kinds:
            raise SystemExit(f"chaos: no fault is left of {options.faults!r}: see --list")
        self.locks = schedule.locks_for(self.where)
        self.hands = concurrent.futures.ThreadPoolExecutor(16)
        self.over = threading.Event()
        self.clients = [Client(self.place, options.seed * 1000 + i, options.rate / CLIENTS, self.over) for i in range(CLIENTS)]
        self.plan = schedule.plan(self.kinds, self.where, options.seconds, random.Random(options.seed))
        self.early = []  # (promise, text) of problems found while it runs
        self.watchdog = Watchdog(self.place, self.locks, self.hands, self.problem)

    def say(self, text):
        print(f"{time.monotonic() - self.begun:8.2f} {text}", flush=True)

    def problem(self, promise, text):
        self.say(f"PROBLEM {text}")
        self.early.append((promise, text))

    def run(self):
        self.say(f"{len(self.plan)} faults of {len(self.kinds)} kinds are to come")
        self.watchdog.start()
        for client in self.clients:
            client.start()
        if not schedule.Play(self.place, self.plan, self.locks, self.hands, self.say, self.problem).run(180):
            self.problem("ended", "a fault does not come to its end")
        self.over.set()
        wait_for(self.place.serving, "the masters serve", 60)
        self.say("nothing fails any more")
        for client in self.clients:
            client.join(60)
            if client.is_alive():
                self.problem("answers", "a client has no answer after a minute")
            for text in client.problems:
                self.problem("answers", text)
        account = Accounting(self.place, self.clients, self.plan, self.early)
        account.settle(self.options.patience)
        self.say(f"{len(account.tasks)} tasks have ended")
        account.compare()
        account.left()
        self._end(account)
        return account

    def _end(self, account):
        """All are told to end, and do."""
        self.watchdog.over.set()
        self.watchdog.join()
        if b"__asan_init" not in REINSD.read_bytes():
            for name, first, most in self.watchdog.rss.values():
                if most > RSS_MAX:
                    account.problem("memory", f"reinsd {name} had {most} KiB, {first} at first")
        for name, worker in self.place.workers.items():
            try:
                worker.stop()
            except BaseException as e:  # pytest.fail, too
                account.problem("ended", f"{name}: {e}"[:3000])
        try:
            wait_for(lambda: not self.watchdog.supervisors_left(), timeout=20)
        except AssertionError:
            account.problem("processes", f"supervisors: {self.watchdog.supervisors_left()}")
        for name, master in self.place.masters.items():
            status = master.stop()
            if status:
                account.problem("ended", f"reinsd {name} ended with {status}")
            if "Sanitizer" in master.log() or "runtime error:" in master.log():
                account.problem("ended", f"reinsd {name}: a report of a sanitizer in {master.log_path}")


def numbers(text):
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: more than 0, less than 10^6")
    return value


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="tests/chaos/run", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    span = parser.add_mutually_exclusive_group()
    span.add_argument("--seconds", type=numbers, default=60, help="of faults; what comes after takes up to half a minute")
    span.add_argument("--minutes", type=numbers, help="the same")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="the faults, and what clients do")
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres", help="sqlite: without Redis, and one master")
    parser.add_argument("--masters", type=int, choices=(1, 2), help="default: 2 with Postgres")
    parser.add_argument("--rate", type=numbers, default=10, help="tasks per second")
    parser.add_argument("--faults", default="", help="only these kinds, separated by commas; * for any part of a name")
    parser.add_argument("--patience", type=numbers, default=180, help="seconds for all to end when nothing fails any more")
    parser.add_argument("--junit", type=pathlib.Path, help="write a JUnit file: a test case for each promise")
    parser.add_argument("--keep", action="store_true", help="leave logs and journal behind, also if all is well")
    parser.add_argument("--list", action="store_true", help="name the kinds of faults, and end")
    options = parser.parse_args(arguments)
    if options.minutes:
        options.seconds = options.minutes * 60
    if options.store == "sqlite" and options.masters == 2:
        parser.error("--masters 2 needs --store postgres")
    options.masters = options.masters or (1 if options.store == "sqlite" else 2)
    return options


def main(arguments=None):
    options = options_of(arguments)
    if options.list:
        for kind in faults.KINDS.values():
            print(f"{kind.name:30} {kind.text}")
        return 0
    missing = [name for name in ("server/reinsd", "worker/reins-worker", "client/reins") if not (BUILD / name).exists()]
    if missing:
        print(f"tests/chaos/run: no {missing[0]} in {BUILD}: build it (ninja -C {BUILD}), or name another folder in REINS_BUILD", file=sys.stderr)
        return 2
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-chaos-"))
    folder.chmod(0o755)
    replay = f"--seed {options.seed} --seconds {options.seconds:g} --store {options.store} --masters {options.masters} --rate {options.rate:g}"
    replay += f" --faults '{options.faults}'" if options.faults else ""
    print(f"tests/chaos/run {replay}   (logs in {folder})", flush=True)
    with contextlib.ExitStack() as stack:
        chaos = Chaos(options, folder, stack)
        account = chaos.run()
        detection = Detection(chaos.place, chaos.plan, account.runs, account.exclusive(),
                              [at for c in chaos.clients for at in c.accepted_at])
        print()
        for line in report.faults_table(detection, chaos.plan, chaos.kinds, chaos.place.missing):
            print(line)
        print()
        for line in report.totals(account, chaos.plan, chaos.watchdog):
            print(line)
    took = time.monotonic() - chaos.begun
    if options.junit:
        report.junit(options.junit, account.problems, f"chaos-{options.store}-{options.masters}", took)
    bad = sum(len(p) for p in account.problems.values())
    if not bad and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\nchaos: {'every promise held' if not bad else f'{bad} problems; logs in {folder}'} "
          f"({took:.0f} s; tests/chaos/run {replay})", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        code = main()
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that hang in something are not waited for.
    os._exit(code)
