"""GetXtraceToken: a token and endpoints for sending traces."""

from jobmeter.access.forwarded import find_public_address
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, answer, operation
from jobmeter.dialects.base import Steps, TraceTokenQuestion, ask


@operation("GET /api/v1/PAILLMTrace/XtraceToken", "traces:write")
class GetXtraceToken(AlibabaRequest, frozen=True):
    """Returns `{Token, HttpEndpoint, HttpInternalEndpoint, GrpcEndpoint, GrpcInternalEndpoint, RequestId}`.

    The token lasts a week and sends spans and log records to the key's project, as `Authentication: TOKEN` or as a
    bearer token; it reads nothing. The endpoints begin with the server's public address (`JOBMETER_PUBLIC_URL`), by
    default with the address of the call. The endpoints for gRPC are empty if the server has no such port.
    """

    def _steps(self) -> Steps:
        address = find_public_address(self.call, self.context.public)
        made = yield from ask(TraceTokenQuestion())
        http = f"{address.url}/api/otlp/traces"
        # If the address has TLS, this port is given with TLS too: an exporter must not send its token in the clear.
        grpc = "" if made.grpc_port is None else f"{address.scheme}://{address.host}:{made.grpc_port}"
        body = {
            "Token": made.token,
            **dict.fromkeys(("HttpEndpoint", "HttpInternalEndpoint"), http),
            **dict.fromkeys(("GrpcEndpoint", "GrpcInternalEndpoint"), grpc),
        }
        return answer(body, self)
