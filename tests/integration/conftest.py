"""What the integration suites share: the programs under test and Python stubs of the contract.

REINS_BUILD names the build folder (default: build); the programs are taken from there.
"""
import importlib
import os
import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTO = ROOT / 'proto'
MODULES = {
    'google/rpc': ['error_details', 'status'],
    'grpc/health/v1': ['health'],
    'grpc/reflection/v1': ['reflection'],
    'reins/v1': ['task', 'task_service', 'worker_service', 'admin_service'],
}


@pytest.fixture(scope='session')
def build_dir():
    build = pathlib.Path(os.environ.get('REINS_BUILD', ROOT / 'build')).resolve()
    if not (build / 'build.ninja').exists():
        pytest.fail(f'{build} is no build folder; run `meson setup build && ninja -C build`, or set REINS_BUILD')
    return build


@pytest.fixture(scope='session')
def stubs(tmp_path_factory):
    """The generated modules by their names: stubs.task_pb2, stubs.task_service_pb2_grpc, stubs.health_pb2 …"""
    out = tmp_path_factory.mktemp('stubs')
    files = [f'{folder}/{name}.proto' for folder, names in MODULES.items() for name in names]
    subprocess.run(
        ['protoc', f'-I{PROTO}', '-I/usr/include', f'--python_out={out}', f'--grpc_python_out={out}',
         '--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin', *files],
        check=True, timeout=60)
    sys.path.insert(0, str(out))
    # `google` and `grpc` are installed packages; ours lie beside what is in them.
    for name in ('google', 'grpc'):
        package = importlib.import_module(name)
        package.__path__ = [*package.__path__, str(out / name)]
    found = types.SimpleNamespace()
    for folder, names in MODULES.items():
        for name in names:
            for suffix in ('_pb2', '_pb2_grpc'):
                module = importlib.import_module(f'{folder}/{name}{suffix}'.replace('/', '.'))
                setattr(found, name + suffix, module)
    return found
