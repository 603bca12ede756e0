"""Tests of reading files: every format and spelling gives the same samples, and an error names a bad row."""

import gzip
import io
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.cli.loading import arrow, files
from jobmeter.cli.loading.rows import BadRowError, Rows, RowSource
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import format_iso

ROWS = [
    ("j1", "worker-0", "n1", "gpu0", "gpu.utilization", 1_790_000_000_000, 0.25),
    ("j1", "worker-0", "n1", "gpu1", "gpu.utilization", 1_790_000_000_500, 1.0),
    ("j2", "", "n2", "", "memory.usage", 1_790_000_015_000, 12_345_678_901.0),
]
NAMES = ("job_id", "replica", "node", "device", "metric", "time", "value")


def unpacked(rows: Rows) -> list[tuple[Any, ...]]:
    names = {name: [column.values[code] for code in column.codes] for name, column in rows.names.items()}
    columns = [names.get(name, [""] * len(rows)) for name in NAMES[:5]]
    return list(zip(*columns, rows.time.tolist(), rows.value.tolist(), strict=True))


def read(path, form=None, progress=lambda size: None, **how):
    source = RowSource(str(path), **how)
    return list(files.read(str(path), form, source, progress))


def samples(blocks):
    return [row for block in blocks if block.rows is not None for row in unpacked(block.rows)]


def csv_text(rows=ROWS, time=str, newline="\n"):
    lines = [",".join(NAMES)]
    lines += [",".join((*row[:5], time(row[5]), repr(row[6]))) for row in rows]
    return newline.join(lines) + newline


def frame_of(rows=ROWS):
    return pd.DataFrame(rows, columns=list(NAMES))


def test_csv(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(csv_text())
    assert samples(read(file)) == ROWS


@pytest.mark.parametrize(
    "spell",
    [
        format_iso,
        lambda ms: format_iso(ms).replace("T", " "),
        lambda ms: format_iso(ms).removesuffix("Z"),
        lambda ms: format_iso(ms).replace("Z", "+00:00"),
        lambda ms: format_iso(ms + 2 * 3_600_000).replace("Z", "+02:00"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_time_may_be_iso_8601(tmp_path, spell, form):
    file = tmp_path / f"a.{form}"
    spelt = frame_of().assign(time=[spell(row[5]) for row in ROWS])
    write(spelt, file, form)
    assert samples(read(file)) == ROWS


def write(frame, file, form):
    if form == "csv":
        frame.to_csv(file, index=False)
    elif form == "jsonl":
        frame.to_json(file, orient="records", lines=True, double_precision=15)
    else:
        frame.to_parquet(file, index=False)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("suffix", [True, False])
def test_every_format_by_suffix_and_by_content(tmp_path, form, suffix):
    file = tmp_path / (f"a.{form}" if suffix else "a.dat")
    write(frame_of(), file, form)
    assert samples(read(file)) == ROWS


def test_parquet_times_may_be_timestamps_and_names_may_be_null(tmp_path):
    file = tmp_path / "a.parquet"
    frame = frame_of().assign(time=lambda f: pd.to_datetime(f["time"], unit="ms", utc=True)).replace({"": None})
    frame["value"] = frame["value"].astype("float32")
    frame.to_parquet(file, index=False)
    assert samples(read(file))[0] == ROWS[0]
    assert samples(read(file))[2][1] == ""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n\n"])
def test_csv_line_ends_and_empty_lines(tmp_path, newline):
    file = tmp_path / "a.csv"
    file.write_bytes(csv_text(newline=newline).encode())
    assert samples(read(file)) == ROWS


def test_csv_without_a_newline_at_its_end_and_with_a_mark_at_its_begin(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbf" + csv_text().encode().rstrip())
    assert samples(read(file)) == ROWS


def test_csv_may_be_quoted_and_its_columns_in_any_order(tmp_path):
    file = tmp_path / "a.csv"
    frame_of()[["value", "time", "metric", "job_id", "device", "node", "replica"]].to_csv(file, index=False, quoting=1)
    assert samples(read(file)) == ROWS


def test_optional_columns_may_be_left_out(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("job_id,metric,time,value\nj,cpu.usage,0,1\n")
    assert samples(read(file)) == [("j", "", "", "", "cpu.usage", 0, 1.0)]


def test_a_compressed_file(tmp_path):
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(csv_text().encode()))
    assert samples(read(file)) == ROWS


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(csv_text().encode()))))
    assert samples(read("-")) == ROWS


def test_blocks_join_without_a_seam(tmp_path, monkeypatch):
    monkeypatch.setattr("jobmeter.cli.loading.text.CSV_BLOCK", 200)
    rows = [(f"j{i % 7}", "r", "n", "", "cpu.usage", 1_000 + i, float(i)) for i in range(500)]
    file = tmp_path / "a.csv"
    file.write_text(csv_text(rows))
    sizes: list[int] = []
    blocks = read(file, progress=sizes.append)
    assert len(blocks) > 10
    assert samples(blocks) == rows
    assert sum(sizes) == file.stat().st_size


def test_job_records_stand_between_samples(tmp_path):
    file = tmp_path / "a.jsonl"
    lines = [
        {"job_id": "j1", "name": "first", "state": "Running", "replicas": ["worker-0"]},
        {"job_id": "j1", "metric": "cpu.usage", "time": 5, "value": 1, "replica": "worker-0"},
        {"job_id": "j2", "limits": {"cpu": 2}},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    [block] = read(file)
    assert [record.job_id for record in block.records] == ["j1", "j2"]
    assert samples([block]) == [("j1", "worker-0", "", "", "cpu.usage", 5, 1.0)]


BAD_CSV = [
    ("j,cpu.usage,yesterday,1", "time", "yesterday"),
    ("j,cpu.usage,-5,1", "time", "-5"),
    ("j,cpu.usage,1790000000000000,1", "time", "milliseconds"),
    ("j,cpu.usage,,1", "time", ""),
    ("j,cpu.usage,1,", "value", ""),
    ("j,cpu.usage,1,nan", "value", "nan"),
    ("j,cpu.usage,1,-inf", "value", "inf"),
    ("j,cpu.usage,1,much", "value", "much"),
    ("j,cpu.usage,1,1_0", "value", "1_0"),
    ("j,cpu.usage,1", "", "3 columns, but the header has 4"),
    ("j,cpu.usage,1,1,1", "", "5 columns, but the header has 4"),
]


@pytest.mark.parametrize(("line", "column", "problem"), BAD_CSV)
def test_a_bad_line_of_csv_is_named(tmp_path, line, column, problem):
    file = tmp_path / "a.csv"
    file.write_text(f"job_id,metric,time,value\nj,cpu.usage,0,1\n\n{line}\nj,cpu.usage,2,1\n")
    with pytest.raises(BadRowError) as caught:
        read(file)
    assert caught.value.message.startswith(f"{file}, line 4" + (f", column {column}: " if column else ": "))
    assert problem in caught.value.message


@pytest.mark.parametrize(("line", "column", "problem"), BAD_CSV)
def test_bad_lines_of_csv_can_be_skipped(tmp_path, line, column, problem):
    file = tmp_path / "a.csv"
    file.write_text(f"job_id,metric,time,value\nj,cpu.usage,0,1\n{line}\nj,cpu.usage,2,1\n")
    [block] = read(file, skip_bad=True)
    assert block.skipped == 1
    assert [row[5] for row in samples([block])] == [0, 2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"job_id": "j", "metric": "cpu.usage", "time": 1, "value": "x"}', "column value"),
        ('{"job_id": "j", "metric": "cpu.usage", "time": "soon", "value": 1}', "column time"),
        ('{"job_id": "j", "metric": "cpu.usage", "time": 99999999999999999999, "value": 1}', "column time"),
        ('{"job_id": "j", "metric": "cpu.usage", "value": 1}', "time"),
        ('{"job_id": "j", "metric": "cpu.usage", "time": 1, "value": 1, "colour": 2}', "colour"),
        ('{"job_id": "j", "state": "Asleep"}', "column state"),
        ('{"job_id": "a/b"}', "column job_id"),
    ],
)
def test_a_bad_line_of_json_is_named_or_skipped(tmp_path, line, problem):
    file = tmp_path / "a.jsonl"
    good = '{"job_id": "j", "metric": "cpu.usage", "time": 1, "value": 1}'
    file.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(BadRowError) as caught:
        read(file)
    assert f"{file}, line 2" in caught.value.message
    assert problem in caught.value.message
    [block] = read(file, skip_bad=True)
    assert (block.skipped, len(samples([block]))) == (1, 2)


def test_a_bad_row_of_parquet_is_named_or_skipped(tmp_path):
    file = tmp_path / "a.parquet"
    frame_of([*ROWS[:1], (*ROWS[1][:6], float("nan")), ROWS[2]]).to_parquet(file, index=False)
    with pytest.raises(BadRowError, match="row 2, column value"):
        read(file)
    [block] = read(file, skip_bad=True)
    assert samples([block]) == [ROWS[0], ROWS[2]]
    assert block.skipped == 1


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("job_id,metric,time", "no column 'value'"),
        ("job_id,metric,time,value,color", "'color' is not one of"),
        ("job_id,metric,time,value,value", "two columns 'value'"),
        ("", "no column"),
    ],
)
def test_columns_are_checked(tmp_path, header, problem):
    file = tmp_path / "a.csv"
    file.write_text(header + "\n")
    with pytest.raises(InvalidRequestError, match=problem):
        read(file)


def test_what_is_no_text_and_no_parquet_is_refused(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(InvalidRequestError, match="cannot be read as Parquet"):
        read(file)
    file = tmp_path / "a.csv"
    file.write_bytes(b"job_id,metric,time,value\nj\xff,cpu.usage,1,1\n")
    with pytest.raises(BadRowError, match="line 2: not UTF-8"):
        read(file)


names = st.text(st.characters(codec="utf-8", exclude_characters='\r\n,"', exclude_categories=("C", "Z")), max_size=9)


@given(
    st.lists(
        st.tuples(names, names, names, names, names, st.integers(0, 4_102_444_800_000), st.floats(-1e300, 1e300)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_is_written_is_read(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.csv").write_text(csv_text(rows), newline="")
    assert samples(read(folder / "a.csv")) == rows
    lines = [json.dumps(dict(zip(NAMES, row, strict=True)), ensure_ascii=False) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines), newline="")
    assert samples(read(folder / "a.jsonl")) == rows
    frame_of(rows).to_parquet(folder / "a.parquet", index=False)
    assert samples(read(folder / "a.parquet")) == rows


def test_a_parquet_file_is_read_without_importing_pandas(tmp_path):
    """The import of pandas takes longer than reading a million rows."""
    path = tmp_path / "samples.parquet"
    frame_of().to_parquet(path)
    code = (
        "import sys; from jobmeter.cli.loading import files; from jobmeter.cli.loading.rows import RowSource\n"
        "blocks = list(files.read(sys.argv[1], None, RowSource('file'), lambda size: None))\n"
        "print(sum(len(block.rows) for block in blocks), *{'pandas', 'pyarrow.compute'}.intersection(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(ROWS))]


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=20), st.integers(0, 9))
def test_numbers_of_a_cut_column_with_empty_rows(values, cut):
    """The column begins within its memory, with and without empty rows."""
    column = pa.array(values, pa.float64())[cut:]
    expected = [np.nan if value is None else value for value in values[cut:]]
    checked = arrow.check_values(column)
    assert np.array_equal(checked.values, np.array(expected, np.float64), equal_nan=True)
    assert arrow.find_nulls(column).tolist() == [value is None for value in values[cut:]]
