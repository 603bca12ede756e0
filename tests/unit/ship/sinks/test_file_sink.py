"""Tests of files of shipped lines: complete, in order, compressed when full, despite a crash at any moment."""

import json
from pathlib import Path

import pytest
import zstandard
from tests.unit.ship.sinks.test_sinks import shipped

from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import Origin, SinkError, SinkSettings
from jobmeter.ship.sinks.file import FileSink

NAME = "access_log-ab-00000000000000000007-000.jsonl"


def _sink(folder, rotate=10_000, shipper="ab"):
    settings = SinkSettings(project="p", logstore="l", kind="file", directory=str(folder / "out"), rotate_bytes=rotate)
    return FileSink(settings, DestinationPolicy.from_settings(()), Origin(shipper, "p", "access_log"))


def _texts(folder):
    found = []
    for path in sorted((folder / "out").iterdir(), key=lambda path: path.name.split(".")[0]):
        content = path.read_bytes()
        if path.suffix == ".zst":
            content = zstandard.ZstdDecompressor().decompress(content, max_output_size=10_000_000)
        found += [json.loads(line)["text"] for line in content.splitlines()]
    return found


def _names(folder):
    return sorted(path.name for path in (folder / "out").iterdir())


def test_lines_are_appended_and_a_full_file_is_compressed(tmp_path):
    sink = _sink(tmp_path)
    sink.send(shipped(["a", "b"]))
    assert _names(tmp_path) == [NAME]
    assert (tmp_path / "out" / NAME).stat().st_mode & 0o777 == 0o600
    sink.send(shipped(["x" * 10_000]))
    assert _names(tmp_path) == [f"{NAME}.zst"]
    sink.send(shipped(["c"]))
    sink.close()
    # A file that begins with the same line, as after a crash, is a different file.
    assert _names(tmp_path) == [f"{NAME}.zst", NAME.replace("-000.", "-001.")]
    assert _texts(tmp_path) == ["a", "b", "x" * 10_000, "c"]


def test_a_partial_frame_is_truncated(tmp_path):
    sink = _sink(tmp_path)
    sink.send(shipped(["a"]))
    sink.close()
    with (tmp_path / "out" / NAME).open("ab") as file:
        file.write(b'{"time_ns": 1, "text": "' + b"y" * 200_000)
    sink = _sink(tmp_path, rotate=10**9)
    sink.send(shipped(["b"]))
    sink.close()
    assert _texts(tmp_path) == ["a", "b"]


def test_a_file_of_half_a_line_is_empty(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / NAME).write_bytes(b'{"half')
    sink = _sink(tmp_path)
    sink.send(shipped(["a"]))
    sink.close()
    assert _texts(tmp_path) == ["a"]


@pytest.mark.parametrize("moment", ["rename", "unlink"])
def test_a_crash_while_a_file_is_compressed_loses_and_repeats_nothing(tmp_path, monkeypatch, moment):
    class Crash(BaseException):
        pass

    def crash(*_, **__):
        raise Crash

    sink = _sink(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, moment, crash)
        with pytest.raises(Crash):
            sink.send(shipped(["x" * 10_000]))
    sink = _sink(tmp_path, rotate=10**9)
    sink.send(shipped(["next"]))
    sink.close()
    assert [name for name in _names(tmp_path) if name.endswith(".part")] in ([], [f"{NAME}.zst.part"])
    for part in (tmp_path / "out").glob("*.part"):
        part.unlink()
    assert _texts(tmp_path) == ["x" * 10_000, "next"]


def test_two_shippers_to_one_logstore_have_files_of_their_own(tmp_path):
    first, second = _sink(tmp_path), _sink(tmp_path, shipper="cd")
    first.send(shipped(["a"]))
    second.send(shipped(["b"]))
    first.close()
    second.close()
    assert _names(tmp_path) == [NAME, NAME.replace("-ab-", "-cd-")]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkError, match="cannot be written"):
        _sink(tmp_path).send(shipped(["a"]))
