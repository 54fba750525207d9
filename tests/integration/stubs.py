"""Python messages and stubs of the contract, made from proto/ at the first import."""

import atexit
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

# Nothing forks here after a channel exists but Popen, which needs none of it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
MODULES = {
    "google/rpc": ["error_details", "status"],
    "grpc/health/v1": ["health"],
    "grpc/reflection/v1": ["reflection"],
    "reins/v1": ["task", "task_service", "worker_service", "admin_service"],
}


def _generate():
    out = tempfile.mkdtemp(prefix="reins-stubs-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    files = [f"{folder}/{name}.proto" for folder, names in MODULES.items() for name in names]
    plugin = shutil.which("grpc_python_plugin") or "grpc_python_plugin"
    subprocess.run(
        ["protoc", f"-I{PROTO}", "-I/usr/include", f"--python_out={out}", f"--grpc_python_out={out}",
         f"--plugin=protoc-gen-grpc_python={plugin}", *files],
        check=True, timeout=60,
    )
    sys.path.insert(0, out)
    # `google` and `grpc` are installed packages; ours lie beside what is in them.
    for name in ("google", "grpc"):
        package = importlib.import_module(name)
        package.__path__ = [*package.__path__, os.path.join(out, name)]
    found = types.SimpleNamespace()
    for folder, names in MODULES.items():
        for name in names:
            for suffix in ("_pb2", "_pb2_grpc"):
                module = importlib.import_module(f"{folder}/{name}{suffix}".replace("/", "."))
                setattr(found, name + suffix, module)
    return found


every = _generate()

error_details_pb2, status_pb2, health_pb2 = every.error_details_pb2, every.status_pb2, every.health_pb2
admin, admin_grpc = every.admin_service_pb2, every.admin_service_pb2_grpc
task = every.task_pb2
tasks, tasks_grpc = every.task_service_pb2, every.task_service_pb2_grpc
worker, worker_grpc = every.worker_service_pb2, every.worker_service_pb2_grpc

State = task.Task
End = task.Attempt
