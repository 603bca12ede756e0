"""Tests of the documented commands: the quickstart runs as a newcomer types it, and all other commands exist."""

import re
import shlex
import textwrap
from itertools import pairwise

import click
import pytest
from tests.support.documents import PAGES, PROGRAM, ROOT, blocks, commands, end_server, type_in

from jobmeter.cli.main import cli
from jobmeter.diagnose.registry import list_rules

GENERATED = {"cli.md", "catalog.md", "dialects.md", "http-api.md", "settings.md"}


def command_lines():
    """Yield (page, words after ``jobmeter``) of every command line in a block."""
    for page in PAGES:
        for command in commands(page) if page.name not in GENERATED else ():
            found = re.match(r"(?:[A-Z_]+=\S+ )*jobmeter ([\w-].*)", command)
            if found:
                yield page.name, shlex.split(found[1])


@pytest.fixture
def home(tmp_path):
    """Yield the home folder of a newcomer, and stop the server that the commands start."""
    (tmp_path / "train.py").write_text(PROGRAM)
    yield tmp_path
    end_server(tmp_path)


def typed(page, home):
    """Type the commands of a page in one shell, and return their output.

    The first command that fails ends the shell.
    """
    script = "".join(blocks(ROOT / "docs" / page, "sh"))
    assert script.count("\n") >= 10
    return type_in(script, home)


@pytest.mark.slow
def test_the_quickstart_works_as_it_is_written(home):
    output = typed("how-to/quickstart.md", home)
    assert '"lines":[{' in output.splitlines()[-1], "curl was answered"
    assert (home / "cpu.csv").read_text().startswith("time,replica,device,value\n")
    assert (home / "cpu.parquet").read_bytes().startswith(b"PAR1")


@pytest.mark.slow
def test_the_tutorial_ends_with_a_diagnosed_job(home):
    output = typed("tutorial.md", home)
    first, second = output.split("rank 1: done")
    assert "exit status 1" in first
    assert re.search(r"^critical worker-1 .*FileNotFoundError.*file_missing, root", first, re.MULTILINE)
    # Use two pipes: in a single one, standard output could appear inside a traceback.
    assert re.search(r"^Traceback \(most recent call last\):$", first, re.MULTILINE), "the log"
    assert re.search(r'^  File "', first, re.MULTILINE), "the log"
    assert "no rule found anything" in second
    assert "attempt 1" in second
    assert (home / "memory.csv").read_text().startswith("time,replica,device,value\n")
    assert re.search(r"^http://127\.0\.0\.1:\d+/", second, re.MULTILINE), "a link to the page"


@pytest.mark.slow
def test_the_page_about_numbers_works_as_it_is_written(home):
    output = typed("how-to/log-numbers.md", home)
    assert "app.loss" in output


def test_targets_of_make_on_a_page_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [line for page in PAGES for block in blocks(page, "", "sh") for line in block.splitlines()]
    named = {found[1] for line in lines if (found := re.match(r"make ([a-z-]+)", line))}
    assert "setup" in named
    assert named <= targets


@pytest.mark.parametrize(
    ("page", "words"), list(command_lines()), ids=lambda part: part if isinstance(part, str) else None
)
def test_every_command_on_a_page_exists_with_its_options(page, words):
    command: click.Command = cli
    context = click.Context(cli, info_name="jobmeter")
    words = words[: words.index("--")] if "--" in words else words
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    documented = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    accepted = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert documented <= accepted | {"--help", "--version"}


def test_rules_that_commands_on_a_page_name_exist():
    pairs = [pair for _, words in command_lines() for pair in pairwise(words)]
    named = {name for option, name in pairs if option == "--finding"}
    assert named
    assert named <= {rule.name for rule in list_rules()}


def documented_options(page):
    text = (ROOT / "docs/how-to" / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`--.*?) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(--[a-z-]+)", row)}


@pytest.mark.parametrize("verb", ["agent", "run"])
def test_a_table_of_options_names_all_of_them(verb):
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    # Of a pair such as --logs and --no-logs, the page names the option that changes the default.
    names = [{*option.opts, *option.secondary_opts} for option in options]
    documented = documented_options(f"{verb}.md")
    assert [sorted(pair) for pair in names if not pair & documented] == []
    assert documented <= set().union(*names)


def test_no_page_says_to_install_from_an_index():
    """No package index has the package yet."""
    documented = re.compile(r"pip install '?jobmeter")
    assert [page.name for page in PAGES if documented.search(page.read_text(encoding="utf-8"))] == []


def test_blocks_of_python_are_python():
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(textwrap.dedent(block), page.name, "exec")
