import pytest

from jobmeter.cli.run import describe_missing_interpreter, suggest_interpreter


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (b"#!/none/python9 -u\n", "its interpreter /none/python9 does not exist"),
        (b"#! /none/sh\r\n", "its interpreter /none/sh does not exist (its first line ends with a carriage return)"),
        (b"#!/bin/sh\n", ""),
        (b"#!\n", ""),
        (b"\x7fELF", ""),
        (b"", ""),
    ],
)
def test_what_the_first_line_names(tmp_path, first, message):
    program = tmp_path / "train"
    program.write_bytes(first)
    assert describe_missing_interpreter(str(program)) == message


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("my train.py", "a script is not a command: use `jobmeter run -- python 'my train.py' --lr '1 0'`"),
        ("a.sh", "a script is not a command: use `jobmeter run -- bash a.sh --lr '1 0'`"),
        ("a.bin", ""),
    ],
)
def test_a_script_without_its_interpreter_gets_the_command(tmp_path, monkeypatch, file, message):
    monkeypatch.chdir(tmp_path)
    command = (file, "--lr", "1 0")
    assert suggest_interpreter(command) == ""
    (tmp_path / file).touch()
    assert suggest_interpreter(command) == message


def test_a_program_that_is_not_there_is_another_matter():
    assert describe_missing_interpreter("/none/train") == ""
