"""Tests of the token that authenticates to slurmrestd."""

import base64
import json

import pytest

from jobmeter.collect.scheduler.slurm.token import read_token
from jobmeter.errors import UnavailableError

RECORDED = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE3OTUyMjQ5NDQsImlhdCI6MTc5NTIyNDg4NCwic3VuIjoicm9vdCJ9.c2lnbmF0dXJl"
)
"""Token made by ``scontrol token`` of Slurm 22.05, with another signature."""


def made(claims):
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.sig"


def test_a_file_is_read_at_each_question_and_holds_what_scontrol_prints(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"SLURM_JWT={RECORDED}\n")
    token = read_token({"SLURM_JWT": "other"}, str(file))
    assert token is not None
    assert token.make_headers() == {"X-SLURM-USER-TOKEN": RECORDED, "X-SLURM-USER-NAME": "root"}
    file.write_text(made({"sun": "ann"}))
    again = read_token({"SLURM_USER_NAME": "bob"}, str(file))
    assert again is not None
    assert (again.text, again.user) == (made({"sun": "ann"}), "bob")


def test_without_a_file_it_is_the_environments():
    token = read_token({"SLURM_JWT": "opaque", "USER": "ann"}, None)
    assert token is not None
    assert (token.text, token.user, token.source) == ("opaque", "ann", "SLURM_JWT")
    assert read_token({"USER": "ann"}, None) is None


@pytest.mark.parametrize("content", [None, "", "  \n", "two words", "a\x00b", "\u00fc.x.y"])
def test_a_file_without_a_token_is_no_answer(tmp_path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UnavailableError, match="token"):
        read_token({}, str(file))


def test_one_that_expired_says_when():
    token = read_token({"SLURM_JWT": RECORDED}, None)
    assert token is not None
    assert token.find_problem(1795224943999) == ""
    assert token.find_problem(1795224944000) == (
        "the token of SLURM_JWT expired at 2026-11-21T01:35:44Z; create a new one (`scontrol token`)"
    )


@pytest.mark.parametrize("text", ["opaque", "a.b.c", made([1]), made({"exp": "soon"}), made({})])
def test_a_token_without_an_end_has_no_problem(text):
    token = read_token({"SLURM_JWT": text}, None)
    assert token is not None
    assert token.find_problem(2_000_000_000_000) == ""
