"""The programs of client/examples, as their README says to run them, and what each must do."""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import stubs
from cluster import PATIENCE, Cluster
from programs import runs
from real_worker import workers

ROOT = stubs.ROOT
EXAMPLES = ROOT / "client" / "examples"


@contextlib.contextmanager
def clusters_with_a_worker(servers, build_dir, folder):
    """place("clear"), place("tls"): a cluster with a worker, made when first asked for; ended with the block."""
    made = {}
    with workers(build_dir, folder) as start:
        def place(kind):
            if kind not in made:
                made[kind] = Cluster(*servers, tls=kind == "tls").start()
                start(made[kind], f"of-{kind}")
            return made[kind]
        yield place
    for cluster in made.values():
        cluster.close()


def environment(cluster, certificate="client-admin", **more):
    """Ours without what is meant for other programs, and where the cluster is."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REINS_", "GRPC_"))}
    env["REINS_SERVER"] = cluster.url
    if cluster.certs:
        flags = cluster.certs.flags(certificate)
        env.update({f"REINS_{k.upper().replace('-', '_')}": str(v) for k, v in flags.items()})
    return {**env, **more}


def build(language, out):
    done = subprocess.run([EXAMPLES / language / "build.sh", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return pathlib.Path(out)


def npm_ci(tmp_path_factory, files_of):
    """A folder with those files and the packages of their lock file, made once for all processes of a run; skips where
    there are none to be had."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("no npm here")
    run = tmp_path_factory.getbasetemp()
    run = run.parent if os.environ.get("PYTEST_XDIST_WORKER") else run
    folder = run / f"npm-{files_of.parent.name}-{files_of.name}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder
        folder.mkdir(exist_ok=True)
        for f in files_of.iterdir():
            if f.is_file():
                shutil.copy(f, folder)
        done = subprocess.run(
            ["npm", "ci", "--fetch-retries", "0", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder,
            capture_output=True, text=True, timeout=120,
        )
        if done.returncode:
            if re.search(r"E?NOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|network|registry", done.stderr):
                pytest.skip(f"the npm registry can't be reached: {done.stderr[-300:]}")
            pytest.fail(done.stderr[-2000:])
        (folder / "complete").touch()
    return folder


class Example:
    """One client program; its errors begin with the code as `code` writes it."""

    def __init__(self, command, cwd=None, code=str, **env):
        self.command, self.cwd, self.code, self.env = [str(c) for c in command], cwd, code, env

    def start(self, cluster, *arguments, **env):
        return subprocess.Popen([*self.command, *arguments], cwd=self.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=environment(cluster, **self.env, **env))

    def run(self, cluster, *arguments, want=0, **env):
        """What it prints."""
        process = self.start(cluster, *arguments, **env)
        out, err = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == want, (process.returncode, out, err.decode())
        return err if want and not out else out

    def word(self, cluster, *arguments, **env):
        return self.run(cluster, *arguments, **env).decode().strip()


def goes_through(example, cluster, queue):
    """Submit, wait, the log, to a good end. The id."""
    made = example.word(cluster, "submit", "sh", "-c", r"printf 'a\000\377b\n'", REINS_QUEUE=queue)
    assert example.word(cluster, "wait", made) == "COMPLETED"
    assert example.run(cluster, "logs", made) == b"a\0\xffb\n"
    return made


def watches(example, cluster, queue, tmp_path):
    """A watch from before the submit, over a restart of the server, to the end; one of a task that fails."""
    go = tmp_path / "end"
    watching = example.start(cluster, "watch", "sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done", REINS_QUEUE=queue)
    lines = []
    while b"STARTED RUNNING" not in lines:
        lines.append(watching.stdout.readline().strip())
        assert lines[-1], (lines, watching.stderr.read())
    assert lines[0] in (b"CREATED RUNNING", b"CREATED PENDING") and lines.count(b"STARTED RUNNING") == 1, lines
    cluster.restart()
    cluster.connect_anew()
    go.touch()
    out, err = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, out) == (0, b"CHANGED COMPLETED\n"), (out, err)
    out = example.run(cluster, "watch", "false", want=1, REINS_QUEUE=queue)
    assert out.endswith(b"CHANGED FAILED\n"), out


def does_the_rest(example, cluster, queue, tmp_path):
    """A failure, a log that is followed, cancel, list, errors."""
    failed = example.word(cluster, "submit", "sh", "-c", "exit 3", REINS_QUEUE=queue)
    assert example.word(cluster, "wait", failed, want=1) == "FAILED"

    go = tmp_path / "go"
    runs_on = example.word(cluster, "submit", "sh", "-c", f"echo here; until [ -e {go} ]; do sleep 0.02; done; echo there", REINS_QUEUE=queue)
    following = example.start(cluster, "logs", runs_on)
    assert following.stdout.readline() == b"here\n"  # while it runs
    go.touch()
    rest = following.communicate(timeout=PATIENCE)
    assert rest == (b"there\n", b"") and following.returncode == 0, (rest, following.returncode)

    watches(example, cluster, queue, tmp_path)

    sleeps = example.word(cluster, "submit", "sleep", "300", REINS_QUEUE=queue)
    runs(cluster, sleeps)
    assert example.word(cluster, "cancel", sleeps) == "RUNNING"
    assert example.word(cluster, "wait", sleeps, want=1) == "CANCELLED"

    listed = [line.split() for line in example.word(cluster, "list", queue).splitlines()]
    assert [line[:2] for line in listed if line[0] in (sleeps, runs_on, failed)] == [
        [sleeps, "CANCELLED"], [runs_on, "COMPLETED"], [failed, "FAILED"]]

    nobody = example.run(cluster, "wait", "01890a5d-ac96-774b-bcce-b302099a8057", want=1).decode()
    assert nobody.startswith(example.code("NOT_FOUND") + ": "), nobody
    refused = example.run(cluster, "submit", "x", want=1, REINS_QUEUE="no blanks").decode()
    assert refused.startswith(example.code("INVALID_ARGUMENT") + ": spec.queue"), refused
    assert b"submit" in example.run(cluster, "nonsense", want=64)
