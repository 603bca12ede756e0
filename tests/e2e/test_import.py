"""Tests of imports: answers equal pandas for every format, in any order and after repetitions."""

import io
import json
import time

import numpy as np
import pandas as pd
import pytest

HOUR = 3_600_000
START = int(time.time() * 1000) // HOUR * HOUR - 6 * HOUR


def trace(job: str, seed: int) -> pd.DataFrame:
    """Return five shuffled hours of three replicas with two GPUs each: samples 57 s apart, gaps and duplicates."""
    random = np.random.default_rng(seed)
    frames = []
    for replica in range(3):
        for device in range(2):
            times = START + np.arange(0, 5 * HOUR, 57_000)
            times = times[random.random(len(times)) > 0.2]
            frames.append(
                pd.DataFrame(
                    {
                        "job_id": job,
                        "replica": f"worker-{replica}",
                        "node": f"node-{replica % 2}",
                        "device": f"gpu{replica // 2 * 2 + device}",
                        "metric": "gpu.utilization",
                        "time": times,
                        "value": np.round(random.random(len(times)), 4),
                    }
                )
            )
    whole = pd.concat(frames)
    return pd.concat([whole, whole.sample(50, random_state=seed)]).sample(frac=1, random_state=seed, ignore_index=True)


def expected(frame: pd.DataFrame, step: int, by: list[str]) -> pd.DataFrame:
    """Compute the bucket means of each device, and the mean of the bucket means of a group."""
    last_rows = frame.drop_duplicates(["replica", "device", "time"], keep="last")
    buckets = last_rows.assign(time=last_rows["time"] // step * step)
    members = buckets.groupby(["replica", "device", "time"], as_index=False)["value"].mean()
    joined = members.groupby([*by, "time"], as_index=False)["value"].mean()
    for name in ("replica", "device"):
        if name not in by:
            joined[name] = ""
    columns = pd.DataFrame(joined, columns=["time", "replica", "device", "value"])
    return columns.sort_values(["replica", "device", "time"], ignore_index=True)


def answered(jobmeter, job: str, step: str, by: str) -> pd.DataFrame:
    end = START + 5 * HOUR
    output = jobmeter(
        "metrics", job, "--metric", "gpu.utilization", "--step", step, "--by", by, "--format", "csv",
        "--start", str(START), "--end", str(end),
    )  # fmt: skip
    assert output.status == 0, output.err
    frame = pd.read_csv(io.StringIO(output.out), keep_default_na=False)
    assert list(frame.columns) == ["time", "replica", "device", "value"]
    return frame.sort_values(["replica", "device", "time"], ignore_index=True)


WRITERS = {
    "csv": lambda frame, file: frame.to_csv(file, index=False),
    "jsonl": lambda frame, file: frame.to_json(file, orient="records", lines=True, double_precision=15),
    "parquet": lambda frame, file: frame.to_parquet(file, index=False),
}


@pytest.mark.parametrize("form", list(WRITERS))
def test_what_is_read_is_what_was_imported(jobmeter, tmp_path, form):
    job = f"trace-{form}"
    frame = trace(job, len(form))
    file = tmp_path / f"a.{form}"
    WRITERS[form](frame, file)
    first = jobmeter("import", str(file), "--batch-rows", "700", "--json")
    assert first.status == 0, first.err
    result = json.loads(first.out)
    assert (result["rows"], result["accepted"], result["jobs"], result["rejected"]) == (len(frame), len(frame), 1, {})
    for repeated in (False, True):
        if repeated:
            assert jobmeter("import", str(file)).status == 0
        for step, step_ms in (("57s", 57_000), ("1m", 60_000), ("5m", 300_000), ("1h", HOUR)):
            for by, groups in (("device", ["replica", "device"]), ("replica", ["replica"]), ("job", [])):
                wanted = expected(frame, step_ms, groups)
                if by == "job" and form != "csv":
                    continue
                pd.testing.assert_frame_equal(
                    answered(jobmeter, job, step, by), wanted, check_dtype=False, rtol=1e-12, check_exact=False
                )
            if repeated:
                break


def test_a_correction_replaces_and_a_second_file_adds(jobmeter, tmp_path):
    file = tmp_path / "a.csv"
    head = "job_id,replica,metric,time,value\n"
    file.write_text(f"{head}fix,w,memory.usage,{START},1\nfix,w,memory.usage,{START + 1000},2\n")
    assert jobmeter("import", str(file)).status == 0
    file.write_text(f"{head}fix,w,memory.usage,{START + 1000},5\nfix,w,memory.usage,{START + 2000},3\n")
    assert jobmeter("import", str(file)).status == 0
    output = jobmeter(
        "metrics",
        "fix",
        "--metric",
        "memory.usage",
        "--start",
        str(START),
        "--end",
        str(START + 3000),
        "--step",
        "1s",
        "--json",
    )
    assert [row["value"] for row in json.loads(output.out)] == [1, 5, 3]


def test_records_and_samples_make_one_job(jobmeter, tmp_path):
    record = {
        "job_id": "both", "name": "resnet", "type": "PyTorchJob", "state": "Failed", "user": "lin", "start": START,
        "end": START + 60_000, "error": "out of memory",
        "replicas": [{"name": "worker-0", "node": "n1", "devices": ["gpu0"]}],
    }  # fmt: skip
    sample = {"job_id": "both", "replica": "worker-0", "metric": "cpu.usage", "time": START + 5, "value": 1.5}
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps(record)}\n{json.dumps(sample)}\n")
    assert jobmeter("import", str(file)).status == 0
    [job] = json.loads(jobmeter("jobs", "--json", "--name", "both").out)
    assert (job["name"], job["state"], job["user"], job["error"]) == ("resnet", "Failed", "lin", "out of memory")
    text = jobmeter("show", "both").out
    for part in ("resnet", "Failed", "out of memory", "worker-0", "gpu0", "cpu.usage", "1.50 cores"):
        assert part in text


@pytest.mark.parametrize(
    ("row", "output"),
    [
        ("j,w,gpu.utilization,{now},57", "line 3, column value: gpu.utilization"),
        ("j,w,gpu.speed,{now},1", "line 3, column metric: metric 'gpu.speed'"),
        ("j,w,cpu.usage,{now},fast", "line 3, column value"),
        ("j,w,cpu.usage,noon,1", "line 3, column time"),
        ("j/k,w,cpu.usage,{now},1", "line 3, column job_id"),
        ("j,w,cpu.usage,{now}", "line 3"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_stored(jobmeter, tmp_path, row, output):
    file = tmp_path / "bad.csv"
    good = f"never,w,cpu.usage,{START},1\n"
    file.write_text("job_id,replica,metric,time,value\n" + good + row.format(now=START) + "\n" + good)
    result = jobmeter("import", str(file))
    assert result.status == 1
    assert result.out == ""
    assert result.err.startswith(f"jobmeter: {file}, {output}")
    assert result.err.count("\n") == 1
    assert json.loads(jobmeter("jobs", "--json", "--name", "never").out) == []


def test_what_is_too_old_or_too_new_is_counted_and_explained(jobmeter, tmp_path):
    file = tmp_path / "a.csv"
    times = (START, START - 30 * 24 * HOUR, START + 24 * HOUR, START + 25 * HOUR)
    file.write_text("job_id,metric,time,value\n" + "".join(f"late,cpu.usage,{time},1\n" for time in times))
    output = jobmeter("import", str(file))
    assert output.status == 0
    assert "imported 1 row of 1 job" in output.out
    assert "rejected 1 row: expired: older than the project's retention" in output.out
    assert "rejected 2 rows: future: " in output.out
