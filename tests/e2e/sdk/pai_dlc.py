"""Runs in the environment of the vendor's own SDK: asks what stdin says (a JSON list), prints what came (another).

One ask: {"config": {...}, "call": "metrics" | "token", "job", "request": {...}, "async": bool, "anonymous": bool,
"date": "...", "nonce": "..."}. ``date`` and ``nonce`` replace what the SDK would send.
"""

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from alibabacloud_pai_dlc20201203 import models  # noqa: E402
from alibabacloud_pai_dlc20201203.client import Client  # noqa: E402
from alibabacloud_tea_openapi import utils_models  # noqa: E402
from alibabacloud_tea_openapi.utils import Utils  # noqa: E402
from darabonba.runtime import RuntimeOptions  # noqa: E402

_NONCE, _TIMESTAMP, _DATE = Utils.get_nonce, Utils.get_timestamp, Utils.get_date_utcstring


def _fix(ask):
    Utils.get_nonce = staticmethod(lambda: ask["nonce"]) if ask.get("nonce") else staticmethod(_NONCE)
    Utils.get_timestamp = staticmethod(lambda: ask["date"]) if ask.get("date") else staticmethod(_TIMESTAMP)
    Utils.get_date_utcstring = staticmethod(lambda: ask["date"]) if ask.get("date") else staticmethod(_DATE)


def _anonymous(client, ask):
    params = utils_models.Params(
        action="GetJobMetrics",
        version="2020-12-03",
        protocol="HTTP",
        pathname=f"/api/v1/jobs/{ask['job']}/metrics",
        method="GET",
        auth_type="Anonymous",
        style="ROA",
        req_body_type="json",
        body_type="json",
    )
    return client.call_api(params, utils_models.OpenApiRequest(query=ask["request"]), RuntimeOptions())


def _sync(client, ask):
    if ask.get("anonymous"):
        return _anonymous(client, ask)
    if ask["call"] == "token":
        return client.get_token(models.GetTokenRequest().from_map(ask["request"])).to_map()
    return client.get_job_metrics(ask["job"], models.GetJobMetricsRequest().from_map(ask["request"])).to_map()


async def _async(client, ask):
    if ask["call"] == "token":
        answer = await client.get_token_async(models.GetTokenRequest().from_map(ask["request"]))
    else:
        answer = await client.get_job_metrics_async(ask["job"], models.GetJobMetricsRequest().from_map(ask["request"]))
    return answer.to_map()


def _answer(ask):
    _fix(ask)
    try:
        client = Client(utils_models.Config(**ask["config"]))
        return asyncio.run(_async(client, ask)) if ask.get("async") else _sync(client, ask)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        names = ("code", "message", "status_code", "statusCode", "request_id", "retry_after", "data")
        return {"error": type(error).__name__, **{name: getattr(error, name, None) for name in names}}


json.dump([_answer(ask) for ask in json.load(sys.stdin)], sys.stdout, default=str)
