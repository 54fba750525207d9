#!/usr/bin/python3
"""What idle workers over TLS cost the master.

    tests/bench/idle_tls.py [--workers N] [--seconds N] [--build DIR] [--clear]

reinsd with sqlite and leases in memory, and N sessions over mTLS, each on a connection of its own with a certificate of its own
(load sessions --tls-dir), that only beat, at the interval that reinsd gives a fleet of that size. It says how much memory
reinsd has grown by for each (its RSS: TLS, HTTP/2, the session), and how much of a core it takes. --clear: without TLS.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--workers", type=int, default=5000)
parser.add_argument("--seconds", type=int, default=20)
parser.add_argument("--build", default=os.environ.get("REINS_BUILD", str(ROOT / "build")))
parser.add_argument("--clear", action="store_true")
parser.add_argument("--port", type=int, default=17399)


def main():
    a = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-idle-"))
    reinsd = None
    try:
        listen, tls, client = f"127.0.0.1:{a.port}", [], []
        if not a.clear:
            certs = folder / "tls"
            subprocess.run([ROOT / "deploy" / "tls", "--dir", certs, "--server", "localhost"], check=True, stdout=subprocess.DEVNULL)
            tls = ["--tls-cert", certs / "server.pem", "--tls-key", certs / "server-key.pem", "--client-ca", certs / "ca.pem"]
            client = ["--tls-dir", certs]
        with open(folder / "log", "wb") as log:
            reinsd = subprocess.Popen([f"{a.build}/server/reinsd", "--listen", listen if a.clear else f"tls://{listen}", "--store",
                                       f"sqlite:{folder}/reins.db", *tls], stdout=log, stderr=log)
        until = time.monotonic() + 30
        while b"ready" not in (folder / "log").read_bytes():
            assert time.monotonic() < until and reinsd.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        load = subprocess.run([f"{a.build}/tests/bench/load", "sessions", "--server", listen, "--workers", str(a.workers), "--slots", "1",
                               "--seconds", f"{a.seconds}s", "--pid", f"reinsd={reinsd.pid}", "-o", "json", *client],
                              stdout=subprocess.PIPE, text=True)
        if load.returncode:
            print(load.stdout, (folder / "log").read_text()[-2000:], file=sys.stderr)
            return 1
        result = json.loads(load.stdout)
        number = lambda name: result[name]["value"] if isinstance(result[name], dict) else result[name]  # noqa: E731
        print(f"{a.workers} idle workers{' in clear text' if a.clear else ' over mTLS'}: {number('reinsd_kib_per_session'):.1f} KiB each, "
              f"{number('reinsd_cpu_percent'):.1f} % of a core with {number('heartbeats_per_s'):.0f} heartbeats a second")
        return 0
    finally:
        if reinsd:
            reinsd.terminate()
            reinsd.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
