"""GetXtraceToken: a token and endpoints for sending traces."""

import re

from jobmeter.dialects.alibaba.operation import Arguments, answer, operation
from jobmeter.dialects.base import Steps, TraceTokenQuestion, execute
from jobmeter.errors import InvalidRequestError

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


@operation("GET /api/v1/PAILLMTrace/XtraceToken", "traces:write")
def get_xtrace_token(arguments: Arguments) -> Steps:
    """`{Token, HttpEndpoint, HttpInternalEndpoint, GrpcEndpoint, GrpcInternalEndpoint, RequestId}`.

    The token lasts a week and sends spans and log records to the key's project, as `Authentication: TOKEN` or as a
    bearer token; it reads nothing. The endpoints for gRPC are empty where the server has no such port.
    """
    call = arguments.call
    host = _HOST.fullmatch(call.header("host"))
    if host is None:
        raise InvalidRequestError("the Host header is not a host", "Host")
    made = yield from execute(TraceTokenQuestion())
    http = f"{call.scheme}://{host[0]}/api/otlp/traces"
    grpc = "" if made.grpc_port is None else f"{call.scheme}://{host['name']}:{made.grpc_port}"
    endpoints = {"HttpEndpoint": http, "HttpInternalEndpoint": http, "GrpcEndpoint": grpc, "GrpcInternalEndpoint": grpc}
    return answer({"Token": made.token, **endpoints}, arguments)
