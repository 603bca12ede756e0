"""Runs in the environment of the vendor's own SDK: performs requests of stdin, one JSON object a line.

A request is {"url", "key", "call": a method of the generated client, "path": {...}, "params" or "request": {...},
"async": bool}. The answer is the parsed model as JSON, or {"error", "status", "body"}.
"""

import asyncio
import inspect
import json
import sys
import typing

from baseten.client import AsyncManagementClient, ManagementClient


def _arguments(method, ask):
    hints = typing.get_type_hints(method, sys.modules[method.__module__].__dict__)
    own = dict(ask.get("path", {}))
    for name in ("params", "request"):
        if name in ask:
            models = [one for one in (typing.get_args(hints[name]) or (hints[name],)) if one is not type(None)]
            own[name] = models[0].model_validate(ask[name])
    assert set(own) <= set(inspect.signature(method).parameters)
    return own


def _sync(ask):
    with ManagementClient(api_key=ask["key"], base_url_override=ask["url"]) as client:
        method = getattr(client.api, ask["call"])
        return method(**_arguments(method, ask))


async def _async(ask):
    async with AsyncManagementClient(api_key=ask["key"], base_url_override=ask["url"]) as client:
        method = getattr(client.api, ask["call"])
        return await method(**_arguments(method, ask))


def _answer(ask):
    try:
        model = asyncio.run(_async(ask)) if ask.get("async") else _sync(ask)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        status, body = getattr(error, "status_code", None), getattr(error, "body", str(error))
        return {"error": type(error).__name__, "status": status, "body": body}
    return model.model_dump(mode="json")


for line in sys.stdin:
    print(json.dumps(_answer(json.loads(line))), flush=True)
