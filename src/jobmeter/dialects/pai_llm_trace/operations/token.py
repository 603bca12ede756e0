"""GetXtraceToken: a token and endpoints for sending traces."""

import re

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.operation import answer
from jobmeter.dialects.base import Context, Operation, Steps, TraceTokenQuestion, execute
from jobmeter.errors import InvalidRequestError

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def get_xtrace_token(call: Call, context: Context) -> Steps:
    """A token, and the endpoints of this server, as the caller reached it."""
    host = _HOST.fullmatch(call.header("host"))
    if host is None:
        raise InvalidRequestError("the Host header is not a host", "Host")
    made = yield from execute(TraceTokenQuestion())
    http = f"{call.scheme}://{host[0]}/api/otlp/traces"
    grpc = "" if made.grpc_port is None else f"{call.scheme}://{host['name']}:{made.grpc_port}"
    return answer(
        {
            "Token": made.token,
            "HttpEndpoint": http,
            "HttpInternalEndpoint": http,
            "GrpcEndpoint": grpc,
            "GrpcInternalEndpoint": grpc,
        },
        context,
    )


OPERATIONS = (
    Operation(
        name="GetXtraceToken",
        action="traces:write",
        method="GET",
        path="/api/v1/PAILLMTrace/XtraceToken",
        answer=get_xtrace_token,
        parameters=(),
        text=(
            "`{Token, HttpEndpoint, HttpInternalEndpoint, GrpcEndpoint, GrpcInternalEndpoint, RequestId}`. The token "
            "lasts a week and sends spans and log records to the key's project, as `Authentication: TOKEN` or as a "
            "bearer token; it reads nothing. The endpoints for gRPC are empty where the server has no such port."
        ),
    ),
)
