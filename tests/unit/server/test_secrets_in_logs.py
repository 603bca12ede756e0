"""Tests that no credential sent by a client, in any place, is in a line that the server logs."""

import base64
import logging

import pytest

SECRET = "b7d1c5e9f3a24680b7d1c5e9f3a24680"
ACS3 = (
    "ACS3-HMAC-SHA256 Credential={},SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;"
    "x-acs-signature-nonce;x-acs-version,Signature=00"
)
ACS_HEADERS = {
    "Host": "h",
    "x-acs-action": "GetJobMetrics",
    "x-acs-version": "2020-12-03",
    "x-acs-date": "2026-01-01T00:00:00Z",
    "x-acs-signature-nonce": "n",
    "x-acs-content-sha256": "0",
}
DLC = "/api/v1/jobs/j/metrics?MetricType=GpuCoreUsage"
RPC = (
    "/?Action=DescribeMetricList&Version=2019-01-01&Timestamp=2026-01-01T00:00:00Z&SignatureNonce=n&Signature=x"
    f"&AccessKeyId={SECRET}"
)
CALLS = {
    "acs3": (DLC, {**ACS_HEADERS, "Authorization": ACS3.format(SECRET)}),
    "roa": (DLC, {"Authorization": f"acs {SECRET}:{SECRET}", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}),
    "rpc": (RPC, {}),
    "acs bearer": (f"{DLC}&BearerToken={SECRET}&SignatureType=BEARERTOKEN", {}),
    "share": (f"{DLC}&Token={SECRET}", {}),
    "sdk-hmac": (
        "/v2/p/training-jobs/j/metrics/worker-0",
        {
            "Authorization": f"SDK-HMAC-SHA256 Access={SECRET}, SignedHeaders=x-sdk-date, Signature=00",
            "X-Sdk-Date": "20260101T000000Z",
        },
    ),
    "bearer": ("/api/jobmeter/v1/jobs", {"Authorization": f"Bearer {SECRET}"}),
    "api key": ("/api/jobmeter/v1/jobs", {"Authorization": f"Api-Key {SECRET}"}),
    "x-auth-token": ("/api/jobmeter/v1/jobs", {"X-Auth-Token": SECRET}),
    "basic": ("/api/query", {"Authorization": "Basic " + base64.b64encode(f"{SECRET}:{SECRET}".encode()).decode()}),
    "a scheme that nobody has": ("/api/query", {"Authorization": f"Digest {SECRET}"}),
    "a query of ours": (f"/api/jobmeter/v1/jobs?api_key={SECRET}&Token={SECRET}", {}),
    "a query of nobody": (f"/nowhere?api_key={SECRET}", {}),
}


@pytest.mark.parametrize(("target", "headers"), CALLS.values(), ids=CALLS)
def test_no_line_holds_a_credential(server, caplog, capfd, target, headers):
    caplog.set_level(logging.DEBUG)
    reply = server.raw("GET", target, headers=headers)
    assert reply.status in {400, 401, 403, 404}, reply.body
    audit = server.application.services.settings.data / "audit.log"
    written = audit.read_text() if audit.exists() else ""
    assert written or "nowhere" in target, "a refusal leaves a line"
    out, err = capfd.readouterr()
    assert SECRET not in written + caplog.text + out + err
