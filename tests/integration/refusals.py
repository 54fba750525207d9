"""What a refused call says."""

import stubs
import grpc
import pytest


def refused(call, *arguments, **keywords):
    """The RpcError of a call that must fail."""
    with pytest.raises(grpc.RpcError) as e:
        call(*arguments, **{"timeout": 30, **keywords})
    return e.value


def _details(error, kind):
    trailing = dict(error.trailing_metadata() or ())
    if "grpc-status-details-bin" not in trailing:
        return []
    status = stubs.status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    found = []
    for any_message in status.details:
        if any_message.type_url == "type.googleapis.com/" + kind.DESCRIPTOR.full_name:
            found.append(kind.FromString(any_message.value))
    return found


def fields(error):
    """Fields that google.rpc.BadRequest names; each is named in the message too."""
    names = [v.field for b in _details(error, stubs.error_details_pb2.BadRequest) for v in b.field_violations]
    for name in names:
        assert name in error.details(), error.details()
    return names


def retry_after(error):
    """Seconds of google.rpc.RetryInfo, or None."""
    found = _details(error, stubs.error_details_pb2.RetryInfo)
    return found[0].retry_delay.ToNanoseconds() / 1e9 if found else None


def info(error):
    """The reason and the metadata of google.rpc.ErrorInfo; each refusal has one."""
    (found,) = _details(error, stubs.error_details_pb2.ErrorInfo)
    assert found.domain == "reins.dev"
    return found.reason, dict(found.metadata)


def resource(error):
    """Type and name of google.rpc.ResourceInfo, or None."""
    found = _details(error, stubs.error_details_pb2.ResourceInfo)
    return (found[0].resource_type, found[0].resource_name) if found else None
