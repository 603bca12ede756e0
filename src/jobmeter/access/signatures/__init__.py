"""Credential schemes: pure functions over a raw call. ``SCHEMES`` lists them all."""

from jobmeter.access.call import Claim, ClaimKind, Scheme
from jobmeter.access.signatures.acs3 import ACS3
from jobmeter.access.signatures.roa import ROA
from jobmeter.access.signatures.rpc import RPC
from jobmeter.access.signatures.sdk_hmac import SDK_HMAC
from jobmeter.access.signatures.session import LINK, SESSION
from jobmeter.access.signatures.tokens import ACS_BEARER, API_KEY, BASIC, BEARER, SHARE, TRACE, X_AUTH_TOKEN

TOKENS: tuple[Scheme, ...] = (BEARER, API_KEY, X_AUTH_TOKEN)
"""Schemes for a key's token, by its place in the call."""

NATIVE: tuple[Scheme, ...] = (*TOKENS, SESSION)
"""Schemes of our own API: a key's token, else the page's session."""

ALIBABA: tuple[Scheme, ...] = (BEARER, ACS3, ROA, RPC, ACS_BEARER, API_KEY, X_AUTH_TOKEN)
"""Schemes of Alibaba's SDKs and of a key's token. Tokens come first because they need no signature parsing."""

HUAWEI: tuple[Scheme, ...] = (X_AUTH_TOKEN, SDK_HMAC, BEARER, API_KEY)
"""Schemes of Huawei Cloud's SDKs and of a key's token. A token is enough, even beside a signature."""

SCHEMES: tuple[Scheme, ...] = (*ALIBABA, SDK_HMAC, BASIC, TRACE, SHARE, SESSION, LINK)
"""Every scheme."""

__all__ = [
    "ACS3",
    "ACS_BEARER",
    "ALIBABA",
    "API_KEY",
    "BASIC",
    "BEARER",
    "HUAWEI",
    "LINK",
    "NATIVE",
    "ROA",
    "RPC",
    "SCHEMES",
    "SDK_HMAC",
    "SESSION",
    "SHARE",
    "TOKENS",
    "TRACE",
    "X_AUTH_TOKEN",
    "Claim",
    "ClaimKind",
    "Scheme",
]
