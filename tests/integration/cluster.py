"""A private Postgres, a private Redis and a reinsd on them.

One Postgres and one Redis serve the whole session; each Cluster has a database of its own in both. REINS_BUILD names the build folder (default: build)."""

import collections
import os
import pathlib
import random
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import stubs
import grpc
from certs import Certs
import psycopg2
import pytest
import redis

ROOT = stubs.ROOT
BUILD = pathlib.Path(os.environ.get("REINS_BUILD", ROOT / "build")).resolve()
REINSD = BUILD / "server" / "reinsd"
PATIENCE = float(os.environ.get("REINS_PATIENCE", "30"))  # longest wait for anything that must happen

# Long enough that a loaded machine loses nobody, and no word to Redis, by accident.
CALM = {
    "heartbeat-interval": "500ms", "lease-ttl": "10s", "reconcile-interval": "500ms", "recovery-interval": "1s",
    "redis-timeout": "1s",
}
# Longer than any test's patience: what works with these waits for no lease.
LONG = {**CALM, "lease-ttl": "300s", "accept-timeout": "60s"}
# For tests in which leases end.
QUICK = {
    "heartbeat-interval": "250ms", "lease-ttl": "1500ms", "accept-timeout": "1s", "disconnect-grace": "200ms",
    "reconcile-interval": "300ms", "recovery-interval": "500ms", "redis-timeout": "1s",
}


def wait_for(condition, what="the condition", timeout=PATIENCE):
    """What condition() returned once it was true."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def dying_with_us(how="KILL"):
    """What goes before a command that must not outlive the tests, however these end."""
    return ["setpriv", "--pdeathsig", how, "--"]


lately = collections.deque(maxlen=200)  # what holds the ports chosen last


def free_port(holds=lately):
    """Below the range that outgoing connections take theirs from: a server that is killed finds its port free again. No other
    process of tests gets it while `holds` keeps what is added to it: before the server listens, and while it is down."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        hold = socket.socket(socket.AF_UNIX)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                hold.bind(f"\0reins-tests-port-{port}")
                s.bind(("127.0.0.1", port))
                holds.append(hold)
                return port
            except OSError:
                hold.close()


class Postgres:
    USER = "reins"

    def __init__(self, folder):
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            raise RuntimeError("no Postgres below /usr/lib/postgresql")
        self.bin = found[-1].parent
        self.folder = folder / "pg"
        self.data = self.folder / "data"
        self.holds = []
        self.port = free_port(self.holds)
        self.process = None
        self.databases = 0
        self.folder.mkdir()
        self.prefix = []
        if os.geteuid() == 0:  # Postgres refuses to run as root
            owner = "postgres" if self._user("postgres") else "nobody"
            shutil.chown(self.folder, owner)
            self.prefix = ["setpriv", f"--reuid={owner}", f"--regid={pwd.getpwnam(owner).pw_gid}", "--clear-groups", "--"]
        self._run("initdb", "-D", self.data, "-U", self.USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(
                f"listen_addresses='127.0.0.1'\nport={self.port}\nunix_socket_directories='{self.folder}'\n"
                "fsync=off\nmax_connections=60\nshared_buffers=64MB\nmax_wal_size=512MB\n"
            )
        self.start()

    @staticmethod
    def _user(name):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            return None

    def _run(self, program, *arguments):
        done = subprocess.run(
            [*self.prefix, self.bin / program, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def start(self):
        if self.process and self.process.poll() is None:
            return
        with open(self.folder / "log", "ab") as log:
            command = [*self.prefix, *dying_with_us("INT"), self.bin / "postgres", "-D", self.data]
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log
            )
        wait_for(self._answers, lambda: (self.folder / "log").read_text()[-2000:])

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            self.connect("postgres").close()
            return True
        except psycopg2.OperationalError:
            return False

    def stop(self, how="immediate"):
        """Gone when this returns; `immediate` drops connections without a word."""
        if self.process is None:
            return
        self._run("pg_ctl", "stop", "-D", self.data, "-m", how, "-w")
        self.process.wait(PATIENCE)
        self.process = None

    def connect(self, database):
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user=self.USER, dbname=database)
        connection.autocommit = True
        return connection

    def create_database(self):
        self.databases += 1
        name = f"t{self.databases}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name):
        self.execute("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, database, statement, arguments=()):
        """The rows, or None for a statement that has none. Each statement is a transaction of its own."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return cursor.fetchall() if cursor.description else None
        finally:
            connection.close()

    def url(self, database):
        return f"postgres://{self.USER}@127.0.0.1:{self.port}/{database}"


class Redis:
    def __init__(self, folder):
        self.folder = folder / "redis"
        self.folder.mkdir()
        self.holds = []
        self.port = free_port(self.holds)
        self.process = None
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.start()

    def start(self):
        if self.process and self.process.poll() is None:
            return
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*dying_with_us(), "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                 "--dir", str(self.folder)], stdout=log, stderr=log,
            )
        wait_for(self._answers, "Redis answers")

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            return self.client.ping()
        except redis.exceptions.ConnectionError:
            return False

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def url(self, db):
        return f"redis://127.0.0.1:{self.port}/{db}"

    def db(self, db):
        return redis.Redis(port=self.port, db=db, decode_responses=True)


class Cluster:
    """A database, and a reinsd that is started with flags (without the two dashes) over those of CALM; with tls,
    it and its clients have certificates."""

    def __init__(self, postgres, redis_server, folder, flags=None, env=None, tls=False):
        self.postgres, self.redis_server, self.folder = postgres, redis_server, folder
        self.database = postgres.create_database()
        redis_server.start()
        redis_db = postgres.databases % 16
        self.keys = redis_server.db(redis_db)
        self.keys.flushdb()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.certs = Certs(folder / f"tls-{self.database}") if tls else None
        listen = {"listen": f"tls://{self.address}", **self.certs.server_flags()} if tls else {"listen": self.address}
        self.flags = {
            **listen, "store": postgres.url(self.database), "lease": redis_server.url(redis_db),
            "master-id": "m1", "log-level": "debug", **CALM, **(flags or {}),
        }
        self.env = dict(env or {})
        self.log_path = folder / f"reinsd-{self.database}.log"
        self.process = None
        self.prefix = []  # goes before the command: what reinsd is held to
        self._channels = []

    def another(self, name):
        """One more master on the same database and Redis, not started; to be closed before this one."""
        made = OtherMaster.__new__(OtherMaster)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if not k.startswith("_")})
        made.port = free_port()
        made.address = f"{self.address.rsplit(':', 1)[0]}:{made.port}"
        made.flags = {**self.flags, "listen": self.flags["listen"].replace(self.address, made.address), "master-id": name}
        made.log_path = self.folder / f"reinsd-{self.database}-{name}.log"
        made.process, made._channels = None, []
        return made

    # ---- the process ----

    def start(self, env=None, wait=True):
        assert self.process is None or self.process.poll() is not None
        command = [*dying_with_us(), *self.prefix, str(REINSD), *(f"--{key}={value}" for key, value in self.flags.items())]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **self.env, **(env or {})}
            )
        if wait:
            wait_for(self._serving, lambda: f"reinsd serves\n{self.log()[-4000:]}")
        return self

    def _serving(self):
        assert self.process.poll() is None, f"reinsd ended with {self.process.returncode}\n{self.log()[-4000:]}"
        return self.health() == "SERVING"

    def health(self, service=""):
        """SERVING, NOT_SERVING, or None while nobody answers."""
        request = stubs.health_pb2.HealthCheckRequest(service=service)
        with self.open_channel([("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                reply = stubs.every.health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
            except grpc.RpcError as e:
                if e.code() == grpc.StatusCode.UNAVAILABLE:
                    return None
                raise
        return stubs.health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill9(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def wait_killed(self, timeout=PATIENCE):
        """Until a crash point has ended it."""
        status = self.process.wait(timeout)
        assert status == -signal.SIGKILL, f"ended with {status}\n{self.log()[-4000:]}"

    def stop(self):
        """SIGTERM; the exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)

    def restart(self, **kwargs):
        self.kill9()
        return self.start(**kwargs)

    def close(self):
        for channel in self._channels:
            channel.close()
        try:
            running = self.process is not None and self.process.poll() is None
            status = self.stop()
            if running:
                assert status == 0, f"reinsd ended with {status}\n{self.log()[-6000:]}"
            reports = [line for line in self.log().splitlines() if "runtime error:" in line or "Sanitizer" in line]
            assert not reports, reports
        finally:
            if self.process and self.process.poll() is None:
                self.kill9()
            self.postgres.start()
            self.postgres.drop_database(self.database)

    # ---- its clients ----

    @property
    def url(self):
        """For --server of reins and reins-worker."""
        return f"https://{self.address}" if self.certs else self.address

    def worker_flags(self, name):
        """What a reins-worker of that id needs to be let in, by the names of Worker's arguments."""
        flags = self.certs.worker(name) if self.certs else {}
        return {key.replace("-", "_"): value for key, value in flags.items()}

    def open_channel(self, options, credentials=None):
        if not self.certs:
            return grpc.insecure_channel(self.address, options=options)
        return grpc.secure_channel(self.address, credentials or self.certs.credentials(), options=options)

    def channel(self, *options):
        # A broken connection is tried anew at once: tests restart the master and wait for it. The "min" is how long one
        # try may take, TLS included.
        channel = self.open_channel(
            [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50),
                     ("grpc.min_reconnect_backoff_ms", 10000), ("grpc.max_reconnect_backoff_ms", 200),
                     ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *options],
        )
        self._channels.append(channel)
        return channel

    @property
    def tasks(self):
        """A stub of TaskService; one connection for all that ask here."""
        if not hasattr(self, "_tasks"):
            self._tasks = stubs.tasks_grpc.TaskServiceStub(self.channel())
        return self._tasks

    def connect_anew(self):
        """For who asks again after a failure: grpcio 1.51 may keep a broken channel broken while the server is long back."""
        for name in ("_tasks", "_admin"):
            self.__dict__.pop(name, None)

    @property
    def admin(self):
        if not hasattr(self, "_admin"):
            self._admin = stubs.admin_grpc.AdminServiceStub(self.channel())
        return self._admin

    def submit(self, key="", **spec):
        """A task of /bin/true unless spec says otherwise; the reply's task."""
        return self.submit_reply(key, **spec).task

    def submit_reply(self, key="", **spec):
        return self.tasks.SubmitTask(
            stubs.tasks.SubmitTaskRequest(spec=make_spec(**spec), idempotency_key=key), timeout=PATIENCE
        )

    def get(self, task_id, wait=0.0):
        request = stubs.tasks.GetTaskRequest(task_id=task_id)
        if wait:
            request.wait.FromNanoseconds(int(wait * 1e9))
        return self.tasks.GetTask(request, timeout=wait + PATIENCE)

    def finished(self, task_id, timeout=PATIENCE):
        """The task once it is terminal, whatever happens to the master meanwhile."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                t = self.get(task_id, wait=max(0.001, deadline - time.monotonic()))
                if t.state in (stubs.State.COMPLETED, stubs.State.FAILED, stubs.State.CANCELLED):
                    return t
            except grpc.RpcError as e:
                if e.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.02)
            assert time.monotonic() < deadline, f"task {task_id} is not terminal\n{self.log()[-4000:]}"

    def in_state(self, task_id, state, timeout=PATIENCE):
        seen = []

        def look():
            seen[:] = [self.get(task_id)]
            return seen[0] if seen[0].state == state else None

        return wait_for(look, lambda: f"state {state} of\n{seen}", timeout)

    def cancel(self, task_id, reason=""):
        return self.tasks.CancelTask(
            stubs.tasks.CancelTaskRequest(task_id=task_id, reason=reason), timeout=PATIENCE
        )

    def read_logs(self, task_id, timeout=PATIENCE, **fields):
        return list(self.tasks.ReadLogs(stubs.tasks.ReadLogsRequest(task_id=task_id, **fields), timeout=timeout))

    def list_all(self, page_size=0, view=0, **filter_fields):
        """All tasks, page by page."""
        found, token = [], ""
        while True:
            page = self.tasks.ListTasks(
                stubs.tasks.ListTasksRequest(
                    filter=stubs.tasks.TaskFilter(**filter_fields), page_size=page_size, page_token=token, view=view
                ),
                timeout=PATIENCE,
            )
            found += page.tasks
            token = page.next_page_token
            if not token:
                return found

    # ---- looking behind it ----

    def sql(self, query, *arguments):
        return self.postgres.execute(self.database, query, arguments)


class OtherMaster(Cluster):
    """See Cluster.another."""

    def close(self):
        for channel in self._channels:
            channel.close()
        status = self.stop()
        assert status == 0, f"reinsd ended with {status}\n{self.log()[-6000:]}"


def make_spec(**fields):
    if not fields.get("command") and not fields.get("handler"):
        fields["command"] = ["/bin/true"]
    return stubs.task.TaskSpec(**fields)


def owner_key(task_id, prefix="reins:"):
    """Of the Redis key that names the owner of a running task; the braces are literal."""
    return "%stask:{%s}:workerId" % (prefix, task_id)


needs_crash_points = pytest.mark.skipif(
    not (REINSD.exists() and b"REINS_CRASH_POINT" in REINSD.read_bytes()),
    reason="reinsd was built without -Dcrash_points=true",
)


def submit_surely(cluster, request):
    """Repeats a submit with its key until the store has it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return cluster.tasks.SubmitTask(request, timeout=PATIENCE).task.id
        except grpc.RpcError as e:
            assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), e
            assert time.monotonic() < deadline
            time.sleep(0.02)
            cluster.connect_anew()


# ---- fixtures; test modules get them through conftest.py ----


@pytest.fixture(scope="session")
def servers():
    """Postgres and Redis."""
    # Short: a Unix socket's path has 107 bytes.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reins-it-"))
    folder.chmod(0o755)
    started = []
    try:
        started.append(Postgres(folder))
        started.append(Redis(folder))
        yield (*started, folder)
    finally:
        for server in started:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def need_reinsd():
    if not REINSD.exists():
        pytest.fail(f"{REINSD} is not there: build first, or name the build folder in REINS_BUILD")


@pytest.fixture
def make_cluster(servers, need_reinsd, request):
    """make_cluster(flags, env, tls) -> a Cluster that is not started; ended with the test. One at a time."""
    made = []

    def make(flags=None, env=None, tls=False):
        made.append(Cluster(*servers, flags, env, tls))
        return made[-1]

    yield make
    for cluster in made:
        if getattr(request.node, "has_failed", False):
            print(f"---- {cluster.log_path.name}\n{cluster.log()[-6000:]}")  # pytest shows it with the failure
        cluster.close()


@pytest.fixture
def cluster(make_cluster):
    return make_cluster().start()


@pytest.fixture
def quick(make_cluster):
    """A cluster whose leases end soon."""
    return make_cluster(QUICK).start()


@pytest.fixture(scope="module")
def shared(servers, need_reinsd):
    """One cluster for all tests of a module that leave nothing pending behind."""
    made = Cluster(*servers).start()
    yield made
    made.close()
