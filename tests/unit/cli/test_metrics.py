import csv
import io
import json

import pytest

from jobmeter.errors import ConfigurationError

LINES = [
    {"metric": "cpu.usage", "unit": "{core}", "replica": "worker-0", "node": "n", "device": None, "rank": 0,
     "points": [[1000, 0.5], [2000, 1.5]]},
    {"metric": "cpu.usage", "unit": "{core}", "replica": "worker-1", "node": "n", "device": "", "rank": 1,
     "points": [[2000, 2.0]]},
]  # fmt: skip
ANSWER = {
    "job": "j", "project": "default", "start": 0, "end": 4000, "step": 1000, "by": "replica", "statistic": "mean",
    "lines": LINES, "samples": 3, "tiers": ["raw"],
}  # fmt: skip


@pytest.fixture
def metrics(server):
    server.on("/jobs/j/metrics", ANSWER)
    return server


def test_options_become_parameters(metrics, run):
    result = run(
        "metrics", "j", "--metric", "cpu.usage,memory.usage", "--metric", "gpu.power",
        "--start", "2026-11-20T00:00:00Z", "--end", "1790000000000",
        "--step", "5m", "--by", "device", "--aggregate", "max", "--statistic", "last",
        "--replica", "worker-0", "--device", "gpu0", "--project", "p",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert metrics.asked[0].headers["authorization"] == "Bearer t0"
    assert metrics.asked[0].parameters == {
        "metric": ["cpu.usage", "memory.usage", "gpu.power"],
        "start": ["2026-11-20T00:00:00Z"],
        "end": ["1790000000000"],
        "step": ["5m"],
        "by": ["device"],
        "aggregate": ["max"],
        "statistic": ["last"],
        "replica": ["worker-0"],
        "device": ["gpu0"],
        "project": ["p"],
    }


def test_the_table_has_each_line(metrics, run):
    text = run("metrics", "j", "--metric", "cpu.usage").stdout
    row = next(line for line in text.splitlines() if line.startswith("worker-0"))
    assert row.split() == ["worker-0", "2", "1.00", "cores", "0.50", "cores", "1.50", "cores", "1.50", "cores"]
    assert "step 1s" in text


@pytest.mark.parametrize("count", [2, 6])
def test_lines_of_a_metric_share_one_scale(server, run, count):
    lines = [
        {"metric": "gpu.power", "unit": "W", "replica": f"worker-{at}", "points": [[0, 100 if at else 50]]}
        for at in range(count)
    ]
    server.on("/jobs/j/metrics", {**ANSWER, "end": 1000, "lines": lines})
    text = run("metrics", "j", "--metric", "gpu.power").stdout
    if count == 2:
        assert text.count("100 W ┤") == 2
    rows = [line.split() for line in text.splitlines() if line.startswith("worker-") and "┤" not in line]
    assert count == 2 or {row[-1] for row in rows} == {"▅" * 32, "█" * 32}


@pytest.mark.parametrize("form", ["table", "csv", "parquet"])
@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_json_and_another_format_contradict_each_other(metrics, run, form, raw):
    result = run("metrics", "j", "--metric", "cpu.usage", "--format", form, "--json", *raw)
    assert result.exit_code == 2
    assert f"give --json or --format {form}, not both" in result.output
    assert metrics.asked == []


def test_json_is_the_format_of_the_same_name(metrics, run):
    texts = [
        run("metrics", "j", "--metric", "cpu.usage", *how).stdout
        for how in (["--json", "--format", "json"], ["--json"])
    ]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])


def test_raw_readings_are_no_table(metrics, run):
    result = run("metrics", "j", "--metric", "cpu.usage", "--format", "table", "--raw")
    assert result.exit_code == 2
    assert "--raw cannot print a table" in result.output


@pytest.mark.parametrize("form", ["table", "csv"])
def test_the_usage_has_one_format_too(server, run, form):
    result = run("usage", "--format", form, "--json")
    assert result.exit_code == 2
    assert f"give --json or --format {form}, not both" in result.output
    assert server.asked == []


def test_json_is_an_object_a_point(metrics, run):
    rows = json.loads(run("metrics", "j", "--metric", "cpu.usage", "--json").stdout)
    assert [(row["time"], row["replica"], row["value"]) for row in rows] == [
        (1000, "worker-0", 0.5),
        (2000, "worker-0", 1.5),
        (2000, "worker-1", 2.0),
    ]
    assert rows[0]["device"] == ""


def test_csv_and_parquet_are_the_servers_own_bytes(server, run, tmp_path):
    body = b"time,replica,device,value\r\n1000,worker-0,,0.5\r\n"
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    server.on("/jobs/j/metrics", lambda asked: (200, body if asked.parameters["format"] == ["csv"] else b"PAR1", {}))
    text = run("metrics", "j", "--metric", "cpu.usage", "--format", "csv").stdout
    assert next(iter(csv.DictReader(io.StringIO(text)))) == {
        "time": "1000", "replica": "worker-0", "device": "", "value": "0.5",
    }  # fmt: skip
    file = tmp_path / "out.parquet"
    assert run("metrics", "j", "--metric", "cpu.usage", "--format", "parquet", "--output", str(file)).stdout == ""
    assert file.read_bytes() == b"PAR1"


def test_missing_samples_are_reported(server, run):
    server.on("/jobs/j/metrics", {**ANSWER, "lines": []})
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    assert "no samples between" in run("metrics", "j", "--metric", "cpu.usage").stdout


def test_a_job_id_is_percent_encoded(server, run):
    server.on("/jobs/a%20b%3Fc/metrics", ANSWER)
    assert run("metrics", "a b?c", "--metric", "cpu.usage").exit_code == 0


def test_a_refusal_keeps_its_message(server, run):
    problem = {"error": {"code": "invalid_request", "message": "step 0 is not above zero", "field": "step"}}
    server.on("/jobs/j/metrics", lambda asked: (400, problem, {}))
    assert "step 0" in str(run("metrics", "j", "--metric", "cpu.usage", "--step", "0").exception)


def test_a_metric_is_required_and_those_that_there_are_are_offered(server, run):
    server.on("/jobs/j", {"job": {"id": "j"}, "summary": {"metrics": [{"metric": "cpu.usage"}, {"metric": "app.x"}]}})
    result = run("metrics", "j")
    assert result.exit_code == 2
    assert "j has: cpu.usage, app.x" in result.output


def test_the_name_of_the_file_says_the_form(server, run, tmp_path):
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    server.on("/jobs/j/metrics", lambda asked: (200, f"as {asked.parameters['format'][0]}".encode(), {}))
    for name in ("a.parquet", "a.csv"):
        assert run("metrics", "j", "--metric", "cpu.usage", "--output", str(tmp_path / name)).exit_code == 0
        assert (tmp_path / name).read_text() == f"as {name[2:]}"


UNMEASURED: tuple[tuple[list[str], object], ...] = (
    ([], {**ANSWER, "lines": []}),
    (["--json"], {**ANSWER, "lines": []}),
    (["--format", "csv"], b"time,replica,device,value\n"),
    (["--format", "parquet"], b"PAR1"),
    (["--raw"], b"time,replica,device,value\n"),
    (["--raw", "--json"], b""),
)


@pytest.mark.parametrize(("form", "answer"), UNMEASURED)
@pytest.mark.parametrize(
    ("metric", "choices"), [("gpu.power", "it has cpu.usage, memory.usage"), ("usage", "did you mean ")]
)
def test_a_metric_that_the_job_does_not_have_is_an_error_with_its_metrics(
    server, run, tmp_path, form, answer, metric, choices
):
    server.on("/jobs/j/samples" if "--raw" in form else "/jobs/j/metrics", answer)
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage", "memory.usage"]})
    server.on("/jobs/j/latest", {"values": []})
    file = tmp_path / "out"
    result = run("metrics", "j", "--metric", metric, *form, "--output", str(file))
    assert result.exit_code == 1
    assert result.exception.message.startswith(f"job j has no measurements of {metric}; {choices}")
    assert not file.exists()


@pytest.mark.parametrize("names", [["cpu.usage"], []])
def test_a_metric_without_samples_in_the_range_is_no_error(server, run, names):
    server.on("/jobs/j/metrics", {**ANSWER, "lines": []})
    server.on("/jobs/j/metrics/names", {"metrics": names})
    assert json.loads(run("metrics", "j", "--metric", "cpu.usage", "--json").stdout) == []


def test_a_limit_needs_no_samples(server, run):
    server.on("/jobs/j/metrics", b"PAR1")
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    server.on("/jobs/j/latest", {"values": [{"metric": "memory.limit", "time": 1, "value": 2.0}]})
    assert run("metrics", "j", "--metric", "memory.limit", "--format", "parquet").stdout_bytes == b"PAR1"


def test_one_of_several_metrics_without_samples_is_named(metrics, run):
    result = run("metrics", "j", "--metric", "cpu.usage,gpu.power", "--json")
    assert (result.exit_code, result.stderr) == (0, "jobmeter: no samples of gpu.power\n")


@pytest.mark.parametrize("verb", [("metrics", "j", "--metric", "cpu.usage"), ("metrics", "j", "--raw"), ("usage",)])
@pytest.mark.parametrize(
    ("file", "message"),
    [("x.xlsx", "the ending .xlsx names no format; use .csv, .json, "), ("csv", "use --format csv")],
)
def test_a_file_whose_name_says_no_form_is_refused(server, run, verb, file, message):
    result = run(*verb, "--output", file)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not server.asked


def test_the_usage_is_written_to_a_file(server, run, tmp_path):
    server.on("/usage", {"month": "2026-11", "time_zone": "UTC", "currency": "EUR", "calls": 0, "failed": 0,
                         "cost": "0", "charge": "all", "start": 0, "end": 1, "usage": []})  # fmt: skip
    for name, begin in (
        ("a.csv", "month,account,"),
        ("a.json", '{\n  "month": "2026-11"'),
        ("a.txt", "2026-11 in UTC"),
    ):
        result = run("usage", "--output", str(tmp_path / name))
        assert (result.exit_code, result.stdout) == (0, ""), result.exception
        assert (tmp_path / name).read_text().startswith(begin)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_file_that_cannot_be_written_is_one_line(metrics, run, tmp_path, form):
    if form == "csv":
        metrics.on("/jobs/j/metrics", b"time\n")
    missing = tmp_path / "none" / "out.x"
    result = run("metrics", "j", "--metric", "cpu.usage", "--format", form, "--output", str(missing))
    assert isinstance(result.exception, ConfigurationError)
    assert result.exception.message == f"{missing} cannot be written: No such file or directory"


@pytest.mark.parametrize("option", ["--start", "--end"])
def test_seconds_in_place_of_milliseconds_are_confirmed(server, run, option):
    result = run("metrics", "j", "--metric", "cpu.usage", option, "1790000000")
    assert result.exit_code == 2
    assert "did you mean 1790000000000" in " ".join(result.output.split())
    assert not server.asked


def test_a_replica_that_the_job_never_had_is_reported_with_those_that_are_near(server, run):
    server.on("/jobs/j/metrics", {**ANSWER, "lines": []})
    server.on("/jobs/j", {"job": {"id": "j"}, "replicas": [{"name": "worker-0"}], "devices": [{"device": "gpu0"}]})
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    wrong = run("metrics", "j", "--metric", "cpu.usage", "--replica", "worker0")
    assert wrong.exception.message == "job j has no replica 'worker0'; did you mean worker-0?"
    wrong = run("metrics", "j", "--metric", "cpu.usage", "--device", "npu9")
    assert wrong.exception.message == "job j has no device 'npu9'; it has gpu0"
    assert "no samples between" in run("metrics", "j", "--metric", "cpu.usage", "--replica", "worker-0").stdout


def test_raw_is_what_the_server_streams(server, run, tmp_path):
    body = b"time,replica,device,value\n1000,worker-0,,0.5\n"
    server.on("/jobs/j/metrics/names", {"metrics": ["cpu.usage"]})
    server.on("/jobs/j/samples", lambda asked: (200, body if asked.parameters["format"] == ["csv"] else b"{}\n", {}))
    common = ("metrics", "j", "--metric", "cpu.usage,cpu.time", "--raw", "--since", "1d", "--device", "gpu0")
    assert run(*common).stdout == body.decode()
    assert server.asked[0].parameters == {
        "metric": ["cpu.usage", "cpu.time"], "since": ["1d"], "device": ["gpu0"], "format": ["csv"],
    }  # fmt: skip
    assert run(*common, "--json").stdout == "{}\n"
    assert run(*common, "--format", "parquet").exit_code == 0
    assert [asked.parameters["format"] for asked in server.asked if "format" in asked.parameters] == [
        ["csv"],
        ["json"],
        ["parquet"],
    ]
    file = tmp_path / "out.csv"
    result = run(*common, "--output", str(file))
    assert (result.stdout, file.read_bytes(), list(tmp_path.iterdir())) == ("", body, [file])


@pytest.mark.parametrize(
    "option", [("--step", "5m"), ("--by", "replica"), ("--aggregate", "sum"), ("--statistic", "max")]
)
def test_raw_joins_nothing(server, run, option):
    result = run("metrics", "j", "--metric", "cpu.usage", "--raw", *option)
    assert result.exit_code == 2
    assert option[0] in result.output
    assert not server.asked


def test_a_refused_export_leaves_no_file(server, run, tmp_path):
    result = run("metrics", "j", "--metric", "cpu.usage", "--raw", "--output", str(tmp_path / "out.csv"))
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []
