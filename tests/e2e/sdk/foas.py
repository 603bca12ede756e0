"""Runs in the environment of the vendor's own SDK: reads a request (JSON) a line, and prints an answer a line.

A request is {"endpoint", "key", "secret", "sts": "...", "call": "GetInstanceMetric", "set": {"projectName": "p", ...},
"content_type": "application/json", "accept": "XML" | "RAW" | "JSON"}. With ``accept`` the script uses the call that
does not parse errors, otherwise ``do_action_with_exception``, as in the SDK's own examples.
"""

import json
import sys
import warnings
from importlib import import_module

warnings.simplefilter("ignore")

from aliyunsdkcore.acs_exception.exceptions import ServerException  # noqa: E402
from aliyunsdkcore.auth.credentials import StsTokenCredential  # noqa: E402
from aliyunsdkcore.client import AcsClient  # noqa: E402


def _client(ask):
    if ask.get("sts"):
        credential = StsTokenCredential(ask["key"], ask["secret"], ask["sts"])
        return AcsClient(region_id="cn-hangzhou", credential=credential)
    return AcsClient(ask["key"], ask["secret"], "cn-hangzhou")


def _request(ask):
    module = import_module(f"aliyunsdkfoas.request.v20181111.{ask['call']}Request")
    request = getattr(module, f"{ask['call']}Request")()
    request.set_endpoint(ask["endpoint"])
    for name, value in ask["set"].items():
        getattr(request, f"set_{name}")(value)
    if ask.get("content_type"):
        request.add_header("Content-Type", ask["content_type"])
    if ask.get("accept"):
        request.set_accept_format(ask["accept"])
    return request


def _answer(ask):
    client, request = _client(ask), _request(ask)
    try:
        if not ask.get("accept"):
            return {"body": client.do_action_with_exception(request).decode()}
        status, headers, body = client.get_response(request)
        return {"status": status, "headers": {k.lower(): v for k, v in headers.items()}, "body": body.decode()}
    except ServerException as error:
        return {
            "error": type(error).__name__,
            "code": error.get_error_code(),
            "message": error.get_error_msg(),
            "status": error.get_http_status(),
            "request_id": error.get_request_id(),
        }
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what the test asks for
        return {"error": type(error).__name__, "message": str(error)}


for line in sys.stdin:
    print(json.dumps(_answer(json.loads(line))), flush=True)
