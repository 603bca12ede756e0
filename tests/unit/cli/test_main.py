"""The command itself: exit status, wrong usage, interrupts."""

import click
import pytest

from jobmeter.cli import main as main_module
from jobmeter.errors import UnavailableError


def leave(*arguments: str) -> int:
    with pytest.raises(SystemExit) as raised:
        main_module.main(arguments)
    code = raised.value.code
    return code if isinstance(code, int) else 0


def raising(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def test_help_and_version_succeed(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("--help") == 0
    assert leave("--version") == 0
    assert "jobmeter" in capsys.readouterr().out


def test_wrong_usage_is_2_and_says_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("jbos") == 2
    assert "jbos" in capsys.readouterr().err
    assert leave("catalog", "--colour") == 2


def test_a_failure_is_1_and_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing = raising(UnavailableError("the disk is full"))
    monkeypatch.setattr(main_module.cli, "get_command", lambda _context, _name: failing)
    assert leave("jobs") == 1
    assert capsys.readouterr().err == "jobmeter: the disk is full\n"


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = raising(KeyboardInterrupt())
    monkeypatch.setattr(main_module.cli, "get_command", lambda _context, _name: interrupted)
    assert leave("jobs") == 130


def test_a_verb_that_is_none_is_answered_with_those_that_are_near(capsys):
    assert leave("metric", "j") == 2
    assert "No such command 'metric'; did you mean metrics?" in capsys.readouterr().err
