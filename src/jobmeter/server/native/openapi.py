"""OpenAPI description of the API, generated from the endpoints and the structures of their bodies."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from jobmeter import __version__
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.endpoint import Endpoint
from jobmeter.server.native.problem import ProblemBody

_HEAD = {
    "openapi": "3.1.0",
    "info": {
        "title": "Jobmeter",
        "version": __version__,
        "description": (
            "Measurements of jobs. Times in answers are milliseconds since the epoch; times in requests may also be "
            "ISO 8601. Durations are texts such as `30s`, `5m`, `1h`. Ratios are 0 to 1, sizes bytes. Every error, "
            'of any status, has the body `{"error": {"code", "message", "field"}, "request_id"}`.'
        ),
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    },
    "servers": [{"url": "/"}],
    "security": [{"bearer": []}, {"api-key": []}],
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of a key."},
    "api-key": {"type": "apiKey", "in": "header", "name": "X-Auth-Token", "description": "The same token."},
}
_ERRORS = {
    400: "A parameter or the body is wrong; `field` names it.",
    401: "The credential is missing or invalid.",
    403: "The key does not allow this.",
    404: "The object does not exist or the key may not see it.",
    429: "Too many requests; `Retry-After` tells when to retry.",
    503: "The store or the registry is unavailable; nothing was stored.",
}


def make_document(base: str, endpoints: Sequence[Endpoint]) -> bytes:
    """Describe all endpoints below ``base`` as JSON."""
    bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    kinds = [*bodies, *(endpoint.answer_kind for endpoint in endpoints), ProblemBody]
    found, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, found, strict=True))
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema.get("description", "")).replace("``", "`")
    received = {one.__name__ for kind in bodies for one in _structs(kind)}
    for one in {one for kind in kinds for one in _structs(kind) if one.__name__ not in received}:
        _mark_required(schemas[one.__name__], one)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(base + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return msgspec.json.encode(
        {**_HEAD, "paths": paths, "components": {"schemas": schemas, "securitySchemes": _SECURITY}}
    )


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - a type
    """Find the structures that values of a type contain."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from _structs(field.type)
    for part in get_args(kind):
        yield from _structs(part)


def _mark_required(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Mark each field that answers always have as required, including fields with a default."""
    fields = msgspec.structs.fields(kind)
    optional = {one.encode_name for one in fields if one.default is msgspec.UNSET}
    if kind.__struct_config__.omit_defaults:
        optional |= {one.encode_name for one in fields if not one.required}
    schema["required"] = [name for name in schema["properties"] if name not in optional]
    for part in schema["properties"].values():
        part.pop("default", None)


def _operation(endpoint: Endpoint, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    answer = {
        endpoint.answer_type: {"schema": schema_of[endpoint.answer_kind]},
        **{kind: {} for kind in endpoint.other_types},
    }
    problem = {"application/json": {"schema": schema_of[ProblemBody]}}
    operation = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": [
            *(_path_parameter(name, text) for name, text in endpoint.paths.items()),
            *(_query_parameter(query) for query in endpoint.queries),
        ],
        "responses": {
            "200": {"description": endpoint.summary, "content": answer},
            **{str(status): {"description": text, "content": problem} for status, text in _ERRORS.items()},
        },
    }
    if endpoint.text:
        operation["description"] = endpoint.text
    if endpoint.body is not None or endpoint.body_text:
        operation["requestBody"] = _body(endpoint, schema_of)
    if endpoint.action is None:
        operation["security"] = [{}]
    return operation


def _path_parameter(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": {"type": "string"}}


def _query_parameter(query: QueryArguments) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "description": query.text,
        "schema": {"type": query.type},
    }
    if query.many:
        parameter |= {"schema": {"type": "array", "items": parameter["schema"]}, "explode": True}
    if query.example:
        parameter["examples"] = {"example": {"value": query.example}}
    return parameter


def _body(endpoint: Endpoint, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    content = {} if endpoint.body is None else {"schema": schema_of[endpoint.body]}
    if endpoint.example is not None:
        content["examples"] = {"example": {"value": endpoint.example}}
    body = {"required": True, "content": {endpoint.body_type: content}}
    return {**body, "description": endpoint.body_text} if endpoint.body_text else body
