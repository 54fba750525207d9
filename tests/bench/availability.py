#!/usr/bin/python3
"""How long the analysed system's cases last, with the real programs: the table of docs/availability.md.

    tests/bench/availability.py [--runs N] [--settings seed|reins|both] [--cases WORD] [--build DIR]

Each case (tests/integration/seed_cases.py) is played N times with the analysed system's numbers (heartbeats every 10 s, hb
30 s, the other keys 120 s, recovery 5 s, reconcile 2 s) and N times with the defaults of reinsd. Postgres, Redis, master and
workers are on this machine, over loopback; reinsd has to be built with -Dcrash_points=true. Times are from the fault until it
is put right, as each case says: median (shortest to longest). Nothing may be lost, doubled or invented: else it stops.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--settings", choices=["seed", "reins", "both"], default="both")
    parser.add_argument("--cases", default="", help="only those whose name has this in it")
    parser.add_argument("--build", default=os.environ.get("REINS_BUILD", str(ROOT / "build")))
    return parser.parse_args()


ARGS = arguments()
os.environ["REINS_BUILD"] = ARGS.build

import seed_cases  # noqa: E402
from cluster import CALM, Cluster, Postgres, Redis  # noqa: E402
from real_worker import workers  # noqa: E402

SETTINGS = {"seed": seed_cases.flags(seed_cases.SEED), "reins": {}}


def play(servers, folder, settings, case):
    """One run in a folder, a database and with workers of its own: the seconds that it took."""
    folder.mkdir()
    cluster = Cluster(*servers, folder)
    for name in CALM:  # what the tests prefer to the defaults
        del cluster.flags[name]
    cluster.flags.update(SETTINGS[settings])
    try:
        with workers(pathlib.Path(ARGS.build).resolve(), folder) as start_worker:
            return case(cluster, start_worker, folder)
    finally:
        cluster.close()


def show(took):
    return f"{statistics.median(took):.2f} s ({min(took):.2f}–{max(took):.2f})"


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-availability-"))
    folder.chmod(0o755)
    servers = []
    which = list(SETTINGS) if ARGS.settings == "both" else [ARGS.settings]
    print(f"{ARGS.runs} runs each; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n")
    print("| case | " + " | ".join({"seed": "its settings", "reins": "our defaults"}[w] for w in which) + " |")
    print("|---|" + "---|" * len(which), flush=True)
    try:
        servers = [Postgres(folder), Redis(folder)]
        for name, case in seed_cases.CASES.items():
            if ARGS.cases not in name:
                continue
            cells = [show([play(servers, folder / f"{w}-{case.__name__}-{n}", w, case) for n in range(ARGS.runs)]) for w in which]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
