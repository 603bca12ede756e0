"""Runs in an environment of the vendor's own SDK, of either generation: reads a JSON list of requests, prints answers.

A request is {"config": {...}, "operation": "get_user_view_metrics", "path": [...], "request": {...}, "async": bool}.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from alibabacloud_paistudio20220112 import models  # noqa: E402
from alibabacloud_paistudio20220112.client import Client  # noqa: E402

try:
    from alibabacloud_tea_openapi.utils_models import Config
except ImportError:  # before 0.4
    from alibabacloud_tea_openapi.models import Config


def _call(client, ask):
    name = ask["operation"]
    kind = "".join(part.capitalize() for part in name.split("_"))
    request = getattr(models, f"{kind}Request")().from_map(ask["request"])
    if ask.get("async"):
        return asyncio.run(getattr(client, f"{name}_async")(*ask["path"], request))
    return getattr(client, name)(*ask["path"], request)


def _answer(ask):
    try:
        return _call(Client(Config(**ask["config"])), ask).to_map()
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        names = ("code", "message", "status_code", "statusCode", "request_id", "retry_after", "data")
        return {"error": type(error).__name__, **{name: getattr(error, name, None) for name in names}}


for line in sys.stdin:
    print(json.dumps([_answer(ask) for ask in json.loads(line)], default=str), flush=True)
