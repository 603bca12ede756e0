"""Signs a request as an Alibaba Cloud SDK does (ACS3-HMAC-SHA256), with the standard library alone.

https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from jobmeter.client.transport import Transport
from jobmeter.model.time import Clock, format_iso

_ALGORITHM = "ACS3-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Access key pair of a Jobmeter key, for signatures."""

    id: str
    secret: str


def get(
    server: str, path: str, parameters: Mapping[str, str], operation: tuple[str, str], key: KeyPair, clock: Clock
) -> dict[str, object]:
    """Send a signed GET and return its JSON body. ``operation`` is the API's version and the action's name.

    Raises the error that the server answered, as ``Transport.request`` does.
    """
    headers = sign("GET", urlsplit(server).netloc, path, parameters, operation, key, clock)
    transport = Transport(server)
    try:
        answer = transport.request("GET", f"{path}?{urlencode(parameters)}", headers=headers)
    finally:
        transport.close()
    return msgspec.json.decode(answer.body, type=dict[str, object])


def sign(
    method: str,
    host: str,
    path: str,
    parameters: Mapping[str, str],
    operation: tuple[str, str],
    key: KeyPair,
    clock: Clock,
) -> dict[str, str]:
    """Return the headers of a request without a body, including its signature. ``path`` is percent-encoded already."""
    version, action = operation
    empty = hashlib.sha256(b"").hexdigest()
    headers = {
        "host": host,
        "x-acs-action": action,
        "x-acs-content-sha256": empty,
        "x-acs-date": format_iso(clock.now_ms() // 1000 * 1000),
        "x-acs-signature-nonce": secrets.token_hex(16),
        "x-acs-version": version,
    }
    names = ";".join(sorted(headers))
    query = "&".join(f"{_encode(name)}={_encode(value)}" for name, value in sorted(parameters.items()))
    canonical = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, path, query, canonical, names, empty))
    text = f"{_ALGORITHM}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(key.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = f"{_ALGORITHM} Credential={key.id},SignedHeaders={names},Signature={signature}"
    return headers


def _encode(text: str) -> str:
    return quote(text, safe="-_.~")
