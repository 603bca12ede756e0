"""Tests of ``jobmeter.Client`` against a real server, with pandas as the oracle."""

import asyncio
import subprocess
import sys
import warnings

import msgspec
import pandas as pd
import pytest

import jobmeter
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.time import SystemClock
from tests.support.frames import FRAMES, records, samples

COUNT = 2_345
SECONDS = 120


@pytest.fixture(scope="module")
def begin():
    return (SystemClock().now_ms() - 3_600_000) // 60_000 * 60_000


@pytest.fixture(scope="module")
def client(reach, begin):
    api, token = reach
    jobs = [{"job_id": f"job-{n}", "created": begin - 10_000_000 + n, "state": "Succeeded"} for n in range(COUNT)]
    jobs.append(
        {"job_id": "train-1", "name": "<b>resnet</b>", "state": "Succeeded", "created": begin, "start": begin,
         "end": begin + SECONDS * 1000, "user": "lin"}
    )  # fmt: skip
    series = [
        ({"metric": "gpu.utilization", "job": "train-1", "replica": f"worker-{n}", "node": "n1", "device": "gpu0"},
         readings(begin, n))
        for n in range(2)
    ]  # fmt: skip
    body = b"".join(records({"jobs": jobs[at : at + 500]}) for at in range(0, len(jobs), 500)) + samples(series)
    api.transport.request("POST", "/api/jobmeter/v1/ingest", body, {"Content-Type": FRAMES})
    lines = {"lines": [{"text": "hello", "time": begin, "replica": "worker-0"}]}
    api.transport.request("POST", "/api/jobmeter/v1/jobs/train-1/logs", msgspec.json.encode(lines))
    with jobmeter.Client(api.transport.server, token) as opened:
        yield opened


def readings(begin, replica):
    return [(begin + 1000 * at, 0.25 + 0.5 * replica + (at % 7) / 100) for at in range(SECONDS)]


def test_jobs_come_in_pages_however_many(client):
    progress_calls = []
    jobs = client.jobs(progress=lambda done, total: progress_calls.append((done, total)))
    assert len(jobs) == jobs.total == COUNT + 1
    assert progress_calls == [(1000, COUNT + 1), (2000, COUNT + 1), (COUNT + 1, COUNT + 1)]
    assert [job.id for job in jobs[:2]] == ["train-1", f"job-{COUNT - 1}"]
    frame = client.jobs(limit=3).to_pandas()
    assert list(frame["id"]) == ["train-1", f"job-{COUNT - 1}", f"job-{COUNT - 2}"]
    assert frame["user"][0] == "lin"
    assert str(frame["created"].dtype).startswith("datetime64[")
    assert client.jobs(name="resnet", state="Succeeded").total == 1
    assert client.jobs(user=["nobody"]).to_pandas().empty


def test_metrics_are_what_pandas_makes_of_the_readings(client, begin):
    found = client.job("last").metrics("gpu.utilization", step="10s").to_pandas()
    expected = pd.concat(
        pd.DataFrame(readings(begin, n), columns=["time", "value"]).assign(replica=f"worker-{n}") for n in range(2)
    )
    expected["time"] = pd.to_datetime(expected["time"] // 10_000 * 10_000, unit="ms", utc=True)
    means = expected.groupby(["replica", "time"])["value"].mean()
    progress_calls = found.set_index(["replica", "time"])["value"]
    pd.testing.assert_series_equal(progress_calls, means, check_index_type=False, check_freq=False)


def test_rows_columns_and_arrow_hold_the_same(client):
    found = client.job("train").metrics("gpu.utilization", by="device")
    assert len(found) == len(found.rows()) == found.to_arrow().num_rows
    assert found.columns()["value"] == found.to_arrow()["value"].to_pylist() == [row.value for row in found]
    schema = found.to_arrow().schema
    assert [str(schema.field(name).type) for name in ("time", "rank")] == ["timestamp[ms, tz=UTC]", "int64"]


def test_without_a_name_everything_that_was_measured_is_given(client):
    assert {line.metric for line in client.job("train-1").metrics().lines} == {"gpu.utilization"}
    with pytest.raises(InvalidRequestError, match="has no measurements yet"):
        client.job("job-5").metrics()


def test_a_notebook_is_shown_text_as_text(client):
    job = client.job("last")
    for shown in (job._repr_html_(), job.metrics()._repr_html_(), client.jobs(limit=2)._repr_html_()):
        assert "train-1" in shown
        assert "<b>resnet" not in shown
    assert "<svg" in job._repr_html_()
    assert repr(job) == "<Job train-1 Succeeded>"


def test_a_plot_in_one_line(client):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = client.job("last").metrics("gpu.utilization").plot()
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["worker-0", "worker-1"]
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "50.0%"
    assert len(lines[0].get_ydata()) > 10
    plt.close("all")


def test_logs_events_latest_and_comparison(client):
    job = client.job("train-1")
    assert [line.text for line in job.logs()] == ["hello"]
    assert "Succeeded" in [event.reason for event in job.events()]
    assert len(job.latest("gpu.utilization", by="device")) == 2
    assert job.refresh().id == "train-1"
    assert [one.job.id for one in client.compare("last", "job-5").jobs] == ["train-1", "job-5"]
    assert isinstance(client.nodes(), list)


def test_a_listed_job_answers_as_one_that_was_named(client):
    job, other = client.jobs(limit=2)
    named = client.job("train-1")
    assert (job.id, job.name, job.state, job.user, job.start) == (
        named.id, named.name, named.state, named.user, named.start,
    )  # fmt: skip
    assert job.metrics("gpu.utilization").rows() == named.metrics("gpu.utilization").rows()
    assert job.summary == named.summary
    assert [replica.name for replica in job.replicas] == ["worker-0", "worker-1"]
    assert job.compare(other).answer.jobs[1].job.id == other.id
    assert job.wait(timeout="1s").state == "Succeeded"
    assert repr(client.jobs(limit=2)).splitlines()[:2] == [
        f"<2 of {COUNT + 1:,} jobs>",
        "train-1  <b>resnet</b>  Succeeded",
    ]


def test_every_result_is_a_table(client):
    job = client.job("train-1")
    results = {
        "jobs": client.jobs(limit=2),
        "job": job,
        "metrics": job.metrics(),
        "latest": job.latest(),
        "logs": job.logs(),
        "events": job.events(),
        "findings": job.findings(),
        "timeline": job.timeline(),
        "quality": job.quality(),
        "phases": job.phases(),
        "comparison": job.compare("job-5"),
        "nodes": client.nodes(),
    }
    frames = {name: result.to_pandas() for name, result in results.items()}
    for name, result in results.items():
        assert list(frames[name].columns) == list(result.columns()), name
        assert len(frames[name]) == len(next(iter(result.columns().values()))) > 0 or name == "findings", name
    assert list(frames["logs"]["text"]) == ["hello"]
    assert list(frames["job"]["metric"]) == ["gpu.utilization"]
    assert frames["job"]["mean"][0] == pytest.approx(0.53, abs=0.01)
    assert list(frames["quality"]["replica"]) == ["worker-0", "worker-1"]
    assert {"worker-0", "worker-1"} <= set(frames["latest"]["replica"])
    assert str(frames["timeline"]["time"].dtype).startswith("datetime64[")
    assert list(frames["comparison"]["job"]) == ["train-1"], "the other job was not measured"
    assert frames["phases"]["end"].iloc[-1] == frames["phases"]["start"].iloc[0] + pd.Timedelta(
        sum(job.phases().totals.values()), "ms"
    )
    assert {"severity", "sentence", "subject", "evidence", "advice"} <= set(frames["findings"].columns)
    assert job.share("1d").token.startswith("jms")


def test_mistakes_are_answered_with_the_choices(client):
    job = client.job("train-1")
    with pytest.raises(InvalidRequestError, match="there is no argument 'stpe'; did you mean step"):
        job.metrics("gpu.utilization", stpe="5m")
    with pytest.raises(NotFoundError, match=r"has no measurements of cpu\.usage; it has .*gpu\.utilization"):
        job.metrics("cpu.usage")
    with pytest.raises(NotFoundError, match="has no replica 'worker-7'; did you mean worker-"):
        job.metrics("gpu.utilization", replicas=["worker-7"])
    with pytest.raises(InvalidRequestError, match="state 'runing' is not one of Queued, Running, Succeeded"):
        client.jobs(state="runing")
    with pytest.raises(InvalidRequestError, match="kind 'nodes' is not one of state, event, node"):
        job.timeline("nodes")
    with pytest.raises(InvalidRequestError, match="two different jobs"):
        job.compare("train-1")
    with pytest.raises(jobmeter.NotFoundError) as raised:
        client.job("tarin-1")
    # IPython prints these lines instead of the frames inside the library.
    assert raised.value._render_traceback_() == [f"NotFoundError: {raised.value.message}"]
    with pytest.raises(AttributeError, match="it has Client"):
        getattr(jobmeter, "Clinet")  # noqa: B009


def test_unknown_names_list_similar_ones(client):
    with pytest.raises(NotFoundError, match="did you mean train-1"):
        client.job("tarin-1")
    with pytest.raises(InvalidRequestError, match=r"did you mean gpu\.utilization"):
        client.job("last").metrics("gpu.utilisation")


def test_the_asynchronous_twin(client, reach):
    api, token = reach

    async def ask():
        async with jobmeter.AsyncClient(api.transport.server, token) as twin:
            job, jobs = await asyncio.gather(twin.job("last"), twin.jobs(limit=5))
            found = await job.metrics("gpu.utilization", step="10s")
            texts = [line.text async for line in job.logs()]
            return job.id, len(jobs), found.rows(), texts, len(await job.latest()), await job.events()

    job, count, rows, texts, newest, events = asyncio.run(ask())
    assert (job, count, texts, newest) == ("train-1", 5, ["hello"], 2)
    assert rows == client.job("last").metrics("gpu.utilization", step="10s").rows()
    assert events


def test_the_package_completes_to_the_clients_and_the_errors():
    errors = {
        name for name, one in vars(jobmeter.errors).items() if isinstance(one, type) and name != "LongQuestionError"
    }
    assert set(dir(jobmeter)) >= {"Client", "AsyncClient", "__version__", *errors}
    assert all(getattr(jobmeter, name) is getattr(jobmeter.errors, name) for name in errors)


def test_importing_it_loads_nothing_but_itself():
    code = "import sys, jobmeter; print([name for name in sys.modules if name.startswith('jobmeter')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['jobmeter']\n"


def test_importing_it_loads_nothing_heavy():
    code = (
        "import sys, jobmeter; jobmeter.Client; print([n for n in ('numpy', 'pandas', 'pyarrow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
