"""Tests of the command itself: exit status, wrong usage, interrupts."""

import re
import shlex

import click
import pytest

from jobmeter.cli import main as main_module
from jobmeter.cli.registry import VERBS
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


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("jbos", "did you mean jobs?"),
        ("list", "did you mean jobs, events, nodes?"),
        ("start", "did you mean"),
        ("frobnicate", "choose from demo, run, agent, scheduler, "),
    ],
)
def test_an_unknown_verb_gets_suggestions(capsys: pytest.CaptureFixture[str], word: str, suggestion: str) -> None:
    assert leave(word) == 2
    assert f"No such command '{word}'; {suggestion}" in capsys.readouterr().err


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


def parsed(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> None:
    """Let click parse the words of a command and its subcommands. Raises UsageError for wrong words."""
    context = command.make_context(name, words, parent=parent)
    if isinstance(command, click.Group):
        begin = next(at for at, word in enumerate(words) if word in command.list_commands(context))
        below = command.get_command(context, words[begin])
        assert below is not None
        parsed(below, words[begin], words[begin + 1 :], context)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_two_examples_that_parse(verb, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _parameter, _context: value)
    command = main_module.cli.get_command(click.Context(main_module.cli), verb)
    assert command is not None
    lines = re.findall(r"^  (jobmeter .*)$", command.epilog or "", re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)[1:]
        assert words[0] == verb
        parsed(main_module.cli, "jobmeter", words)


def test_an_example_with_an_unknown_option_would_be_found():
    with pytest.raises(click.UsageError):
        parsed(main_module.cli, "jobmeter", ["jobs", "--colour", "red"])


def test_the_short_text_of_a_verb_is_written_once():
    for verb, text in VERBS.items():
        command = main_module.cli.get_command(click.Context(main_module.cli), verb)
        assert command is not None
        assert command.short_help == text
