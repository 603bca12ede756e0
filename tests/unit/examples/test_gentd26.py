"""Tests of converting the published trace into a file for ``jobmeter import``."""

import io
import tarfile

import pandas as pd
import pyarrow.parquet as pq
import pytest

from jobmeter.errors import ConfigurationError
from jobmeter.examples.gentd26 import convert
from jobmeter.model.time import MINUTE

NOW = 1_795_225_445_678


def pack(folder, name, text):
    with tarfile.open(folder / f"{name}.tgz", "w:gz") as tar:
        member = tarfile.TarInfo(f"{name}.csv")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture
def folder(tmp_path):
    pack(
        tmp_path,
        "pod_gpu_duty_cycle_anon",
        "value,timestamp_anon,container_ip\n57.0,1662858720.0,aa\n7.1,1662858777.0,bb\n",
    )
    pack(
        tmp_path, "pod_gpu_memory_used_bytes_anon", "timestamp_anon,value,container_ip\n1662858720.0,33879490560.0,aa\n"
    )
    pack(tmp_path, "pod_memory_util_anon", "value,timestamp_anon,container_ip\n-0.001,1662940800.0,cc\n")
    return tmp_path


def test_rows_units_and_times(folder, tmp_path):
    rows, end = convert(folder, tmp_path / "out.parquet", NOW)
    frame = pq.read_table(tmp_path / "out.parquet").to_pandas()
    assert rows == len(frame) == 4
    assert NOW - MINUTE < end <= NOW
    shift = end - 1_662_940_800_000
    assert shift % MINUTE == 0
    expected = pd.DataFrame(
        {
            "job_id": "gentd26",
            "replica": ["aa", "bb", "aa", "cc"],
            "node": "",
            "device": ["gpu0", "gpu0", "gpu0", ""],
            "metric": ["gpu.utilization", "gpu.utilization", "gpu.memory.usage", "memory.utilization"],
            "time": [1_662_858_720_000 + shift, 1_662_858_777_000 + shift, 1_662_858_720_000 + shift, end],
            "value": [0.57, 0.071, 33879490560.0, -0.001],
        }
    )
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False, check_exact=True)


def test_archives_that_are_not_there_are_reported(tmp_path):
    with pytest.raises(ConfigurationError, match=r"pod_gpu_duty_cycle_anon.tgz cannot be read .*--directory"):
        convert(tmp_path, tmp_path / "out.parquet", NOW)
