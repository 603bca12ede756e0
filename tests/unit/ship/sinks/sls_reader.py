"""Runs in an environment with the vendor's own client: reads the body of a PutLogs, and signs the request again."""

import base64
import json
import sys

import lz4.block
from aliyun.log.auth import AuthV1
from aliyun.log.credentials import StaticCredentialsProvider
from aliyun.log.log_logs_pb2 import LogGroup
from aliyun.log.util import Util

given = json.load(sys.stdin)
body, headers = base64.b64decode(given["body"]), given["headers"]
raw = lz4.block.decompress(body, uncompressed_size=int(headers["x-log-bodyrawsize"]))
group = LogGroup.FromString(raw)

signing = {name: value for name, value in headers.items() if name.startswith("x-log-")}
signing["Content-Type"] = headers["content-type"]


class DatedAuth(AuthV1):  # type: ignore[misc]
    """Signer that uses the date of the request."""

    def _getGMT(self):  # noqa: N802 - the vendor's name
        return headers["date"]


signer = DatedAuth(StaticCredentialsProvider(given["id"], given["secret"]))
resource, _, query = given["path"].partition("?")
signer.sign_request("POST", resource, dict([query.split("=", 1)]), signing, body)

logs = [
    {
        "time": log.Time,
        "nanoseconds": log.Time_ns,
        "contents": {
            content.Key: content.Value if isinstance(content.Value, str) else content.Value.decode()
            for content in log.Contents
        },
    }
    for log in group.Logs
]
json.dump(
    {
        "authorization": signing["Authorization"],
        "md5": Util.cal_md5(body),
        "topic": group.Topic,
        "source": group.Source,
        "logs": logs,
    },
    sys.stdout,
)
