"""Tests of settings from the environment and from flags."""

import pytest

from jobmeter import settings
from jobmeter.errors import ConfigurationError
from jobmeter.settings import load


def test_texts_and_numbers_are_read_from_the_environment_unless_a_flag_is_given():
    environment = {
        "JOBMETER_HOST": "::1",
        "JOBMETER_PORT": "8401",
        "JOBMETER_STORE": "",
        "JOBMETER_RULES": "r.toml",
    }
    settings = load(environment | {"JOBMETER_LIMIT_QUERY_SECONDS": "7"}, port=8402)
    assert (settings.host, settings.port, settings.store, settings.rules) == ("::1", 8402, "", "r.toml")
    assert settings.limits.query_seconds == 7


@pytest.mark.parametrize("text", ["²", "-1", "1.5", "65536", "x"])
def test_what_is_no_number_within_the_bounds_is_refused_by_its_name(text):
    with pytest.raises(ConfigurationError, match=r"JOBMETER_PORT must be a whole number from 0 to 65535"):
        load({"JOBMETER_PORT": text})


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 0), (3, 3), (8, 8), (64, 8)])
def test_a_server_has_a_worker_for_each_of_several_cores(monkeypatch, cores, workers):
    monkeypatch.setattr(settings, "count_cores", lambda: cores)
    assert load({}).worker_processes == workers
    assert load({"JOBMETER_PROCESSES": "1"}).worker_processes == 0
    assert load({"JOBMETER_PROCESSES": "2"}).worker_processes == 2
