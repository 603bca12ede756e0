"""The description of the API in OpenAPI, made by Litestar from the endpoints' rows. Nothing is served by it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import (
    Components,
    Example,
    License,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
    SecurityScheme,
)

from jobmeter import __version__
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.endpoint import Endpoint
from jobmeter.server.native.problem import ProblemBody

CONFIG = OpenAPIConfig(
    title="Jobmeter",
    version=__version__,
    description=(
        "Measurements of jobs. Times in answers are milliseconds since the epoch; times in requests are those or ISO "
        "8601. Durations are texts such as `30s`, `5m`, `1h`. Ratios are 0 to 1, sizes bytes. Every refusal, of any "
        'status, has the body `{"error": {"code", "message", "field"}, "request_id"}`.'
    ),
    license=License(name="Apache-2.0", identifier="Apache-2.0"),
    path="/schema",
    render_plugins=[],
    components=Components(
        security_schemes={
            "bearer": SecurityScheme(type="http", scheme="bearer", description="The token of a key."),
            "api-key": SecurityScheme(
                type="apiKey", security_scheme_in="header", name="X-Auth-Token", description="The same token."
            ),
        }
    ),
    security=[{"bearer": []}, {"api-key": []}],
)

_ERRORS = {
    400: "A parameter or the body is wrong; `field` names it.",
    401: "No credential, or one that does not hold.",
    403: "The key does not allow this.",
    404: "There is no such thing, or none that the key may see.",
    429: "Too much at once; `Retry-After` says when to come back.",
    503: "The store or the registry cannot work now; nothing was kept.",
}


def document(base: str, endpoints: Sequence[Endpoint]) -> bytes:
    """The description of all endpoints below ``base``, as JSON."""
    application = Litestar(
        path=base,
        route_handlers=[_route(endpoint) for endpoint in endpoints],
        openapi_config=CONFIG,
        logging_config=None,
        debug=False,
    )
    return msgspec.json.encode(application.openapi_schema.to_schema())


def _route(endpoint: Endpoint) -> HTTPRouteHandler:
    async def answer(request: Request[Any, Any, Any]) -> Response[Any]:
        raise NotImplementedError(request.url)  # described here, answered by the door

    errors = {
        status: ResponseSpec(ProblemBody, generate_examples=False, description=text) for status, text in _ERRORS.items()
    }
    answered: Any = list[endpoint.answer] if endpoint.many else endpoint.answer  # type: ignore[name-defined]
    success = ResponseSpec(answered, generate_examples=False, description=endpoint.summary)
    handler = HTTPRouteHandler(
        path=re.sub(r"{(\w+)}", r"{\1:str}", endpoint.path),
        http_method=endpoint.method,
        status_code=200,
        operation_id=endpoint.name,
        summary=endpoint.summary,
        description=endpoint.text or None,
        tags=[endpoint.tag],
        responses={200: success, **errors},
        operation_class=_documented(endpoint),
        media_type=endpoint.answer_type,
    )
    return handler(answer)


def _documented(endpoint: Endpoint) -> type[Operation]:
    """An operation that adds what Litestar cannot see in a signature: parameters, the body, other media types."""
    row = endpoint

    @dataclass
    class Documented(Operation):
        def __post_init__(self) -> None:
            self.parameters = [*_path_parameters(row), *(_query(query) for query in row.queries)]
            if row.body is not None or row.body_text:
                self.request_body = _body(row)
            if row.action is None:
                self.security = [{}]
            success = (self.responses or {})["200"]
            if isinstance(success, OpenAPIResponse) and success.content:
                success.content.update({kind: OpenAPIMediaType() for kind in row.other_types})

    return Documented


def _path_parameters(endpoint: Endpoint) -> list[Parameter]:
    return [
        Parameter(name=name, param_in="path", required=True, description=text, schema=Schema(type=OpenAPIType.STRING))
        for name, text in endpoint.paths.items()
    ]


def _query(query: Query) -> Parameter:
    schema = Schema(type=OpenAPIType(query.type))
    if query.many:
        schema = Schema(type=OpenAPIType.ARRAY, items=schema)
    example = Example(value=query.example) if query.example else None
    return Parameter(
        name=query.name,
        param_in="query",
        required=query.required,
        description=query.text,
        schema=schema,
        explode=query.many or None,
        examples={"example": example} if example else None,
    )


def _body(endpoint: Endpoint) -> RequestBody:
    given = endpoint.example is not None
    example: dict[str, Example | Reference] = {"example": Example(value=endpoint.example)} if given else {}
    media = OpenAPIMediaType(schema=endpoint.body, examples=example or None)
    return RequestBody(content={endpoint.body_type: media}, description=endpoint.body_text or None, required=True)
