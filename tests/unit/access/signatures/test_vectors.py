"""Tests of requests recorded from the vendors' own clients, by version: valid, and refused after a change."""

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobmeter.access.call import Call
from jobmeter.access.signatures import SCHEMES, ClaimKind
from jobmeter.errors import UnauthenticatedError

FILES = sorted(Path(__file__).with_name("vectors").glob("*.json"))
BY_NAME = {scheme.name: scheme for scheme in SCHEMES}


def recorded() -> Iterator[Any]:
    for file in FILES:
        content = json.loads(file.read_text())
        for entry in content["calls"]:
            call = Call(
                method=entry["method"],
                raw_path=entry["raw_path"],
                query=entry["query"],
                headers=tuple((name, value) for name, value in entry["headers"]),
                body=b64decode(entry["body"]),
            )
            yield pytest.param(entry["scheme"], call, content, id=f"{entry['client'].split(',')[0]}: {entry['name']}")


SIGNED = [param for param in recorded() if param.values[0] != "acs-bearer"]


@pytest.mark.parametrize(("scheme", "call", "content"), SIGNED)
def test_a_recorded_signature_holds(scheme: str, call: Call, content: dict[str, str]) -> None:
    claim = BY_NAME[scheme].claim(call)
    assert claim is not None
    assert (claim.kind, claim.value) == (ClaimKind.ACCESS_KEY, content["access_key_id"])
    assert claim.date_ms is not None
    assert BY_NAME[scheme].verify(call, content["access_key_secret"])
    assert not BY_NAME[scheme].verify(call, content["access_key_secret"] + "x")
    assert [other.name for other in SCHEMES if other.name not in {scheme, "share"} and other.claim(call)] == []


@pytest.mark.parametrize(("scheme", "call", "content"), SIGNED)
def test_a_changed_request_does_not(scheme: str, call: Call, content: dict[str, str]) -> None:
    changed = [
        replace(call, method="PUT"),
        replace(call, raw_path=call.raw_path + "x"),
        replace(call, raw_path=call.raw_path.replace("/jobs/", "/jobs//", 1) if "/jobs/" in call.raw_path else "/"),
        replace(call, query=f"{call.query}&More=1" if call.query else "More=1"),
        replace(call, headers=with_header(call, "x-acs-action", "DeleteJob")),
        replace(call, headers=with_header(call, "x-acs-version", "1999-01-01")),
        replace(call, headers=(*call.headers, ("x-acs-extra", "1"))),
    ]
    if scheme == "acs3" or call.get_header("content-md5"):
        changed.append(replace(call, body=call.body + b" "))
    for one in changed:
        assert one != call
        assert not holds(scheme, one, content["access_key_secret"]), one


def with_header(call: Call, name: str, value: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, value if key == name else old) for key, old in call.headers)


def holds(scheme: str, call: Call, secret: str) -> bool:
    try:
        return BY_NAME[scheme].claim(call) is not None and BY_NAME[scheme].verify(call, secret)
    except UnauthenticatedError:
        return False


def test_recorded_bearer_tokens_are_found() -> None:
    calls = [param.values[1] for param in recorded() if param.values[0] == "acs-bearer"]
    claims = [BY_NAME["acs-bearer"].claim(call) for call in calls]
    assert [claim.value for claim in claims if claim] == ["jm_bearer-token"] * 2
