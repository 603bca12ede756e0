"""Tests of the dialect's contract on examples of OpenTSDB's own pages."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.stored_series import columns_of, series_of

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, ServerQuestion, WriteSamples
from jobmeter.dialects.opentsdb import OPENTSDB
from jobmeter.dialects.opentsdb.metric_text import split_metric, split_tags
from jobmeter.dialects.opentsdb.tsuid import make_tsuid, split_tsuid
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError, UnavailableError
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import References
from jobmeter.model.series import Series
from jobmeter.query.reduce import build_buckets
from jobmeter.query.series import (
    Buckets,
    BucketsQuestion,
    FoundSeries,
    LastQuestion,
    NamesQuestion,
    Samples,
    SamplesQuestion,
    SeriesQuestion,
)
from jobmeter.query.tsdb.filters import KINDS, choose, make_filter, parse_tag_filter
from jobmeter.query.tsdb.tags import Tagged, TagView, tag_series
from jobmeter.query.tsdb.times import find_zone, parse_duration, parse_moment
from jobmeter.testing.dialect import ERRORS, REQUEST_ID, DialectTests


class TestOpenTsdb(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return OPENTSDB

    def decode_result(self, given, question):
        match question:
            case SeriesQuestion():
                return FoundSeries([series_of(one) for one in given or ()])
            case NamesQuestion():
                return given or []
            case SamplesQuestion() | LastQuestion():
                return Samples(columns_of(given or ()))
            case BucketsQuestion():
                readings = columns_of(given or ())
                counters = np.zeros(len(question.series), np.bool_)
                steps = build_buckets(readings, question.step_ms, counters, References.make_empty(len(counters)))
                return Buckets(steps, len(readings))
            case ServerQuestion():
                return [(name, tuple(sorted(tags.items())), count) for name, tags, count in given or ()]
            case WriteSamples():
                return Receipt(**given) if given else Receipt(accepted=len(question.batch))
            case _:
                return super().decode_result(given, question)


def error(problem, method="GET", path="/api/query"):
    answer = OPENTSDB.render_error(Call(method, path, "", ()), Context(0, REQUEST_ID), problem)
    return answer, json.loads(answer.body)["error"]


@pytest.mark.parametrize("problem", ERRORS)
def test_an_error_says_its_status_and_what_is_wrong(problem):
    answer, body = error(problem)
    assert body["code"] == answer.status
    assert body["message"]
    assert answer.content_type == "application/json; charset=UTF-8"


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (InvalidRequestError("wrong", "m"), 400),
        (NotFoundError("no such metric", "name", "m"), 400),
        (NotFoundError("no", "path"), 404),
        (NotFoundError("no", "method", "GET, POST"), 405),
        (JobmeterError("secret"), 500),
    ],
)
def test_an_error_has_the_status_of_the_pages(problem, status):
    assert error(problem)[0].status == status


def test_an_unknown_name_in_a_lookup_is_404():
    answer, body = error(NotFoundError("No such name for 'metrics': 'x'", "name", "x"), path="/api/search/lookup")
    assert (answer.status, body["message"]) == (404, "Unable to resolve one or more UIDs")


def test_another_method_learns_which_there_are():
    answer, body = error(NotFoundError("no", "method", "GET, POST"), "PUT")
    assert dict(answer.headers)["Allow"] == "GET, POST"
    assert body["details"] == "The HTTP method [PUT] is not permitted for this endpoint"


def test_a_missing_credential_is_requested():
    answer, _ = error(ERRORS[4])
    assert answer.status == 401
    assert dict(answer.headers)["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("path", ["/api/put", "/api/v1/put", "/api/v2/put/", "/api/put/"])
def test_every_version_of_a_path_is_the_same(path):
    match = OPENTSDB.find_operation(Call("POST", path, "", ()))
    assert match is not None
    assert match.operation.name == "put"


@pytest.mark.parametrize(
    "path", ["/api/v1/jobs", "/api/v1/jobs/x/metrics", "/api/putt", "/api", "/api/v1", "/api/config/x"]
)
def test_paths_of_others_are_left_alone(path):
    assert OPENTSDB.find_operation(Call("GET", path, "", ())) is None


@pytest.mark.parametrize(
    "path", ["/api/query/exp", "/api/query/gexp", "/api/annotation", "/api/uid/assign", "/api/tree", "/api/stats/jvm"]
)
def test_what_is_a_gap_is_reported_so(path):
    with pytest.raises(NotFoundError) as refused:
        OPENTSDB.find_operation(Call("GET", path, "", ()))
    assert refused.value.kind == "path"


HOSTS = ["web01", "web02", "Web01", "db.lax.mysite.com", "web01.lax.mysite.com"]


def passing(kind, pattern):
    series = tag_series([Series("external.m", node=host) for host in HOSTS], TagView(False))
    series.append(Tagged(Series("external.m", labels=(("dc", "lga"),)), {"dc": "lga"}))
    found = choose(series, [make_filter("host", kind, pattern, group_by=False)])
    return [one.series.node or None for one in found]


@pytest.mark.parametrize(
    ("kind", "pattern", "expected"),
    [
        ("literal_or", "web01", ["web01"]),
        ("literal_or", "web01|web02|", ["web01", "web02"]),
        ("iliteral_or", "WEB01", ["Web01", "web01"]),
        ("not_literal_or", "web01|web02", ["Web01", "db.lax.mysite.com", "web01.lax.mysite.com"]),
        ("not_iliteral_or", "WEB01", ["db.lax.mysite.com", "web01.lax.mysite.com", "web02"]),
        ("wildcard", "*", sorted(HOSTS)),
        ("wildcard", "web*", ["web01", "web01.lax.mysite.com", "web02"]),
        ("wildcard", "*mysite.com", ["db.lax.mysite.com", "web01.lax.mysite.com"]),
        ("wildcard", "web*mysite*", ["web01.lax.mysite.com"]),
        ("wildcard", "web0*1", ["web01"]),
        ("wildcard", "web01*01", []),
        ("iwildcard", "WEB*", ["Web01", "web01", "web01.lax.mysite.com", "web02"]),
        ("regexp", "web.*", ["web01", "web01.lax.mysite.com", "web02"]),
        ("regexp", "^web[0-9]+$", ["web01", "web02"]),
        ("regexp", "mysite", ["db.lax.mysite.com", "web01.lax.mysite.com"]),
        ("not_key", "", [None]),
    ],
)
def test_a_filter_lets_through_what_its_page_says(kind, pattern, expected):
    assert passing(kind, pattern) == expected


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("nope", "x"), ("", "x"), ("literal_or", ""), ("literal_or", "|"), ("wildcard", "web01"), ("regexp", "("),
        ("regexp", "(a)\\1"), ("regexp", "(?<=a)b"), ("regexp", "a" * 2000), ("not_key", "x"), ("wildcard", "*" * 5000),
    ],
)  # fmt: skip
def test_a_filter_that_cannot_be_meant_is_refused(kind, pattern):
    with pytest.raises(InvalidRequestError) as refused:
        make_filter("host", kind, pattern, group_by=False)
    assert refused.value.field == "filters"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "(x+x+)+y"])
def test_no_regular_expression_takes_for_ever(pattern):
    """A backtracking matcher would need years for each of these."""
    series = tag_series([Series("external.m", node="n", labels=(("v", "a" * 200 + "!"),))], TagView(False))
    assert choose(series, [make_filter("v", "regexp", pattern, group_by=False)]) == []


def test_every_type_of_filter_is_described():
    assert set(KINDS) == {
        "literal_or", "iliteral_or", "not_literal_or", "not_iliteral_or", "wildcard", "iwildcard", "regexp", "not_key",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "pattern"),
    [
        ("*", "wildcard", "*"),
        ("web01", "literal_or", "web01"),
        ("web01|web02", "literal_or", "web01|web02"),
        ("web*", "iwildcard", "web*"),
        ("regexp(web[0-9]+)", "regexp", "web[0-9]+"),
        ("not_key()", "not_key", ""),
    ],
)
def test_tags_of_the_older_form_become_filters(value, kind, pattern):
    found = parse_tag_filter("host", value, group_by=True)
    assert (found.kind, found.pattern, found.group_by) == (kind, pattern, True)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sum:sys.cpu", ("sum", "sys.cpu", None, "", False, "", "")),
        ("sum:rate:1m-avg:sys.cpu{host=*}", ("sum", "sys.cpu", "", "1m-avg", False, "host=*", "")),
        ("sum:1h-sum-nan:rate{counter,,1000}:if.in", ("sum", "if.in", "counter,,1000", "1h-sum-nan", False, "", "")),
        ("avg:explicit_tags:m{host=a}{dc=b}", ("avg", "m", None, "", True, "host=a", "dc=b")),
        ("avg:0all-sum:m{}{dc=b}", ("avg", "m", None, "0all-sum", False, "", "dc=b")),
        ("max:m{host=regexp(a:b,c{2})}", ("max", "m", None, "", False, "host=regexp(a:b,c{2})", "")),
        ("max:a:b", ("max", "a:b", None, "", False, "", "")),
    ],
)
def test_a_metric_of_a_query_string_is_taken_apart(text, parts):
    found = split_metric(text)
    assert (
        found.aggregator, found.metric, found.rate, found.downsample, found.explicit_tags, found.tags, found.filters,
    ) == parts  # fmt: skip


@pytest.mark.parametrize("text", ["", "sum", "sum:m{host=a", "sum:m{a}{b}{c}", "sum:percentiles[99]:m", "x" * 20_000])
def test_a_metric_that_cannot_be_taken_apart_is_refused(text):
    with pytest.raises(InvalidRequestError):
        split_metric(text)


def test_commas_inside_of_parentheses_belong_to_the_pattern():
    assert split_tags("host=regexp(a{1,2}),dc=x") == [("host", "regexp(a{1,2})"), ("dc", "x")]
    with pytest.raises(InvalidRequestError):
        split_tags("host")


NOW = 1_364_410_924_250


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("now", NOW),
        ("1h-ago", NOW - 3_600_000),
        ("1500ms-ago", NOW - 1_500),
        ("2w-ago", NOW - 14 * 86_400_000),
        ("1n-ago", NOW - 30 * 86_400_000),
        ("1y-ago", NOW - 365 * 86_400_000),
        ("200y-ago", 0),
        ("1364410924", 1_364_410_924_000),
        (1364410924, 1_364_410_924_000),
        (1364410924.0, 1_364_410_924_000),
        ("1364410924250", NOW),
        ("1364410924.250", NOW),
        ("2013/03/27-19:02:04", 1_364_410_924_000),
        ("2013/03/27 19:02:04", 1_364_410_924_000),
        ("2013/03/27-19:02", 1_364_410_920_000),
        ("2013/03/27", 1_364_342_400_000),
    ],
)
def test_a_time_has_many_forms(value, expected):
    assert parse_moment(value, "start", NOW, find_zone("")) == expected


def test_a_formatted_time_is_one_of_its_zone():
    assert parse_moment("2013/03/27-12:02:04", "start", NOW, find_zone("America/Los_Angeles")) == 1_364_410_924_000


@pytest.mark.parametrize(
    "value", ["", "x", "1h", "h-ago", "1x-ago", "2013-03-27", "2013/13/27", "99999999999999", "-5", True, [], None]
)
def test_a_time_that_is_none_is_refused(value):
    with pytest.raises(InvalidRequestError) as refused:
        parse_moment(value, "start", NOW, find_zone(""))
    assert refused.value.field == "start"


@pytest.mark.parametrize("text", ["", "0s", "s", "1", "1.5h", "1h2m", "1000000000y"])
def test_a_duration_that_is_none_is_refused(text):
    with pytest.raises(InvalidRequestError):
        parse_duration(text, "downsample")


@pytest.mark.parametrize("name", ["Nowhere/City", "../etc/passwd", "\0", "/etc/localtime"])
def test_a_zone_that_is_none_is_refused(name):
    with pytest.raises(InvalidRequestError):
        find_zone(name)


def test_an_id_names_one_series():
    one = Series("external.m", node="n", job="j")
    assert split_tsuid(make_tsuid(one)) == (one.job_key, one.id)
    assert split_tsuid("xyz") is None


def test_the_node_is_shown_by_the_name_that_is_requested():
    series = Series("m", project="lab", node="n", attempt=2, labels=(("a", "b"),))
    assert TagView.for_query([], "lab").read_tags(series) == {"a": "b", "attempt": "2", "host": "n"}
    assert TagView.for_query(["fqdn"], None).read_tags(series) == {
        "a": "b",
        "attempt": "2",
        "fqdn": "n",
        "project": "lab",
    }
    numa = Series("m", node="n", labels=(("node", "0"),))
    assert TagView.for_query(["node"], "default").read_tags(numa) == {"host": "n", "node": "0"}


def test_numbers_are_written_as_they_were_put():
    from jobmeter.dialects.opentsdb.numbers import encode_number, format_number

    assert [format_number(one) for one in (18.0, 42.5, -0.0, 1e20, 1e-7, 25595461080.0)] == [
        "18", "42.5", "0", "1e+20", "1e-07", "25595461080",
    ]  # fmt: skip
    assert (encode_number(float("nan"), null=False), encode_number(float("nan"), null=True)) == ('"NaN"', "null")
    assert msgspec.json.decode(format_number(1e20).encode()) == 1e20


@pytest.mark.parametrize(("wait_ms", "seconds"), [(None, "5"), (1, "1"), (1_500, "2")])
def test_a_server_that_cannot_work_says_when_to_come_back(wait_ms, seconds):
    call = Call("POST", "/api/put", "", (("host", "h"),))
    answer = OPENTSDB.render_error(call, Context(0, REQUEST_ID), UnavailableError("the disk is full", wait_ms))
    assert answer.status == 503
    assert dict(answer.headers)["Retry-After"] == seconds
