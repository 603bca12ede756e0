"""Runs in the environment of the vendor's own SDK: reads requests and prints answers, as JSON lines.

A request is {"call": "ShowTrainingJobMetrics", "request": {...}, "body": {...}, "url", "way": "endpoints" | "region" |
"environment" | "file" | "iam", "key": [id, secret], "project", "algorithm", "derived": bool, "security_token",
"headers": {...}, "asynchronous": bool}. ``way`` is the way to set the endpoint; ``headers`` are added to the request.
"""

import json
import os
import sys
import traceback
import warnings

warnings.simplefilter("ignore")

import huaweicloudsdkmodelarts.v1 as modelarts  # noqa: E402
from huaweicloudsdkcore.auth.credentials import BasicCredentials  # noqa: E402
from huaweicloudsdkcore.exceptions.exceptions import SdkException, ServiceResponseException  # noqa: E402
from huaweicloudsdkcore.http.http_config import HttpConfig  # noqa: E402
from huaweicloudsdkcore.region.region import Region  # noqa: E402
from huaweicloudsdkcore.signer.algorithm import SigningAlgorithm  # noqa: E402
from huaweicloudsdkcore.utils import http_utils  # noqa: E402
from huaweicloudsdkmodelarts.v1.region.modelarts_region import ModelArtsRegion  # noqa: E402

BODIES = {
    "ListTrainingJobs": modelarts.JobSearches,
    "StopTrainingJob": modelarts.JobActionType,
    "NotifyTrainingJobInformation": modelarts.ReportEventBody,
    "ChangeTrainingJobDescription": modelarts.JobUpdateRequestBody,
}
REGION = "HUAWEICLOUD_SDK_REGION_MODELARTS_CN_NORTH_4"
FILE = "HUAWEICLOUD_SDK_REGIONS_FILE"


def _credentials(ask):
    credentials = BasicCredentials(*ask["key"], ask.get("project"))
    if ask.get("way") == "iam":
        credentials = credentials.with_iam_endpoint(ask["url"])
    if ask.get("security_token"):
        credentials = credentials.with_security_token(ask["security_token"])
    if ask.get("derived"):
        credentials = credentials.with_derived_predicate(credentials.get_default_derived_predicate())
    return credentials


def _client(ask):
    config = HttpConfig.get_default_config()
    if ask.get("algorithm"):
        config.signing_algorithm = SigningAlgorithm[ask["algorithm"]]
    builder = modelarts.ModelArtsClient.new_builder().with_http_config(config).with_credentials(_credentials(ask))
    if ask.get("derived"):
        builder = builder._with_derived_auth_service_name("modelarts")
    way = ask.get("way", "endpoints")
    if way == "endpoints":
        return builder.with_endpoints([ask["url"]]).build()
    if way in {"environment", "file"}:
        # For an unchanged program that names a region of the vendor.
        name, value = (REGION, ask["url"]) if way == "environment" else (FILE, ask["file"])
        os.environ[name] = value
        try:
            return builder.with_region(ModelArtsRegion.value_of("cn-north-4")).build()
        finally:
            del os.environ[name]
    return builder.with_region(Region("any-1", ask["url"])).build()


def _snake(name):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _call(ask):
    name, client = ask["call"], _client(ask)
    if name == "ShowObsUrlOfTrainingJobLogs":  # documented, but the SDK has no method
        return client.do_http_request(
            method="GET",
            resource_path="/v2/{project_id}/training-jobs/{training_job_id}/tasks/{task_id}/logs/url",
            path_params=ask["request"],
            query_params=[("Content-Type", "text/plain")],
            header_params={"Content-Type": "application/json"},
            response_type="ShowTrainingJobLogsPreviewResponse",
        )
    body = {"body": BODIES[name](**ask["body"])} if "body" in ask else {}
    request = getattr(modelarts, f"{name}Request")(**ask.get("request", {}), **body)
    suffix = "_async_invoker" if ask.get("asynchronous") else "_invoker"
    kind = client
    if ask.get("asynchronous"):
        kind = modelarts.ModelArtsAsyncClient.new_builder().with_credentials(_credentials(ask))
        kind = kind.with_endpoints([ask["url"]]).build()
    invoker = getattr(kind, _snake(name) + suffix)(request)
    for header, value in ask.get("headers", {}).items():
        invoker = invoker.add_header(header, value)
    answer = invoker.invoke()
    return answer.result() if ask.get("asynchronous") else answer


def _answer(ask):
    try:
        answer = _call(ask)
    except ServiceResponseException as error:
        return {
            "error": type(error).__name__,
            "status": error.status_code,
            "code": error.error_code,
            "message": error.error_msg,
            "request_id": error.request_id,
        }
    except (SdkException, ValueError, TypeError, AttributeError) as error:
        return {"error": type(error).__name__, "message": "".join(traceback.format_exception(error))}
    return {
        "status": answer.status_code,
        "body": answer.to_json_object() if answer.raw_content else None,
        "model": http_utils.sanitize_for_serialization(answer),
    }


for line in sys.stdin:
    # The SDK parses numbers of free-form objects as Decimal.
    print(json.dumps(_answer(json.loads(line)), default=float), flush=True)
