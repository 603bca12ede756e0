"""Runs in the environment of the vendor's own SDKs: reads a JSON list of requests a line, and prints a list of answers.

A request is {"config": {...}, "product": "dlc" | "cms" | "eflo", "call": "get_job_metrics", "args": ["dlc1"],
"request": {...}, "async": bool, "pages": bool, "anonymous": bool, "date": "...", "nonce": "...", "retry": {...}}.
``call`` is a method of the client. ``request``, in the vendor's field names, becomes its request object if it takes
one. ``date`` and ``nonce`` replace the SDK's own values; ``retry`` contains its retry options. ``pages`` returns a list
of the answers to all pages that NextToken leads to. The script works with both generations of the core.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from alibabacloud_pai_dlc20201203 import models as dlc  # noqa: E402
from alibabacloud_pai_dlc20201203.client import Client as Dlc  # noqa: E402

try:
    from alibabacloud_cms20190101 import models as cms
    from alibabacloud_cms20190101.client import Client as Cms
except ImportError:
    cms = Cms = None

try:
    from alibabacloud_eflo_controller20221215 import models as eflo
    from alibabacloud_eflo_controller20221215.client import Client as Eflo
except ImportError:
    eflo = Eflo = None

try:  # since tea-openapi 0.4
    from alibabacloud_tea_openapi import utils_models as core
    from alibabacloud_tea_openapi.utils import Utils
    from darabonba.runtime import RuntimeOptions

    PLACES = {"nonce": [(Utils, "get_nonce")], "date": [(Utils, "get_timestamp"), (Utils, "get_date_utcstring")]}
except ImportError:
    from alibabacloud_openapi_util.client import Client as OpenApiUtil
    from alibabacloud_tea_openapi import models as core
    from alibabacloud_tea_util.client import Client as Util
    from alibabacloud_tea_util.models import RuntimeOptions

    PLACES = {
        "nonce": [(Util, "get_nonce")],
        "date": [(OpenApiUtil, "get_timestamp"), (Util, "get_date_utcstring")],
    }

PRODUCTS = {"dlc": (Dlc, dlc), "cms": (Cms, cms), "eflo": (Eflo, eflo)}
_OWN = {(place, name): getattr(place, name) for places in PLACES.values() for place, name in places}


def _always(value):
    return lambda: value


def _fix(ask):
    for what, places in PLACES.items():
        for place, name in places:
            setattr(place, name, staticmethod(_always(ask[what]) if ask.get(what) else _OWN[place, name]))


def _anonymous(client, ask):
    params = core.Params(
        action="GetJobMetrics",
        version="2020-12-03",
        protocol="HTTP",
        pathname=f"/api/v1/jobs/{ask['args'][0]}/metrics",
        method="GET",
        auth_type="Anonymous",
        style="ROA",
        req_body_type="json",
        body_type="json",
    )
    return client.call_api(params, core.OpenApiRequest(query=ask["request"]), RuntimeOptions())


def _arguments(ask, models):
    name = "".join(part.capitalize() for part in ask["call"].split("_")) + "Request"
    request = getattr(models, name, None)
    return [*ask.get("args", ()), *([request().from_map(ask.get("request") or {})] if request else ())]


def _retrying(ask):
    if "retry" not in ask:
        return {}
    from darabonba.policy.retry import RetryOptions

    return {"retry_options": RetryOptions(ask["retry"])}


def _answer(ask):
    _fix(ask)
    client_type, models = PRODUCTS[ask.get("product", "dlc")]
    try:
        client = client_type(core.Config(**ask["config"], **_retrying(ask)))
        if ask.get("anonymous"):
            return _anonymous(client, ask)
        if ask.get("async"):
            call = getattr(client, f"{ask['call']}_async")
            return asyncio.run(call(*_arguments(ask, models))).to_map()
        return getattr(client, ask["call"])(*_arguments(ask, models)).to_map()
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        names = ("code", "message", "status_code", "statusCode", "request_id", "retry_after", "data")
        return {"error": type(error).__name__, **{name: getattr(error, name, None) for name in names}}


def _pages(ask):
    answers = [_answer(ask)]
    while answers[-1].get("body", {}).get("NextToken"):
        token = answers[-1]["body"]["NextToken"]
        answers.append(_answer({**ask, "request": {**ask["request"], "NextToken": token}}))
    return answers


for line in sys.stdin:
    answers = [_pages(ask) if ask.get("pages") else _answer(ask) for ask in json.loads(line)]
    print(json.dumps(answers, default=str), flush=True)
