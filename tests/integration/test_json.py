"""ProtoJSON both ways against Python's json_format, which we did not write: random messages of every type that a method of
ours takes or answers, and texts that are a little wrong.  REINS_SEED repeats a run; the seed is printed."""
import importlib
import json
import math
import os
import random
import re
import struct
import subprocess
import sys

import pytest
import stubs
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as F

SEED = int(os.environ.get('REINS_SEED', '20261130'))
ROUNDS = int(os.environ.get('REINS_JSON_ROUNDS', '12'))  # messages of each type
EMIT_DEFAULTS, PRETTY = 1, 2
# A whole number as "1e2": others take it in quotes too, Python's json_format only without.
QUOTED_EXPONENT = re.compile(r"invalid literal for int\(\) with base 10: '-?\d+(\.0*)?([eE][-+]?\d+)?'")

RANGES = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), (-2**31, 2**31 - 1)),
    **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), (-2**63, 2**63 - 1)),
    **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), (0, 2**64 - 1)),
}
CHARACTERS = ['a', 'Z', '0', ' ', '"', '\\', '/', '\b', '\n', '\t', '\x01', '\x1f', '\x7f', '\x80', 'é', '\u2028', '€',
              '\ud7ff', '\ue000', '\uffff', '\U00010000', '😀', '\U0010ffff', '_', '.', '[', '{']


class Echo:
    """tests/integration/json_echo."""

    def __init__(self, build_dir):
        self.process = subprocess.Popen([build_dir / 'tests/integration/json_echo'], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, head, data):
        self.process.stdin.write(f'{head} {len(data)}\n'.encode() + data)
        self.process.stdin.flush()
        word, size = self.process.stdout.readline().split()
        answer = self.process.stdout.read(int(size))
        return word == b'ok', answer

    def read(self, name, text):
        """(the packed message, None), or (None, (field, message))."""
        good, answer = self.ask(f'in {name}', text.encode() if isinstance(text, str) else text)
        return (answer, None) if good else (None, tuple(answer.decode().split('\n', 1)))

    def write(self, name, wire, flags=0):
        good, answer = self.ask(f'out {flags} {name}', wire)
        assert good, answer
        return answer.decode()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


@pytest.fixture(scope='module')
def echo(build_dir):
    e = Echo(build_dir)
    yield e
    e.close()


@pytest.fixture(scope='module')
def types(tmp_path_factory):
    """{name: class} of what methods take and answer, and of the tests' own message with every shape."""
    out = tmp_path_factory.mktemp('shapes')
    proto = stubs.ROOT / 'tests/proto'
    subprocess.run(['protoc', f'-I{proto}', '-I/usr/include', f'--python_out={out}', 'pb_test.proto'], check=True, timeout=60)
    sys.path.insert(0, str(out))
    found = [importlib.import_module('pb_test_pb2').Shapes, stubs.status_pb2.Status]
    for module in (stubs.tasks, stubs.admin, stubs.every.worker_service_pb2, stubs.health_pb2, stubs.every.reflection_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                found += [method.input_type._concrete_class, method.output_type._concrete_class]
    return {cls.DESCRIPTOR.full_name: cls for cls in found}


@pytest.fixture
def rng():
    print(f'REINS_SEED={SEED}')
    return random.Random(SEED)


# ---- random messages ------------------------------------------------------------------------------------------------

def some_text(rng):
    return ''.join(rng.choice(CHARACTERS) for _ in range(rng.choice([0, 1, 3, 8, 40, 200])))


def some_real(rng, single):
    form, bits = ('<f', 32) if single else ('<d', 64)
    value = rng.choice([
        0.0, -0.0, 1.0, 0.1, 1e-7, 1e21, -2.5, math.inf, -math.inf, math.nan, 3.0e38, 1.4e-45,
        rng.random(), rng.uniform(-1e9, 1e9), struct.unpack(form, rng.getrandbits(bits).to_bytes(bits // 8, 'little'))[0],
    ])
    return math.nan if math.isnan(value) else value


def some_scalar(rng, field):
    if field.type in RANGES:
        low, high = RANGES[field.type]
        return rng.choice([low, high, 0, 1, max(low, -1), rng.randint(low, high), rng.randint(low, high) >> rng.randrange(60)])
    if field.type in (F.TYPE_FLOAT, F.TYPE_DOUBLE):
        return some_real(rng, field.type == F.TYPE_FLOAT)
    if field.type == F.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == F.TYPE_ENUM:
        return rng.choice([*field.enum_type.values_by_number, 1000, -1, 2**31 - 1])
    if field.type == F.TYPE_BYTES:
        return rng.randbytes(rng.choice([0, 1, 2, 3, 4, 50, 300]))
    assert field.type == F.TYPE_STRING, field.full_name
    return some_text(rng)


def fill_special(rng, message):
    """Messages that JSON has a text of its own for. False: it is none."""
    name = message.DESCRIPTOR.full_name
    fraction = rng.choice([0, 0, 500_000_000, 1000, 999_999_999, rng.randrange(10**9)])
    if name == 'google.protobuf.Timestamp':
        message.seconds = rng.choice([0, -62135596800, 253402300799, rng.randint(-62135596800, 253402300799)])
        message.nanos = fraction
    elif name == 'google.protobuf.Duration':
        sign = rng.choice([1, -1])
        message.seconds = sign * rng.choice([0, 1, 315576000000 - 1, rng.randrange(315576000000)])
        message.nanos = sign * fraction
    elif name == 'google.protobuf.Any':
        details = stubs.error_details_pb2
        held = rng.choice([details.BadRequest, details.ErrorInfo, details.ResourceInfo, details.RetryInfo])()
        fill(rng, held, 3)
        message.Pack(held)
    else:
        return False
    return True


def is_map(field):
    return field.type == F.TYPE_MESSAGE and field.message_type.GetOptions().map_entry


def fill_map(rng, values, entry, depth):
    key, value = entry.fields_by_name['key'], entry.fields_by_name['value']
    for _ in range(rng.choice([1, 2, 5])):
        at = some_scalar(rng, key)
        if value.type == F.TYPE_MESSAGE:
            values[at].SetInParent()
            fill(rng, values[at], depth)
        else:
            values[at] = some_scalar(rng, value)


def fill(rng, message, depth):
    if fill_special(rng, message):
        return
    for field in message.DESCRIPTOR.fields:
        inner = field.type == F.TYPE_MESSAGE
        if rng.random() < 0.5 or (inner and depth == 0):
            continue
        values = getattr(message, field.name)
        if is_map(field):
            fill_map(rng, values, field.message_type, depth - 1)
        elif field.label == F.LABEL_REPEATED:
            for _ in range(rng.choice([1, 2, 5])):
                if inner:
                    fill(rng, values.add(), depth - 1)
                else:
                    values.append(some_scalar(rng, field))
        elif inner:
            values.SetInParent()
            fill(rng, values, depth - 1)
        else:
            setattr(message, field.name, some_scalar(rng, field))


def some_message(rng, cls):
    message = cls()
    fill(rng, message, rng.choice([1, 2, 3]))
    return message


def same(a, b):
    if a.DESCRIPTOR.full_name == 'google.rpc.Status':  # what an Any holds may be packed in any order
        return json_format.MessageToDict(a) == json_format.MessageToDict(b)
    return a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


# ---- the tests ------------------------------------------------------------------------------------------------------

def test_what_python_writes_we_read(echo, types, rng):
    for name, cls in types.items():
        for _ in range(ROUNDS):
            message = some_message(rng, cls)
            text = json_format.MessageToJson(
                message, including_default_value_fields=rng.random() < 0.5, preserving_proto_field_name=rng.random() < 0.5,
                indent=rng.choice([None, 0, 2]), ensure_ascii=rng.random() < 0.5, use_integers_for_enums=rng.random() < 0.3)
            wire, refused = echo.read(name, text)
            assert not refused, (name, refused, text)
            again = cls.FromString(wire)
            assert same(again, message), (name, text, again, message)


def test_what_we_write_python_reads_and_so_do_we(echo, types, rng):
    for name, cls in types.items():
        for _ in range(ROUNDS):
            message = some_message(rng, cls)
            text = echo.write(name, message.SerializeToString(), rng.choice([0, EMIT_DEFAULTS, PRETTY, EMIT_DEFAULTS | PRETTY]))
            assert same(json_format.Parse(text, cls()), message), (name, text)
            wire, refused = echo.read(name, text)
            assert not refused and same(cls.FromString(wire), message), (name, refused, text)


def test_we_write_what_python_writes(echo, types, rng):
    """The same keys and values; numbers as numbers."""
    def number(text):
        value = float(text)
        if abs(value) > 1.2e-38:
            return value
        return struct.unpack('<f', struct.pack('<f', value))[0]  # Python writes more digits of a small float than it has

    for name, cls in types.items():
        for _ in range(ROUNDS):
            message = some_message(rng, cls)
            ours = json.loads(echo.write(name, message.SerializeToString()), parse_int=number, parse_float=number)
            theirs = json.loads(json_format.MessageToJson(message), parse_int=number, parse_float=number)
            assert ours == theirs, name


def mutated(rng, text):
    """The text with one character changed, taken out or put in."""
    at = rng.randrange(len(text) + 1)
    new = rng.choice('{}[]:,"0123456789.-+eE \n\\utrfalsn/_=ZT')
    return rng.choice([text[:at] + new + text[at + 1:], text[:at] + text[at + 1:], text[:at] + new + text[at:]])


def test_of_wrong_texts_we_take_none_that_python_refuses(echo, types, rng):
    """Python takes more than we do; what both take is the same message."""
    taken = refused_by_us = 0
    for name, cls in types.items():
        for _ in range(ROUNDS):
            message = some_message(rng, cls)
            text = json_format.MessageToJson(message, indent=None)
            for _ in range(8):
                wrong = mutated(rng, text)
                wire, refused = echo.read(name, wrong)
                if refused:
                    refused_by_us += 1
                    assert '(line ' in refused[1], refused
                    continue
                taken += 1
                try:
                    theirs = json_format.Parse(wrong, cls())
                except json_format.ParseError as e:
                    if QUOTED_EXPONENT.search(str(e)):
                        continue
                    pytest.fail(f'{name}: only we take {wrong}: {e}')
                assert same(cls.FromString(wire), theirs), (name, wrong)
    assert taken > 50 and refused_by_us > 50


def test_the_field_is_named_in_the_protos_words(echo):
    request = 'reins.v1.SubmitTaskRequest'
    for text, field in [
        ('{"spec":{"retry":{"maxAttempts":1.5}}}', 'spec.retry.max_attempts'),
        ('{"spec":{"labels":{"a":1}}}', 'spec.labels["a"]'),
        ('{"spec":{"command":["a",1]}}', 'spec.command[1]'),
        ('{"spec":{"maxAttemps":1}}', 'spec.maxAttemps'),
        ('{"spec" ', ''),
    ]:
        wire, refused = echo.read(request, text)
        assert wire is None and refused[0] == field, (text, refused)
