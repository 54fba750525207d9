"""Python messages and stubs of reins.v1, made from proto/ at import.

Only reins/v1 and google/rpc are generated: a generated grpc/ folder would shadow the grpc package itself. Health is
called by its path with raw bytes (see cluster.py)."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _generate():
    out = tempfile.mkdtemp(prefix="reins-stubs-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    files = sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto/reins/v1").glob("*.proto"))
    files += ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    plugin = shutil.which("grpc_python_plugin")
    subprocess.run(
        ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}", f"--plugin=protoc-gen-grpc_python={plugin}",
         f"--grpc_python_out={out}", *files],
        check=True, cwd=ROOT / "proto",
    )
    # google is a namespace that python3-protobuf owns: ours is added to its path.
    import google

    google.__path__.append(os.path.join(out, "google"))
    sys.path.insert(0, out)


_generate()

from google.rpc import error_details_pb2, status_pb2  # noqa: E402,F401
from reins.v1 import admin_service_pb2 as admin  # noqa: E402,F401
from reins.v1 import admin_service_pb2_grpc as admin_grpc  # noqa: E402,F401
from reins.v1 import task_pb2 as task  # noqa: E402,F401
from reins.v1 import task_service_pb2 as tasks  # noqa: E402,F401
from reins.v1 import task_service_pb2_grpc as tasks_grpc  # noqa: E402,F401
from reins.v1 import worker_service_pb2 as worker  # noqa: E402,F401
from reins.v1 import worker_service_pb2_grpc as worker_grpc  # noqa: E402,F401

State = task.Task
End = task.Attempt
