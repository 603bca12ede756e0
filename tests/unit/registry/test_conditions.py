"""Tests of the conditions of a listing, on both databases, against a slow filter in plain Python."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.record import JobRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.columns import fields, table
from jobmeter.registry.open import open_registry
from jobmeter.registry.stored import Observation

NOW = 1_790_000_000_000
EARLY = 1_700_000_000_000
HOSTILE = (
    "",
    "Größe",
    "GRÖSSE",
    "ΌΣΟΣ",
    "İstanbul",
    "a'b",
    'a"b',
    "a\\b",
    "%",
    "_",
    "$.x",
    "'); DROP TABLE jobs; --",
    "a\0b",
    ":p",
    "\\u0000",
    "{}",
    "ﬃ",
    "1",
    "null",
)
KEYS = ("Priority", "a.b", 'q"k', "k'", "größe", "\\", "$")
EXTRAS: tuple[Any, ...] = (1, -7, 1.5, 1e22, 2.0, True, {"deep": "1"}, [], ["1", "Größe", 5], *HOSTILE)
TIMES = tuple(NOW - number * 1000 for number in (0, 1, 7, 400_000))


def fill(registry: Registry) -> None:
    states = (None, *JobState)
    for number in range(120):
        text = HOSTILE[number % len(HOSTILE)]
        record = JobRecord(
            job_id=f"job-{number}",
            name=text,
            state=states[number % len(states)],
            type=("", "PyTorchJob")[number % 2],
            user=HOSTILE[number * 7 % len(HOSTILE)],
            resource_group=f"g{number % 2}",
            workspace=text,
            command=f"python {text} x" if number % 3 else None,
            error=text * 2,
            created=TIMES[number % 4] if number % 5 else None,
            start=TIMES[number % 3] - 60_000 if number % 4 else None,
            end=NOW + 5000 * (number % 2) if number % 6 == 0 else None,
            labels={KEYS[number % len(KEYS)]: text, "team": f"T{number % 3}"} if number % 3 else None,
            extra={
                "pai_dlc": {KEYS[number % len(KEYS)]: EXTRAS[number % len(EXTRAS)], "Always": EXTRAS[number % 9]},
                "foas": {
                    "Priority": text,
                    "deep": {"er": {"name": text}, "Priority": number % 3} if number % 5 else text,
                },
            }
            if number % 4
            else None,
        )
        registry.record(("default", "p-1")[number % 2], Records(jobs=[record]), EARLY)
        if number % 9 == 0:
            last = NOW - (number % 11) * 60_000
            registry.observe(
                [
                    Observation(
                        project="default", job=f"job-{number}", replica="", attempt=0, cluster="", node="", device="",
                        first_ms=last - 5000, last_ms=last,
                    )
                ],
                NOW,
            )  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "sqlite-rows", "postgresql-rows"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    kind, _, rows = request.param.partition("-")
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('conditions') / 'registry.db'}"
    else:
        url = request.getfixturevalue("other_module_postgresql_url" if rows else "module_postgresql_url")
    registry = open_registry(url, Retention())
    with pytest.MonkeyPatch.context() as patch:
        if rows:
            # Values too large for a column are read from each matching job.
            patch.setattr(fields, "MOST_FIELDS", 0)
            patch.setattr(table, "MOST_LONG_BYTES", 0)
        fill(registry)
        yield registry
    registry.close()


class Jobs(list[Job]):
    """All jobs, with a short repr for messages."""

    def __repr__(self) -> str:
        return f"<{len(self)} jobs>"


@pytest.fixture(scope="module")
def every(filled: Registry) -> Jobs:
    return Jobs(filled.list_jobs(JobFilter(limit=1000), NOW).jobs)


def shown(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def inside(job: Job, dialect: str, key: str) -> Any:
    value: Any = job.extra.get(dialect, {})
    for name in key.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def texts(job: Job, field: str) -> list[str]:
    kind, _, rest = field.partition(".")
    if kind == "labels":
        return [shown(job.labels[rest])] if rest in job.labels else []
    if kind == "extra":
        dialect, _, key = rest.partition(".")
        value = inside(job, dialect, key)
        if isinstance(value, int | float):
            return [json.dumps(value).replace("e+", "e")]
        found = value if isinstance(value, list) else [value]
        return [shown(one) for one in found if isinstance(one, str)]
    return [getattr(job, field)]


def number(job: Job, field: str) -> float | None:
    if field == "created":
        return next(time for time in (job.created, job.start, job.first_sample, EARLY) if time is not None)
    if field == "duration":
        return None if job.start is None else max(0, (NOW if job.end is None else job.end) - job.start)
    if field.startswith("extra."):
        _, dialect, key = field.split(".", 2)
        value = inside(job, dialect, key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    found: int | None = getattr(job, field)
    return found


def meets(job: Job, condition: Condition) -> bool:
    values: Sequence[Any] = condition.values
    if condition.operator is Operator.BETWEEN:
        value_of_job, (low, high) = number(job, condition.field), values
        return (
            value_of_job is not None and (low is None or value_of_job >= low) and (high is None or value_of_job <= high)
        )
    if condition.field in NUMBERS:
        inside = number(job, condition.field) in values
        return inside is (condition.operator is Operator.IN)
    texts_of_job = texts(job, condition.field)
    if condition.otherwise and (not texts_of_job or (condition.field in FIELDS and texts_of_job == [""])):
        texts_of_job = texts(job, condition.otherwise)
    if condition.operator is Operator.CONTAINS:
        return any(
            shown(str(value)).casefold() in value_of_job.casefold() for value_of_job in texts_of_job for value in values
        )
    inside = any(value_of_job == shown(str(value)) for value_of_job in texts_of_job for value in values)
    return inside is (condition.operator is Operator.IN)


NUMBERS = ("created", "start", "end", "duration")
FIELDS = ("id", "name", "type", "user", "project", "resource_group", "workspace", "command", "error")
NESTED = tuple(f"extra.{dialect}.{key}" for dialect in ("pai_dlc", "foas", "none") for key in (*KEYS, "Always"))
DEEP = ("extra.foas.deep/er/name", "extra.foas.deep/Priority", "extra.foas.deep/er", "extra.foas.Priority/x")
LABELS = tuple(f"labels.{key}" for key in (*KEYS, "team", "none"))
values = st.one_of(
    st.sampled_from(
        (*HOSTILE, "job-1", "p-1", "g0", "PyTorchJob", "t1", "ss", "1.5", "1e22", "2.0", "true", "True", "x" * 60_000)
    ),
    st.integers(-8, 3),
    st.text(max_size=5),
)
numbers = st.one_of(st.sampled_from(TIMES), st.integers(-5, 70_000), st.sampled_from((-1, 2**70, -(2**70))))
conditions = st.one_of(
    st.builds(
        Condition,
        st.sampled_from((*FIELDS, *NESTED, *LABELS, *DEEP)),
        st.sampled_from((Operator.IN, Operator.NOT_IN, Operator.CONTAINS)),
        st.lists(values, max_size=3).map(tuple),
    ),
    st.builds(
        Condition,
        st.sampled_from((*FIELDS, *NESTED, *DEEP)),
        st.sampled_from((Operator.IN, Operator.NOT_IN, Operator.CONTAINS)),
        st.lists(values, max_size=3).map(tuple),
        st.sampled_from((*FIELDS, *NESTED, *DEEP)),
    ),
    st.builds(
        Condition,
        st.sampled_from(NUMBERS),
        st.sampled_from((Operator.IN, Operator.NOT_IN)),
        st.lists(numbers, max_size=3).map(tuple),
    ),
    st.builds(
        Condition,
        st.sampled_from((*NUMBERS, *NESTED)),
        st.just(Operator.BETWEEN),
        st.tuples(st.one_of(st.none(), numbers), st.one_of(st.none(), numbers)),
    ),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(conditions, min_size=1, max_size=3), sort=st.sampled_from(("created", "duration", "name")))
@example(chosen=[Condition("extra.pai_dlc.Always", Operator.BETWEEN, (1, 2))], sort="created")
@example(chosen=[Condition("user", Operator.CONTAINS, ("Σ",))], sort="created")
@example(chosen=[Condition("name", Operator.CONTAINS, ("job-1",), "id")], sort="created")
@example(chosen=[Condition("extra.foas.deep/er/name", Operator.IN, ("Größe",), "user")], sort="created")
def test_conditions_are_a_filter(filled: Registry, every: Jobs, chosen: list[Condition], sort: str) -> None:
    page = filled.list_jobs(JobFilter(conditions=tuple(chosen), sort=sort, limit=1000), NOW)
    expected = {(job.project, job.id) for job in every if all(meets(job, one) for one in chosen)}
    assert {(job.project, job.id) for job in page.jobs} == expected
    assert page.total == len(expected)


@pytest.mark.parametrize(
    "condition",
    [
        Condition("", Operator.IN, ("x",)),
        Condition("state", Operator.IN, ("Running",)),
        Condition("labels", Operator.IN, ("x",)),
        Condition("labels.", Operator.IN, ("x",)),
        Condition("extra.foas", Operator.IN, ("x",)),
        Condition("name; DROP TABLE jobs", Operator.IN, ("x",)),
        Condition("noticed", Operator.IN, (1,)),
        Condition("name", Operator.BETWEEN, (1, 2)),
        Condition("name", Operator.IN, (None,)),
        Condition("start", Operator.CONTAINS, (1,)),
        Condition("start", Operator.IN, ("1",)),
        Condition("start", Operator.BETWEEN, (1,)),
        Condition("start", Operator.BETWEEN, (1, "2")),
        Condition("extra.foas.Priority", Operator.BETWEEN, ("a", "b")),
        Condition("name", Operator.IN, ("x",) * 1001),
        Condition("node", Operator.CONTAINS, ("n",)),
        Condition("node", Operator.BETWEEN, (1, 2)),
        Condition("name", Operator.IN, ("x",), "start"),
        Condition("labels.team", Operator.IN, ("x",), "name"),
        Condition("name", Operator.BETWEEN, (1, 2), "id"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused(filled: Registry, condition: Condition) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        filled.list_jobs(JobFilter(conditions=(condition,)), NOW)
    assert refused.value.field == "conditions"


def test_conditions_and_filters_are_both_met(filled: Registry, every: Jobs) -> None:
    question = JobFilter(
        projects=frozenset({"p-1"}),
        types=frozenset({"PyTorchJob"}),
        states=frozenset({JobState.STOPPED, JobState.FAILED}),
        conditions=(Condition("labels.team", Operator.IN, ("T2",)),),
        sort="state",
        limit=1000,
    )
    expected = {
        job.id
        for job in every
        if job.project == "p-1"
        and job.type == "PyTorchJob"
        and job.state in {JobState.STOPPED, JobState.FAILED}
        and job.labels.get("team") == "T2"
    }
    page = filled.list_jobs(question, NOW)
    assert expected
    assert {job.id for job in page.jobs} == expected
    assert page.total == len(expected)


def test_a_node_is_that_of_any_replica(filled: Registry) -> None:
    places = {"one": ["n1", "n2"], "two": ["n2"], "three": ["n3", ""], "four": []}
    jobs = [
        JobRecord(job_id=job, replicas=[ReplicaRecord(name=f"w-{at}", node=node) for at, node in enumerate(nodes)])
        for job, nodes in places.items()
    ]
    filled.record("nodes", Records(jobs=jobs), NOW)
    try:
        for chosen in ({"n1"}, {"n2"}, {"n1", "n3"}, {"n"}, {"N1"}, set[str]()):
            for operator in (Operator.IN, Operator.NOT_IN):
                condition = Condition("node", operator, tuple(sorted(chosen)))
                page = filled.list_jobs(JobFilter(projects=frozenset({"nodes"}), conditions=(condition,)), NOW)
                inside = {job for job, nodes in places.items() if chosen & set(nodes)}
                expected = inside if operator is Operator.IN else places.keys() - inside
                assert {job.id for job in page.jobs} == expected, condition
                assert page.total == len(expected)
    finally:
        for job in places:
            filled.delete_job("nodes", job)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), part=st.text(max_size=3))
@example(text="ΌΣΟΣ", part="ς")
@example(text="Straße", part="SS")
def test_case_is_folded_as_python_folds_it(filled: Registry, text: str, part: str) -> None:
    # Compare the databases directly: a job's text can contain anything except NUL and lone surrogates.
    record = JobRecord(job_id="folded", error=text)
    filled.record("fold", Records(jobs=[record]), NOW)
    condition = Condition("error", Operator.CONTAINS, (part,))
    page = filled.list_jobs(JobFilter(projects=frozenset({"fold"}), conditions=(condition,)), NOW)
    assert page.total == (shown(part).casefold() in shown(text).casefold())


def test_texts_with_what_a_database_cannot_keep_find_nothing(filled: Registry) -> None:
    for text in ("\0", "\ud800", "a\0", "%" * 60_000):
        question = JobFilter(
            name_contains=text, ids=(text,), users=frozenset({text}), projects=frozenset({"default", "p-1"})
        )
        assert filled.list_jobs(question, NOW).total == 0
