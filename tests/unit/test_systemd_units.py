"""Tests of the delivered units: systemd accepts them, and they grant only the rights that the program uses."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.support.needs import needing

from jobmeter.cli.main import cli
from jobmeter.collect.doctor.rights import CAPABILITIES

UNITS = Path(__file__).parents[2] / "deploy/systemd"
SERVICES = sorted(UNITS.glob("*.service"))
EXPOSED = {"jobmeter-agent.service": 35, "jobmeter-server.service": 20}
"""Highest allowed score of `systemd-analyze security` in tenths; 100 is a service without any restriction."""


def settings(path):
    """Return (name, value) of each line of a unit."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        (name, value) for name, equals, value in (line.partition("=") for line in lines if line[:1].isupper()) if equals
    ]


@pytest.fixture
def installed(tmp_path):
    """Return the units with a program that exists on this machine."""
    for unit in SERVICES:
        text = unit.read_text(encoding="utf-8").replace("/opt/jobmeter/bin/jobmeter", f"{sys.executable} -m jobmeter")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    shutil.copytree(UNITS, tmp_path / "jobmeter-agent.service.d", ignore=shutil.ignore_patterns("*.service"))
    return tmp_path


@needing("systemd-analyze")
@pytest.mark.parametrize("name", EXPOSED)
def test_systemd_takes_each_unit_without_a_word(installed, name):
    done = subprocess.run(
        ["systemd-analyze", "verify", installed / name], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needing("systemd-analyze")
@pytest.mark.parametrize("name", EXPOSED)
def test_systemd_finds_little_that_a_unit_leaves_open(installed, name):
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSED[name]}", installed / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_agent_has_the_capabilities_that_it_makes_use_of_and_no_other():
    named = dict(settings(UNITS / "jobmeter-agent.service"))
    wanted = {name for name, _ in CAPABILITIES.values()}
    assert set(named["AmbientCapabilities"].split()) == wanted
    assert set(named["CapabilityBoundingSet"].split()) == wanted
    # The agent may raise its priority, which needs a system call that RestrictRealtime blocks.
    assert "RestrictRealtime" not in named
    assert settings(UNITS / "agent-unprivileged.conf") == [
        ("AmbientCapabilities", ""),
        ("CapabilityBoundingSet", ""),
        ("RestrictRealtime", "yes"),
    ]
    server = dict(settings(UNITS / "jobmeter-server.service"))
    assert (server["AmbientCapabilities"], server["CapabilityBoundingSet"]) == ("", "")


@pytest.mark.parametrize("place", ["deploy/systemd/jobmeter-agent.service", "docs/how-to/agent.md"])
def test_each_capability_is_named_with_its_reason(place):
    lines = (UNITS.parents[1] / place).read_text(encoding="utf-8").splitlines()
    for name, reason in CAPABILITIES.values():
        words = set(re.findall(r"[a-z]{4,}", reason)) - {"other", "users"}
        told = [line for line in lines if name in line and not line.startswith(("Ambient", "Capability"))]
        assert any(words & set(re.findall(r"[a-z]{4,}", line)) for line in told), (name, told)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_what_a_unit_starts_exists_with_its_options(unit):
    words = shlex.split(dict(settings(unit))["ExecStart"])
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words[2:] if word.startswith("--")} <= options


def test_the_pages_name_every_unit():
    pages = "".join(
        (UNITS.parents[1] / f"docs/how-to/{name}.md").read_text(encoding="utf-8") for name in ("agent", "serve")
    )
    assert set(re.findall(r"deploy/systemd/([\w.-]+)", pages)) == {path.name for path in UNITS.iterdir()}
