"""Runs in an environment of the vendor's own SDK: reads JSON lists of requests, a list a line, and prints the answers.

A request is {"config": {...}, "operation": "create_resource_log", "path": [...], "request": {...} or null}.
"""

import json
import sys
import warnings

warnings.simplefilter("ignore")

from alibabacloud_eas20210701 import models  # noqa: E402
from alibabacloud_eas20210701.client import Client  # noqa: E402
from alibabacloud_tea_openapi.utils_models import Config  # noqa: E402


def _answer(ask):
    name = ask["operation"]
    kind = "".join(part.capitalize() for part in name.split("_"))
    request = [] if ask["request"] is None else [getattr(models, f"{kind}Request")().from_map(ask["request"])]
    try:
        return getattr(Client(Config(**ask["config"])), name)(*ask["path"], *request).to_map()
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        return {"error": type(error).__name__, "code": getattr(error, "code", None)}


for line in sys.stdin:
    print(json.dumps([_answer(ask) for ask in json.loads(line)], default=str), flush=True)
