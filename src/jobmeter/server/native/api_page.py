"""Page about the HTTP API, made from the OpenAPI document: plain HTML without scripts or outside resources."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec

_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}code,pre{font:14px/1.5 ui-monospace,monospace;overflow-wrap:anywhere}pre{overflow-x:auto}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25rem .75rem .25rem 0;text-align:left;"
    "vertical-align:top;border-bottom:1px solid #8886}summary{cursor:pointer;padding:.25rem 0}"
    "details>:not(summary){margin-left:1rem}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: tuple[tuple[str, str], ...] = (
    (
        "content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)


def make_api_page(document: bytes) -> bytes:
    """Write the page of an OpenAPI document of ours."""
    described = msgspec.json.decode(document)
    info = described["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append("".join(_operation(method, path, operation)))
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}: HTTP API</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>{escape(info['title'])} {escape(info['version'])}: HTTP API</h1>{_text(info['description'])}",
        "<p>Send the token of a key with each request: <code>Authorization: Bearer TOKEN</code>.</p>",
        '<p>The same description for programs: <a href="openapi.json">openapi.json</a>.</p>',
        *(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in sorted(by_tag.items())),
        "<h2>Objects</h2>",
        *("".join(_object(name, schema)) for name, schema in sorted(described["components"]["schemas"].items())),
        "</body></html>\n",
    ]
    return "".join(parts).encode()


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary>'
    yield f"<code><b>{method.upper()}</b> {escape(path)}</code> {escape(operation['summary'])}</summary>"
    yield _text(operation.get("description", ""))
    if operation["parameters"]:
        yield _table(("parameter", "type", ""), (_parameter(one) for one in operation["parameters"]))
    body = operation.get("requestBody")
    if body is not None:
        yield f"<p>Body: {_contents(body['content'])}</p>{_text(body.get('description', ''))}"
        for content in body["content"].values():
            for example in content.get("examples", {}).values():
                yield f"<pre>{escape(msgspec.json.format(msgspec.json.encode(example['value'])).decode())}</pre>"
    yield f"<p>Answer: {_contents(operation['responses']['200']['content'])}</p></details>"


def _parameter(one: Mapping[str, Any]) -> tuple[str, str, str]:
    required = ", required" if one["required"] else ""
    examples = [f"<code>{escape(str(each['value']))}</code>" for each in one.get("examples", {}).values()]
    text = " ".join([_inline(one["description"]), *(f"Example: {example}." for example in examples)])
    return f"<code>{escape(one['name'])}</code>", f"{_type(one['schema'])}{required}", text


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
    yield _text(schema.get("description", ""))
    fields = schema.get("properties", {}).items()
    if fields:
        yield _table(("field", "type"), ((f"<code>{escape(field)}</code>", _type(kind)) for field, kind in fields))
    yield "</details>"


def _contents(content: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"<code>{escape(kind)}</code> {_type(one.get('schema', {}))}" for kind, one in content.items())


def _type(schema: Mapping[str, Any]) -> str:
    """Describe a schema in one line; a name is a link."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {}) or 'values'}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties']) or 'values'}"
    return escape(str(schema.get("type", "")))


def _table(head: tuple[str, ...], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def _text(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part.strip())


def _inline(text: str) -> str:
    """Escape a text; parts between backticks become code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
