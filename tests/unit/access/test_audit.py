"""Tests of the audit line of a refusal."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.access.conftest import FixedClock

from jobmeter.access.audit import MAX_FIELD, Audit
from jobmeter.access.principal import Principal, Role
from jobmeter.errors import ForbiddenError, ThrottledError, UnauthenticatedError

WHO = Principal(id="key-1", name="ci", role=Role.READER, project="p")


def test_a_refusal_is_one_line(clock: FixedClock, tmp_path: Path) -> None:
    audit = Audit(clock, tmp_path / "audit.log")
    audit.write_refusal(
        UnauthenticatedError("x", "stale"), action="metrics:read", claimed="AK1", client="10.0.0.1", request_id="R"
    )
    audit.write_refusal(ForbiddenError("x"), action="jobs:delete", principal=WHO, project="q")
    audit.write_refusal(ThrottledError("x", 5), action="GetJobMetrics", principal=WHO)
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert lines[0] == {
        "time": "2026-11-20T15:33:56Z", "event": "refused", "reason": "stale", "action": "metrics:read",
        "principal": None, "claimed": "AK1", "project": None, "client": "10.0.0.1", "request_id": "R",
    }  # fmt: skip
    assert [(line["reason"], line["principal"], line["project"]) for line in lines[1:]] == [
        ("forbidden", "key-1", "q"),
        ("throttled", "key-1", None),
    ]
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


@given(text=st.text(max_size=400))
def test_no_text_forges_a_line_or_steers_a_terminal(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("audit") / "audit.log"
    Audit(FixedClock(), file).write_refusal(
        ForbiddenError(text), action=text, claimed=text, project=text, client=text, request_id=text
    )
    written = file.read_bytes()
    assert written.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in written[:-1])
    line = json.loads(written)
    assert len(line["claimed"] or "") <= MAX_FIELD
    assert (line["action"], line["event"]) == (line["client"], "refused")


def test_a_flood_is_counted(clock: FixedClock, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    audit = Audit(clock, file)
    for _ in range(250):
        audit.write_refusal(ForbiddenError("x"), action="a")
    assert len(file.read_text().splitlines()) == 100
    clock.ms += 1000
    audit.write_refusal(ForbiddenError("x"), action="a")
    assert json.loads(file.read_text().splitlines()[-1])["suppressed"] == "150"


def test_a_large_file_is_put_aside(clock: FixedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobmeter.access.audit.MAX_FILE_BYTES", 1000)
    audit = Audit(clock, tmp_path / "audit.log")
    for _ in range(30):
        audit.write_refusal(ForbiddenError("x"), action="a")
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert set(sizes) <= {"audit.log", "audit.log.1"}
    assert all(size < 1500 for size in sizes.values())


def test_without_a_file_it_goes_to_standard_error(clock: FixedClock, capsys: pytest.CaptureFixture[str]) -> None:
    Audit(clock).write_refusal(ForbiddenError("x"), action="a")
    assert json.loads(capsys.readouterr().err)["reason"] == "forbidden"


def test_a_file_that_cannot_be_written_fails_nothing(
    clock: FixedClock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Audit(clock, tmp_path / "none" / "audit.log").write_refusal(ForbiddenError("x"), action="a")
    assert json.loads(capsys.readouterr().err)["reason"] == "forbidden"
