"""Server reflection, as a client without our .proto files uses it: everything that it needs comes from the server."""
import queue
import threading

import grpc
import pytest
import stubs
from cluster import BUILD
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

reflection = stubs.every.reflection_pb2
Request, Response = reflection.ServerReflectionRequest, reflection.ServerReflectionResponse
OURS = ['reins.v1.TaskService', 'reins.v1.WorkerService', 'reins.v1.AdminService', 'grpc.health.v1.Health',
        'grpc.reflection.v1.ServerReflection', 'grpc.reflection.v1alpha.ServerReflection']


def reflect(channel, version):
    return channel.stream_stream(
        f'/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo',
        request_serializer=Request.SerializeToString, response_deserializer=Response.FromString)


@pytest.fixture(params=['v1', 'v1alpha'])
def ask(shared, request):
    """ask(request, …) -> the answers, one stream for all of them."""
    call = reflect(shared.channel(), request.param)

    def ask(*requests):
        stream = call(iter(requests), timeout=30)
        answers = list(stream)
        assert stream.code() == grpc.StatusCode.OK  # the half-close
        assert len(answers) == len(requests)
        for q, a in zip(requests, answers):
            assert a.original_request == q and a.valid_host == q.host
        return answers if len(answers) > 1 else answers[0]
    return ask


def files(answer):
    assert answer.WhichOneof('message_response') == 'file_descriptor_response', answer
    return [descriptor_pb2.FileDescriptorProto.FromString(b) for b in answer.file_descriptor_response.file_descriptor_proto]


def error(answer):
    assert answer.WhichOneof('message_response') == 'error_response', answer
    return answer.error_response.error_code


def test_services(ask):
    answer = ask(Request(host='example', list_services='*'))
    names = [s.name for s in answer.list_services_response.service]
    assert sorted(names) == sorted(OURS)


def test_a_client_that_knows_nothing(ask, shared):
    """From the name of a service to an answer of it, with what reflection gives alone."""
    pool = descriptor_pool.DescriptorPool()

    def add(file, by_name):
        for name in file.dependency:
            if name in by_name:
                add(by_name.pop(name), by_name)
        pool.Add(file)
    for service in OURS:
        got = {f.name: f for f in files(ask(Request(file_containing_symbol=service)))}
        while got:
            add(got.pop(next(iter(got))), got)
    # Every import was there, or this would fail; every method and its types too.
    for service in OURS:
        for method in pool.FindServiceByName(service).methods:
            assert method.input_type.file and method.output_type.file
    get = pool.FindServiceByName('reins.v1.AdminService').FindMethodByName('GetServerInfo')
    factory = message_factory.MessageFactory(pool)
    reply = shared.channel().unary_unary(
        '/reins.v1.AdminService/GetServerInfo', request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=factory.GetPrototype(get.output_type).FromString,
    )(factory.GetPrototype(get.input_type)(), timeout=30)
    assert reply.master_id == 'm1'


@pytest.mark.parametrize('symbol, file', [
    ('reins.v1.TaskService', 'reins/v1/task_service.proto'),
    ('reins.v1.TaskService.SubmitTask', 'reins/v1/task_service.proto'),
    ('reins.v1.Task', 'reins/v1/task.proto'),
    ('reins.v1.Task.State', 'reins/v1/task.proto'),          # an enum in a message
    ('reins.v1.Task.RUNNING', 'reins/v1/task.proto'),        # its values are the message's names
    ('reins.v1.TaskSpec.LabelsEntry', 'reins/v1/task.proto'),
    ('reins.v1.TaskSpec.priority', 'reins/v1/task.proto'),   # a field
    ('google.rpc.BadRequest.FieldViolation', 'google/rpc/error_details.proto'),
    ('google.protobuf.Duration', 'google/protobuf/duration.proto'),
    ('grpc.health.v1.Health.Watch', 'grpc/health/v1/health.proto'),
])
def test_symbols(ask, symbol, file):
    assert files(ask(Request(file_containing_symbol=symbol)))[0].name == file


@pytest.mark.parametrize('symbol', ['', '.', 'reins', 'reins.v1', 'reins.v1.', 'reins.v1.Tas', 'reins.v1.Task.', '.reins.v1.Task',
                                    'reins.v1.Task.Nothing', 'reins.v1.TaskService.submittask', 'x' * 5000, 'ä.ö' * 300])
def test_unknown_symbols_are_answers_and_the_stream_goes_on(ask, symbol):
    bad, good = ask(Request(file_containing_symbol=symbol), Request(file_containing_symbol='reins.v1.Task'))
    assert error(bad) == 5
    assert files(good)[0].name == 'reins/v1/task.proto'


def test_files(ask, shared):
    """Each by its name, each import too, and it is what protoc made of it."""
    wanted, seen = [f'{folder}/{name}.proto' for folder, names in stubs.MODULES.items() for name in names], {}
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen[name] = files(ask(Request(file_by_filename=name)))[0]
        assert seen[name].name == name
        wanted += seen[name].dependency
    assert 'google/protobuf/timestamp.proto' in seen
    made = descriptor_pb2.FileDescriptorSet.FromString((BUILD / 'proto' / 'reins.binpb').read_bytes())
    for file in made.file:
        assert seen.setdefault(file.name, file) == file  # v1alpha is in no import of ours
    assert set(seen) == {file.name for file in made.file}
    assert error(ask(Request(file_by_filename='reins/v1/nothing.proto'))) == 5


def test_a_file_comes_once_per_stream_with_its_imports(ask):
    name = 'reins/v1/task_service.proto'
    first, again, imported = ask(Request(file_by_filename=name), Request(file_by_filename=name),
                                 Request(file_by_filename='reins/v1/task.proto'))
    assert files(first)[0].name == name and len(files(first)) > 3
    assert [f.name for f in files(again)] == [name]  # what was asked for always comes
    assert [f.name for f in files(imported)] == ['reins/v1/task.proto']


def test_extensions(ask):
    none, numbers, unknown, nothing = ask(
        Request(file_containing_extension=reflection.ExtensionRequest(containing_type='reins.v1.Task', extension_number=100)),
        Request(all_extension_numbers_of_type='reins.v1.Task'), Request(all_extension_numbers_of_type='reins.v1.TaskService'),
        Request(host='h'))
    assert error(none) == 5
    assert numbers.all_extension_numbers_response == reflection.ExtensionNumberResponse(base_type_name='reins.v1.Task')
    assert error(unknown) == 5 and error(nothing) == 3


def test_answers_come_while_the_stream_is_open(shared):
    """One after the other on an open stream, as buf and grpcurl ask."""
    call = reflect(shared.channel(), 'v1')
    requests = queue.Queue()
    stream = call(iter(requests.get, None), timeout=30)
    for _ in range(3):
        requests.put(Request(list_services=''))
        assert len(next(stream).list_services_response.service) == len(OURS)
    requests.put(None)
    assert list(stream) == [] and stream.code() == grpc.StatusCode.OK


def test_a_reader_that_takes_its_time_gets_all(shared):
    """More than the stream's queue holds: the server waits, and nothing is lost or out of order."""
    names = ['reins/v1/task_service.proto', 'reins/v1/worker_service.proto', 'reins/v1/task.proto'] * 500
    sent = threading.Event()

    def requests():
        yield from (Request(file_by_filename=n) for n in names)
        sent.set()
    channel = shared.channel(('grpc.http2.bdp_probe', 0), ('grpc.http2.lookahead_bytes', 65535))
    stream = reflect(channel, 'v1')(requests(), timeout=60)
    assert sent.wait(30)  # and only now it is read
    assert [files(a)[0].name for a in stream] == names
    assert stream.code() == grpc.StatusCode.OK


def test_bounds(shared):
    call = shared.channel().stream_stream('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo')
    for body, code in ((b'\x22\xff\xff\xff\xff\x0f', 'INVALID_ARGUMENT'), (b'\x22\x02\xff\xff', 'INVALID_ARGUMENT'),
                       (Request(list_services='x' * 17000).SerializeToString(), 'RESOURCE_EXHAUSTED')):
        stream = call(iter([body]), timeout=30)
        with pytest.raises(grpc.RpcError) as e:
            list(stream)
        assert e.value.code().name == code
