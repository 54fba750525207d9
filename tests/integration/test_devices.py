"""GPUs and counted resources of a worker, with a fake nvidia-smi and a made-up /dev."""
import os
import subprocess

import pytest
from alone import cause, kind, make_worker, master  # noqa: F401
from real_worker import DEADLINE  # noqa: F401

SHOW = ('sh', '-c', 'echo "$CUDA_VISIBLE_DEVICES;$NVIDIA_VISIBLE_DEVICES;${CUDA_DEVICE_ORDER-none}"')
FOUR = "printf '0, GPU-aa11\\n1, GPU-aa22\\n2, GPU-bb33\\n3, GPU-cc44\\n'"


@pytest.fixture
def smi(tmp_path):
    """smi(script) -> environment of a worker that finds this nvidia-smi."""
    def make(script, **env):
        folder = tmp_path / 'bin'
        folder.mkdir(exist_ok=True)
        (folder / 'nvidia-smi').write_text(f'#!/bin/sh\n{script}\n')
        (folder / 'nvidia-smi').chmod(0o755)
        return {'PATH': f'{folder}:{os.environ["PATH"]}', 'CUDA_VISIBLE_DEVICES': '0,1,2,3', **env}
    return make


@pytest.fixture
def gpus(master):
    """gpus(n) -> resources of a task."""
    return lambda n=0, **custom: master.task_pb.Resources(gpus=n, custom=custom)


def wait_until_file(path):
    return ('sh', '-c', f'echo "see $CUDA_VISIBLE_DEVICES"; until [ -e {path} ]; do sleep 0.02; done')


def test_each_gpu_to_one_task(master, make_worker, smi, gpus, tmp_path):
    """S43, and what follows: a third has to wait, and gets what was given back."""
    make_worker(env=smi(FOUR, CUDA_VISIBLE_DEVICES='2,3'))
    s = master.session()
    assert s.hello.resources.gpus == 2
    keys = [master.run(s, *wait_until_file(tmp_path / name), resources=gpus(1)) for name in 'ab']
    for key, number in zip(keys, '23'):
        master.printed(key, b'\n')
        assert master.attempts[key].log == f'see {number}\n'.encode()
        assert list(master.started(key).started.devices) == [number]
    refused = master.refused(master.run(s, 'true', resources=gpus(1)))
    assert (cause(refused), refused.text) == ('BUSY', "the worker's GPUs are taken")
    assert master.ended(master.run(s, *SHOW)).log == b';void;none\n'
    (tmp_path / 'a').touch()
    master.ended(keys[0])
    a = master.ended(master.run(s, *SHOW, resources=gpus(1)))
    assert a.log == b'2;2;none\n' and list(a.started.devices) == ['2']
    (tmp_path / 'b').touch()
    master.ended(keys[1])
    assert master.ended(master.run(s, *SHOW, resources=gpus(2))).log == b'2,3;2,3;none\n'
    refused = master.refused(master.run(s, 'true', resources=gpus(3)))
    assert cause(refused) == 'UNSUPPORTED' and 'resources.gpus' in refused.text


@pytest.mark.parametrize('outer, flag, script, n, seen', [
    (None, 'auto', FOUR, 4, b'0,1,2,3;0,1,2,3;PCI_BUS_ID\n'),
    ('', 'auto', FOUR, 0, None),
    ('GPU-cc44,GPU-aa11', 'auto', FOUR, 2, b'GPU-cc44,GPU-aa11;GPU-cc44,GPU-aa11;none\n'),
    (None, '3,1', 'exit 1', 2, b'3,1;3,1;PCI_BUS_ID\n'),
    (None, '2', 'exit 1', 2, b'0,1;0,1;PCI_BUS_ID\n'),
    (None, 'none', FOUR, 0, None),
    (None, 'auto', 'exit 9', 2, b'0,5;0,5;PCI_BUS_ID\n'),       # of the device files
    (None, 'auto', 'echo nonsense', 2, b'0,5;0,5;PCI_BUS_ID\n'),
    (None, 'auto', 'true', 0, None),                            # it says that there are none
])
def test_what_is_found(master, make_worker, smi, gpus, tmp_path, outer, flag, script, n, seen):
    devices = tmp_path / 'dev'
    devices.mkdir()
    for name in ('nvidia0', 'nvidia5', 'nvidiactl', 'nvidia-uvm'):
        (devices / name).touch()
    env = smi(script, CUDA_VISIBLE_DEVICES=outer or '')
    worker = make_worker(env=env, gpus=flag, device_dir=devices) if outer is not None else None
    if worker is None:
        # The variable must not be there at all.
        env.pop('CUDA_VISIBLE_DEVICES')
        before = os.environ.pop('CUDA_VISIBLE_DEVICES', None)
        try:
            worker = make_worker(env=env, gpus=flag, device_dir=devices)
        finally:
            if before is not None:
                os.environ['CUDA_VISIBLE_DEVICES'] = before
    s = master.session()
    assert s.hello.resources.gpus == n, worker.log()
    if n:
        assert master.ended(master.run(s, *SHOW, resources=gpus(n))).log == seen
    else:
        # GPUs are not this worker's business: the variable is as it was.
        a = master.ended(master.run(s, 'sh', '-c', 'echo "${CUDA_VISIBLE_DEVICES-unset}"'))
        assert a.log == (b'unset\n' if outer is None else outer.encode() + b'\n')


def test_counted_resources(master, make_worker, gpus, tmp_path):
    make_worker(resources='licenses=2,tapes=1')
    s = master.session()
    assert dict(s.hello.resources.custom) == {'licenses': 2, 'tapes': 1}
    key = master.run(s, *wait_until_file(tmp_path / 'go'), resources=gpus(licenses=2))
    master.started(key)
    refused = master.refused(master.run(s, 'true', resources=gpus(licenses=1)))
    assert (cause(refused), refused.text) == ('BUSY', 'a counted resource of the worker is taken')
    assert cause(master.refused(master.run(s, 'true', resources=gpus(tapes=2)))) == 'UNSUPPORTED'
    assert cause(master.refused(master.run(s, 'true', resources=gpus(other=1)))) == 'UNSUPPORTED'
    assert kind(master.ended(master.run(s, 'true', resources=gpus(tapes=1))).outcome) == 'SUCCEEDED'
    (tmp_path / 'go').touch()
    master.ended(key)
    assert kind(master.ended(master.run(s, 'true', resources=gpus(licenses=1))).outcome) == 'SUCCEEDED'


def test_a_restarted_agent_knows_who_has_which(master, make_worker, smi, gpus, tmp_path):
    w = make_worker(env=smi(FOUR, CUDA_VISIBLE_DEVICES='2,3'), resources='licenses=1')
    s = master.session()
    key = master.run(s, *wait_until_file(tmp_path / 'go'), resources=gpus(1, licenses=1))
    master.started(key)
    w.kill()
    w.start()
    s = master.session(2)
    assert key in s.held
    assert master.ended(master.run(s, *SHOW, resources=gpus(1))).log == b'3;3;none\n'
    assert cause(master.refused(master.run(s, 'true', resources=gpus(2)))) == 'BUSY'
    assert cause(master.refused(master.run(s, 'true', resources=gpus(licenses=1)))) == 'BUSY'
    (tmp_path / 'go').touch()
    assert kind(master.ended(key).outcome) == 'SUCCEEDED'
    assert master.ended(master.run(s, *SHOW, resources=gpus(2, licenses=1))).log == b'2,3;2,3;none\n'


@pytest.mark.parametrize('flag, said', [
    ('--gpus=many', '--gpus "many"'), ('--gpus=0,0', 'named twice'), ('--gpus=9999', 'at most'),
    ('--resources=a', 'NAME=COUNT'), ('--resources=a=0', 'from 1'), ('--resources=a=1,a=2', 'given before')])
def test_values_that_are_none(build_dir, tmp_path, flag, said):
    """Before anything is connected to: a usage error."""
    w = subprocess.run([build_dir / 'worker' / 'reins-worker', flag, f'--state-dir={tmp_path}/state'], capture_output=True, text=True,
                       timeout=30)
    assert w.returncode == 64 and said in w.stderr
    assert not (tmp_path / 'state').exists()
