"""Tests of the file of sinks."""

import logging

import pytest

from jobmeter.errors import ConfigurationError, NotFoundError
from jobmeter.ship.settings import load
from jobmeter.ship.sink import Origin

TEXT = """\
allow = ["*.log.aliyuncs.com", "127.0.0.1"]

[[sink]]
project = "p"
logstore = "l"
kind = "sls"
url = "https://cn-shanghai.log.aliyuncs.com"
access_key_id = "id"
access_key_secret_env = "SLS_SECRET"

[[sink]]
project = "p"
logstore = "*"
kind = "loki"
url = "http://127.0.0.1:3100"
token_env = "LOKI_TOKEN"
"""
SECRETS = {"SLS_SECRET": "s3cr3t", "LOKI_TOKEN": "t0k3n"}


def _load(folder, text, environment=SECRETS):
    (folder / "sinks.toml").write_text(text)
    return load(str(folder / "sinks.toml"), environment)


def test_sinks_are_found_by_project_and_logstore(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    sinks = _load(tmp_path, TEXT)
    assert sinks.find("p", "l").kind == "sls"
    assert sinks.find("p", "l").access_key_secret == "s3cr3t"
    assert sinks.find("p", "other").kind == "loki"
    with pytest.raises(NotFoundError):
        sinks.find("q", "l")
    sinks.open(Origin("ab", "p", "other")).close()
    assert "s3cr3t" not in caplog.text + repr(sinks.find("p", "l")) + repr(sinks.find("p", "other"))


def test_no_file_has_no_sinks():
    with pytest.raises(NotFoundError):
        load("").find("p", "l")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("allow = 3", "allow"),
        ("nonsense", "TOML"),
        ('[[sink]]\nproject = "p"\nlogstore = "l"\nkind = "loki"\nurl = "http://h"\nsecret_word = "x"', "secret_word"),
        (TEXT + TEXT.split("\n\n")[1], "two sinks"),
        (TEXT.replace("SLS_SECRET", "NOT_SET"), "NOT_SET"),
        (TEXT.replace('project = "p"', 'project = ""'), "project"),
        ("\xff", "sinks"),
    ],
)
def test_files_that_cannot_be(tmp_path, text, part):
    with pytest.raises(ConfigurationError, match=part):
        _load(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
