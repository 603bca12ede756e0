"""Tests of damaged or odd files: an error names each, and nothing crashes."""

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.cli.loading.files import read
from jobmeter.cli.loading.load import ImportPlan, Tally, iterate_bodies
from jobmeter.cli.loading.rows import BadRowError, RowSource
from jobmeter.errors import InvalidRequestError


@pytest.mark.parametrize("outer", ["", '"extra":'])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_a_line_of_json_that_is_nested_very_deep_is_named(tmp_path: Path, outer: str, brackets: str) -> None:
    opened, closed = ("[", "]") if brackets == "[]" else ('{"a":', "}")
    deep = opened * 100_000 + "1" + closed * 100_000
    good = '{"job_id": "j", "metric": "app.loss", "time": 1790000000000, "value": 1}'
    bad = f'{{"job_id": "j", {outer}{deep}}}' if outer else deep
    path = tmp_path / "deep.jsonl"
    path.write_text(f"{good}\n{bad}\n{good}\n")
    with pytest.raises(BadRowError, match=r"deep\.jsonl, line 2: arrays or objects are nested too deep"):
        list(read(str(path), None, RowSource(str(path)), _ignored))
    (block,) = read(str(path), None, RowSource(str(path), skip_bad=True), _ignored)
    assert block.rows is not None
    assert (len(block.rows), block.skipped) == (2, 1)


def _ignored(size: int) -> None:
    """Ignore the progress."""


def _parquet_files() -> list[bytes]:
    rows = 300
    table = pa.table(
        {
            "job_id": [f"jöb-{at % 30}" for at in range(rows)],
            "metric": ["gpu.power", "app.loss"] * (rows // 2),
            "time": [1_790_000_000_000 + at for at in range(rows)],
            "value": [at / 8 for at in range(rows)],
        }
    )
    options: list[dict[str, Any]] = [
        {},
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"row_group_size": 20},
    ]
    made = []
    for chosen in options:
        for compression in ("none", "snappy", "zstd"):
            sink = io.BytesIO()
            pq.write_table(table, sink, compression=compression, **chosen)
            made.append(sink.getvalue())
    return made


PARQUET = _parquet_files()
PLAIN: dict[str, Any] = {"use_dictionary": False, "write_statistics": False}
"""Options that store values plainly in pages and nowhere else."""


@settings(max_examples=300, deadline=None)
@given(
    which=st.integers(0, len(PARQUET) - 1),
    flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=3),
    skip_bad=st.booleans(),
)
def test_a_damaged_parquet_file_is_read_or_named_as_damaged(
    which: int, flips: list[tuple[int, int]], *, skip_bad: bool
) -> None:
    content = bytearray(PARQUET[which])
    for place, mask in flips:
        content[place % len(content)] ^= mask
    with TemporaryDirectory() as folder:
        path = Path(folder) / "hurt.parquet"
        path.write_bytes(content)
        # Read up to the request bodies, where names are looked up.
        plan = ImportPlan(files=[str(path)], form="parquet", skip_bad=skip_bad)
        said = ""
        try:
            for _ in iterate_bodies(plan, Tally(), _ignored):
                pass
        except InvalidRequestError as error:
            said = error.message
        assert not said or "hurt.parquet" in said


def test_a_flipped_bit_in_a_page_with_a_checksum_is_found(tmp_path: Path) -> None:
    sink = io.BytesIO()
    table = pa.table({"job_id": ["j"], "metric": ["app.loss"], "time": [1_790_000_000_000], "value": [0.123456789]})
    pq.write_table(table, sink, compression="none", write_page_checksum=True, **PLAIN)
    content = bytearray(sink.getvalue())
    content[content.index(np.array([0.123456789]).tobytes())] ^= 1
    path = tmp_path / "hurt.parquet"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=r"hurt\.parquet is damaged"):
        list(read(str(path), None, RowSource(str(path)), _ignored))


@pytest.mark.parametrize(("name", "kind"), [("x.csv.gz", "gzip"), ("x.csv.zst", "zstd"), ("x.csv.bz2", "bz2")])
def test_a_compressed_file_that_was_cut_off_is_named_as_damaged(
    tmp_path: Path, name: str, kind: Literal["gzip", "zstd", "bz2"]
) -> None:
    lines = "".join(f"j,app.loss,{1_790_000_000_000 + at},{at / 7}\n" for at in range(3_000))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(f"job_id,metric,time,value\n{lines}".encode())
    content = sink.getvalue().to_pybytes()
    path = tmp_path / name
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidRequestError, match=f"{name} is damaged"):
        list(read(str(path), None, RowSource(str(path)), _ignored))
