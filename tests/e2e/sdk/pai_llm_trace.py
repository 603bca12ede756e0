"""Runs in the environment of the vendor's own SDK: reads a JSON list of requests a line, and prints the answers.

A request is {"config": {...}, "operation": "list_traces_datas", "request": {...} or null, "async": bool}.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from alibabacloud_paillmtrace20240311 import models  # noqa: E402
from alibabacloud_paillmtrace20240311.client import Client  # noqa: E402
from alibabacloud_tea_openapi.models import Config  # noqa: E402


def _call(client, ask):
    name = ask["operation"]
    kind = "".join(part.capitalize() for part in name.split("_"))
    request = [] if ask["request"] is None else [getattr(models, f"{kind}Request")().from_map(ask["request"])]
    if ask.get("async"):
        return asyncio.run(getattr(client, f"{name}_async")(*request))
    return getattr(client, name)(*request)


def _answer(ask):
    try:
        return _call(Client(Config(**ask["config"])), ask).to_map()
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        names = ("code", "message", "statusCode", "status_code", "retry_after")
        return {"error": type(error).__name__, **{name: getattr(error, name, None) for name in names}}


for line in sys.stdin:
    print(json.dumps([_answer(ask) for ask in json.loads(line)], default=str), flush=True)
