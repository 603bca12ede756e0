"""Tests of OpenTSDB's API on a whole server: answers equal the stored values, for callers who may see them."""

import gzip
import json
from base64 import b64encode
from urllib.parse import urlencode

import pytest
from tests.support.fakes import NOW
from tests.support.serving import serving

from jobmeter.model.time import DAY, HOUR

T = NOW // 1000
SPAN = {"start": T - 3600, "end": T}


class Tsdb:
    """Server, with calls of its OpenTSDB API with one key."""

    def __init__(self, application, key):
        self.application = application
        self.key = key

    def headers(self):
        return {"Authorization": f"Bearer {self.key.token}"}

    def get(self, path, **query):
        return self.application.raw("GET", f"{path}?{urlencode(query, doseq=True)}", headers=self.headers())

    def post(self, path, body, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.application.raw("POST", path, content, {**self.headers(), **headers})

    def put(self, *points, path="/api/put?details"):
        sent = [{"metric": m, "timestamp": t, "value": v, "tags": tags} for m, t, v, tags in points]
        return self.post(path, sent)

    def query(self, *metrics, **query):
        reply = self.get("/api/query", m=list(metrics), **{**SPAN, **query})
        assert reply.status == 200, reply.body
        return reply.json()


@pytest.fixture
def application(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()


@pytest.fixture
def tsdb(application):
    return Tsdb(application, application.key("writer", "lab"))


def test_what_is_put_is_answered(tsdb):
    reply = tsdb.put(("sys.cpu.nice", T - 60, 18, {"host": "web01", "dc": "lga"}))
    assert (reply.status, reply.json()) == (200, {"errors": [], "failed": 0, "success": 1})
    assert tsdb.query("sum:sys.cpu.nice") == [
        {
            "metric": "sys.cpu.nice",
            "tags": {"dc": "lga", "host": "web01"},
            "aggregateTags": [],
            "dps": {str(T - 60): 18},
        }
    ]


def test_a_put_without_details_has_no_body(tsdb):
    reply = tsdb.put(("m", T, 1, {"host": "a"}), path="/api/put")
    assert (reply.status, reply.body) == (204, b"")
    assert "content-length" not in reply.headers


def test_a_put_may_be_compressed(tsdb):
    body = gzip.compress(json.dumps({"metric": "m", "timestamp": T, "value": "1.5", "tags": {"host": "a"}}).encode())
    assert tsdb.post("/api/put", body, **{"Content-Encoding": "gzip"}).status == 204
    assert tsdb.query("sum:m")[0]["dps"] == {str(T): 1.5}
    assert tsdb.post("/api/put", b"no gzip", **{"Content-Encoding": "gzip"}).status == 400
    assert tsdb.post("/api/put", b"x", **{"Content-Encoding": "br"}).status == 400


def test_one_wrong_data_point_does_not_harm_the_others(tsdb):
    reply = tsdb.put(
        ("good", T, 1, {"host": "a"}),
        ("a/b", T, 1, {"host": "a"}),
        ("m", 0, 1, {"host": "a"}),
        ("m", T, "x", {"host": "a"}),
        ("m", T, 1, {}),
        ("m", T, 1, {"host": "a b"}),
        ("m", T, 1, {"a-b": "c"}),
        ("m", T, 1, {"host": "a", "project": "other"}),
        ("cpu.utilization", T, 5000, {"host": "a"}),
        ("m", T + 3600, 1, {"host": "a"}),
        ("m", T - 40 * 86_400, 1, {"host": "a"}),
        ("also.good", T, 1, {"host": "a"}),
    )
    body = reply.json()
    assert reply.status == 400
    assert (body["failed"], body["success"]) == (10, 2)
    assert [one["error"] for one in body["errors"]] == [
        "metric 'a/b' is not a metric name",
        "Invalid timestamp: 0",
        "Unable to parse value to a number",
        "Missing tags",
        "node 'a b' is not a name: 1 to 128 letters, digits and . _ : @ + * = ~ - are allowed",
        "label 'a-b' is not a label name",
        "this key belongs to project lab, not to other",
        "cpu.utilization 5000.0 is outside of [0, 10]: is its unit right?",
        "Timestamp is further ahead than the server's clock may be wrong",
        "Timestamp is older than the project's retention",
    ]
    assert body["errors"][8]["datapoint"] == {
        "metric": "m",
        "timestamp": T + 3600,
        "value": "1",
        "tags": {"host": "a"},
    }
    assert tsdb.get("/api/suggest", type="metrics").json() == ["also.good", "good"]


def test_refused_data_points_are_counted(application, tsdb):
    tsdb.put(("m", T, "x", {"host": "a"}), ("m", T + 3600, 1, {"host": "a"}), ("m", T, 1, {"host": "a"}))
    tsdb.put(("m", T, "x", {"host": "a"}))
    metrics = application.raw("GET", "/metrics").body.decode()
    assert 'jobmeter_ingest_samples_rejected_total{reason="value"} 2.0' in metrics
    assert 'jobmeter_ingest_samples_rejected_total{reason="future"} 1.0' in metrics
    assert "jobmeter_ingest_samples_accepted_total 1.0" in metrics
    admin = Tsdb(application, application.admin)
    figures = {(one["metric"], one["tags"].get("reason")): one["value"] for one in admin.get("/api/stats").json()}
    assert figures["tsd.jobmeter_ingest_samples_rejected", "value"] == "2"
    assert tsdb.get("/api/stats").status == 403


def test_names_of_the_catalogue_and_identities_are_ours(application, tsdb):
    tags = {"host": "n1", "job": "train-7", "replica": "worker-0", "device": "gpu0", "run": "x"}
    assert tsdb.put(("gpu.power", T, 250.5, tags), ("app.loss", T, 0.5, {"job": "train-7"})).json()["failed"] == 0
    found = tsdb.application.call("GET", "/jobs/train-7/metrics?metric=gpu.power&by=device&step=1m", key=tsdb.key)
    assert found.status == 200, found.body
    line = found.json()["lines"][0]
    assert (line["replica"], line["node"], line["device"]) == ("worker-0", "n1", "gpu0")
    assert tsdb.query("sum:gpu.power{job=train-7}")[0]["tags"] == tags
    assert tsdb.query("sum:app.loss")[0]["tags"] == {"job": "train-7"}


@pytest.mark.parametrize("asked", ["host", "node", "fqdn"])
def test_the_node_has_the_name_that_is_requested(tsdb, asked):
    tsdb.put(("m", T, 1, {"fqdn": "h-01.example", "dc": "probe"}))
    assert tsdb.query(f"sum:m{{{asked}=*}}")[0]["tags"] == {asked: "h-01.example", "dc": "probe"}
    assert tsdb.query(f"sum:explicit_tags:m{{{asked}=*,dc=*}}") != []
    assert tsdb.query(f"sum:explicit_tags:m{{{asked}=*}}") == []


def counters(tsdb, hosts=("a", "b"), minutes=10, step=10):
    times = range(T - 60 * minutes, T, step)
    tsdb.put(
        *((("c", at, (at - times[0]) * rate, {"host": host})) for rate, host in enumerate(hosts, 1) for at in times)
    )


def test_rates_begin_with_the_reading_before_the_range(tsdb):
    counters(tsdb)
    found = tsdb.query("sum:rate:c{host=*}", start=T - 30, end=T)
    assert [one["dps"] for one in found] == [{str(T - 30 + at): rate for at in (0, 10, 20)} for rate in (1, 2)]


def test_interpolation_looks_beyond_both_ends(tsdb):
    tsdb.put(
        ("m", T - 100, 0, {"host": "a"}), ("m", T - 60, 40, {"host": "a"}),
        ("m", T - 90, 0, {"host": "b"}), ("m", T - 80, 0, {"host": "b"}),
    )  # fmt: skip
    assert tsdb.query("sum:m", start=T - 95, end=T - 70)[0]["dps"] == {str(T - 90): 10, str(T - 80): 20}


def test_long_steps_are_answered_from_roll_ups_and_raw_alike(application, tsdb):
    start = T - 6 * 3600
    points = [("m", start + at, at % 7, {"host": host}) for host in ("a", "b") for at in range(0, 6 * 3600, 60)]
    tsdb.put(*points)
    asked = {"start": start, "end": T}
    before = [tsdb.query(f"sum:1h-{name}:m", **asked) for name in ("sum", "avg", "max", "count", "p90")]
    assert application.application.services.store.roll_up(NOW) > 0
    after = [tsdb.query(f"sum:1h-{name}:m", **asked) for name in ("sum", "avg", "max", "count", "p90")]
    assert before == after
    assert len(before[0][0]["dps"]) == 6
    assert before[3][0]["dps"][str(start - start % 3600 + 3600)] == 120


def test_a_series_without_readings_in_the_range_has_no_say(tsdb):
    tsdb.put(("m", T - 50, 1, {"host": "a"}), ("m", T - 3 * 3600, 1, {"host": "b"}))
    assert tsdb.query("sum:m")[0]["tags"] == {"host": "a"}


def test_none_joins_nothing(tsdb):
    counters(tsdb)
    assert [one["tags"]["host"] for one in tsdb.query("none:c")] == ["a", "b"]


def test_series_are_requested_by_their_ids(tsdb):
    counters(tsdb)
    shown = tsdb.query("sum:c{host=*}", show_tsuids="")
    ids = [one["tsuids"][0] for one in shown]
    reply = tsdb.get("/api/query", tsuid=f"sum:{','.join(ids)}", **SPAN)
    assert reply.json()[0]["dps"] == tsdb.query("sum:c")[0]["dps"]
    assert tsdb.get("/api/query", tsuid=f"sum:{'0' * 32}", **SPAN).json() == []
    last = tsdb.get("/api/query/last", tsuids=ids[1], resolve="true").json()
    assert [(one["metric"], one["tags"], one["value"]) for one in last] == [("c", {"host": "b"}, "1180")]
    body = {"queries": [{"tsuids": ids}], "resolveNames": True}
    assert len(tsdb.post("/api/query/last", body).json()) == 2


def test_the_last_reading_may_have_an_age(tsdb):
    tsdb.put(("m", T - 3 * 3600, 1, {"host": "old"}), ("m", T - 60, 2.5, {"host": "new"}))
    found = tsdb.get("/api/query/last", timeseries="m").json()
    assert sorted((one["timestamp"], one["value"]) for one in found) == [
        ((T - 3 * 3600) * 1000, "1"),
        ((T - 60) * 1000, "2.5"),
    ]
    assert len(tsdb.get("/api/query/last", timeseries="m", back_scan=1).json()) == 1
    assert len(tsdb.get("/api/query/last", timeseries="m{host=old}", back_scan=4).json()) == 1
    assert tsdb.get("/api/query/last", timeseries="m{host=*,dc=x}").json() == []


def test_a_lookup_takes_any_tag_or_any_value(tsdb):
    tsdb.put(
        ("a", T, 1, {"host": "web01", "type": "put"}),
        ("a", T, 1, {"host": "web02", "type": "get"}),
        ("b", T, 1, {"server": "web01"}),
    )

    def found(m, **query):
        reply = tsdb.get("/api/search/lookup", m=m, **query).json()
        return reply["totalResults"], [(one["metric"], *one["tags"].values()) for one in reply["results"]]

    assert found("a") == (2, [("a", "web01", "put"), ("a", "web02", "get")])
    assert found("a{host=web01,host=web02,type=*}")[0] == 2
    assert found("a{host=web01,type=get}")[0] == 0
    assert found("{*=web01}") == (2, [("a", "web01", "put"), ("b", "web01")])
    assert found("{host=*}", limit=1) == (2, [("a", "web01", "put")])
    body = {"metric": "*", "tags": [{"key": "*", "value": "web01"}]}
    assert tsdb.post("/api/search/lookup", body).json()["totalResults"] == 2


def test_names_are_suggested_by_what_they_begin_with(tsdb):
    tsdb.put(
        *(
            (name, T, 1, {"host": "web01", "dc": "lga"})
            for name in ("sys.a", "sys.b", "zzz", "cpu.usage", "external.x")
        ),
        ("app.loss", T, 1, {"job": "j1", "replica": "w-0"}),
    )

    def suggested(**query):
        return tsdb.get("/api/suggest", **query).json()

    assert suggested(type="metrics") == ["app.loss", "cpu.usage", "external.x", "sys.a", "sys.b", "zzz"]
    assert suggested(type="metrics", max=2) == ["app.loss", "cpu.usage"]
    assert suggested(type="metrics", q="sys") == ["sys.a", "sys.b"]
    assert suggested(type="metrics", q="ex") == ["external.x"]
    assert suggested(type="metrics", q="Sys") == []
    assert suggested(type="tagk") == ["dc", "host", "job", "replica"]
    assert suggested(type="tagk", q="h") == ["host"]
    assert suggested(type="tagv") == ["j1", "lga", "w-0", "web01"]


def test_no_project_sees_anything_of_another(application, tsdb):
    tsdb.put(("secret.metric", T, 1, {"host": "web01", "hidden": "value", "job": "j1"}))
    own = tsdb.query("sum:secret.metric", show_tsuids="")[0]["tsuids"][0]
    other = Tsdb(application, application.key("writer", "other"))
    assert other.get("/api/suggest", type="metrics").json() == []
    assert other.get("/api/suggest", type="tagk").json() == []
    assert other.get("/api/suggest", type="tagv").json() == []
    assert other.get("/api/search/lookup", m="{*=web01}").json()["totalResults"] == 0
    assert other.get("/api/search/lookup", m="secret.metric").status == 404
    unknown = other.get("/api/query", m="sum:secret.metric", **SPAN)
    assert (unknown.status, unknown.body) == (400, unknown.body.replace(b"nope", b"secret.metric"))
    same = other.get("/api/query", m="sum:nope", **SPAN)
    assert same.body.replace(b"nope", b"secret.metric") == unknown.body
    assert other.get("/api/query", tsuid=f"sum:{own}", **SPAN).json() == []
    assert other.get("/api/query/last", tsuids=own).json() == []
    assert other.get("/api/query/last", timeseries="secret.metric").status == 400


def test_a_key_without_a_project_sees_them_apart(application, tsdb):
    admin = Tsdb(application, application.admin)
    tsdb.put(("m", T, 1, {"host": "a"}))
    admin.put(("m", T, 2, {"host": "a"}), ("m", T, 4, {"host": "a", "project": "third"}))
    found = admin.query("sum:m{project=*}")
    assert [(one["tags"]["project"], one["dps"]) for one in found] == [
        ("default", {str(T): 2}), ("lab", {str(T): 1}), ("third", {str(T): 4}),
    ]  # fmt: skip
    assert admin.query("sum:m{project=lab|third}{host=a}")[0]["dps"] == {str(T): 1}
    assert admin.query("sum:m")[0]["dps"] == {str(T): 7}
    assert tsdb.query("sum:m{project=lab}")[0]["tags"] == {"host": "a"}
    assert "project" in admin.get("/api/suggest", type="tagk").json()


def test_a_share_token_opens_one_job(application, tsdb):
    tsdb.put(("m", T, 1, {"job": "mine"}), ("m", T, 2, {"job": "other"}), ("n", T, 2, {"job": "other", "a": "b"}))
    made = tsdb.application.call("POST", "/jobs/mine/share", b"{}", key=tsdb.key)
    assert made.status in {200, 201}, made.body
    token = made.json()["token"]

    def get(path, **query):
        return application.raw("GET", f"{path}?{urlencode({**query, 'Token': token})}")

    assert get("/api/query", m="sum:m", **SPAN).json()[0]["dps"] == {str(T): 1}
    assert get("/api/suggest", type="metrics").json() == ["m"]
    assert get("/api/suggest", type="tagv").json() == ["mine"]
    assert get("/api/search/lookup", m="{job=*}").json()["totalResults"] == 1
    assert get("/api/query", m="sum:n", **SPAN).status == 400
    refused = application.raw("POST", f"/api/put?Token={token}", b"[]")
    assert refused.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        lambda token: {"Authorization": f"Bearer {token}"},
        lambda token: {"Authorization": f"Api-Key {token}"},
        lambda token: {"Api-Key": token},
        lambda token: {"X-Auth-Token": token},
        lambda token: {"Authorization": "Basic " + b64encode(f"jobmeter:{token}".encode()).decode()},
        lambda token: {"Authorization": "basic " + b64encode(f"{token}:".encode()).decode()},
    ],
)
def test_every_way_to_send_a_token_opens(application, tsdb, headers):
    assert application.raw("GET", "/api/aggregators", headers=headers(tsdb.key.token)).status == 200
    assert application.raw("GET", "/api/aggregators", headers=headers("jm_wrong")).status == 401


def test_without_a_credential_nothing_is_reported(application):
    for path in ("/api/query?start=1h-ago&m=sum:m", "/api/suggest?type=metrics", "/api/aggregators", "/api/version"):
        reply = application.raw("GET", path)
        assert reply.status == 401
        assert reply.json()["error"]["details"] == "missing"
    broken = application.raw("GET", "/api/version", headers={"Authorization": "Basic !!!"})
    assert broken.json()["error"]["details"] == "malformed"


def test_a_reader_reads_and_does_not_write(application, tsdb):
    tsdb.put(("m", T, 1, {"host": "a"}))
    reader = Tsdb(application, application.key("reader", "lab"))
    assert reader.query("sum:m") != []
    assert reader.put(("m", T, 2, {"host": "a"})).status == 403


def test_a_body_that_is_too_large_is_413(tmp_path):
    from jobmeter.settings import Limits

    made = serving(tmp_path / "data", limits=Limits(query_points=1_000, query_series=3))
    tsdb = Tsdb(made, made.key("writer", "lab"))
    tsdb.put(*(("m", T - at, 1, {"host": "a"}) for at in range(3_000)))
    tsdb.put(*(("m", T - 1 - at, 1, {"host": "b"}) for at in range(3_000)))
    reply = tsdb.get("/api/query", m="sum:m", **SPAN)
    assert reply.status == 413
    assert reply.json()["error"]["code"] == 413
    tsdb.put(*(("m", T, 1, {"host": host}) for host in "abcd"))
    assert tsdb.get("/api/query", m="sum:m", **SPAN).status == 413
    made.application.close()


def test_old_series_are_not_read(tsdb):
    """Series last written days before the range are not even read."""
    tsdb.put(("m", T - 5 * 86_400, 1, {"host": "a"}))
    assert tsdb.query("sum:m") == []
    assert tsdb.query("sum:m", start=f"{6 * DAY // HOUR}h-ago")[0]["dps"] == {str(T - 5 * 86_400): 1}


class TestGrafana:
    """Tests of the literal requests of Grafana's data source (grafana-opentsdb-datasource 13)."""

    @pytest.fixture
    def grafana(self, tsdb):
        counters(tsdb, minutes=5)
        return tsdb

    def test_the_health_check(self, grafana):
        assert (
            grafana.application.raw("GET", "/api/suggest?q=cpu&type=metrics", headers=grafana.headers()).status == 200
        )

    def test_the_lists_of_the_editor(self, grafana):
        raw = grafana.application.raw
        assert "sum" in raw("GET", "/api/aggregators", headers=grafana.headers()).json()
        assert "wildcard" in raw("GET", "/api/config/filters", headers=grafana.headers()).json()
        names = raw("GET", "/api/suggest?max=1000&q=c&type=metrics", headers=grafana.headers())
        assert names.json() == ["c"]

    def test_template_variables(self, grafana):
        keys = grafana.application.raw("GET", "/api/search/lookup?limit=1000&m=c", headers=grafana.headers())
        assert {key for one in keys.json()["results"] for key in one["tags"]} == {"host"}
        values = grafana.application.raw(
            "GET", "/api/search/lookup?limit=1000&m=c%7Bhost%3D%2A%7D", headers=grafana.headers()
        )
        assert {one["tags"]["host"] for one in values.json()["results"]} == {"a", "b"}

    def body(self, **query):
        return {"start": T - 300, "end": T, "queries": [{"metric": "c", "aggregator": "sum", **query}]}

    def test_a_query_of_its_server(self, grafana):
        """The types of the data source are maps of text to numbers or pairs of numbers: no text or null is allowed."""
        sent = self.body(
            downsample="1m-avg", rate=True, rateOptions={"counter": True, "dropResets": True}, tags={"host": "*"}
        )
        found = grafana.post("/api/query", sent, **{"Content-Type": "application/json"}).json()
        assert [one["tags"] for one in found] == [{"host": "a"}, {"host": "b"}]
        assert all(isinstance(value, int | float) for one in found for value in one["dps"].values())
        arrays = grafana.post("/api/query?arrays=true", sent).json()
        assert [{str(t): v for t, v in one["dps"]} for one in arrays] == [one["dps"] for one in found]

    def test_a_query_of_its_page(self, grafana):
        sent = {
            **self.body(
                downsample="30s-max-zero",
                filters=[{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": True}],
                explicitTags=True,
                rateOptions={"counter": False},
                shouldComputeRate=False,
                refId="A",
            ),
            "msResolution": True,
            "globalAnnotations": True,
            "showQuery": True,
        }
        found = grafana.post("/api/query", sent).json()
        assert [one["query"]["index"] for one in found] == [0, 0]
        assert str((T - 300) * 1000) in found[0]["dps"]


def test_a_body_of_tcollector(application, tsdb):
    """``tcollector --http`` posts this body, with any name as its user and the token as its password."""
    body = json.dumps(
        [
            {"timestamp": T - 15, "metric": "proc.loadavg.1min", "value": 0.36, "tags": {"host": "foo"}},
            {"timestamp": T - 15, "metric": "df.bytes.free", "value": 8654364672.0,
             "tags": {"host": "foo", "mount": "/", "fstype": "ext4"}},
        ]
    ).encode()  # fmt: skip
    login = "Basic " + b64encode(f"tcollector:{tsdb.key.token}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": login}
    reply = application.raw("POST", "/api/put?details", body, headers)
    assert (reply.status, reply.json()) == (200, {"errors": [], "failed": 0, "success": 2})
    assert tsdb.query("sum:df.bytes.free{host=*,mount=literal_or(/)}")[0]["dps"] == {str(T - 15): 8654364672}
