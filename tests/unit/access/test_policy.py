"""Tests of policies against a naive evaluator that matches every statement with every name."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.actions import list_action_names, list_services
from jobmeter.access.decide import UNNAMED, authorize, choose_key_project, writes
from jobmeter.access.policy import SYSTEM_POLICIES, compile_policies, decode_documents, encode_policies
from jobmeter.access.principal import Principal, Role, Scope
from jobmeter.dialects.registry import list_dialects
from jobmeter.errors import ForbiddenError, InvalidRequestError
from jobmeter.model.glob import Glob
from jobmeter.model.job import Job, Node
from jobmeter.server.native.router import ENDPOINTS

OPERATIONS = [
    ("pai-dlc", "GetJobMetrics"),
    ("pai-dlc", "ListJobs"),
    ("pai-studio", "GetUserViewMetrics"),
    ("native", "getJob"),
]
ACTIONS = ["*", "pai:*", "PAI:Get*", "paidlc:GetJobMetrics", "paidlc:List????", "jobmeter:getJob", "*:Get*", "xtrace:*"]
RESOURCES = [
    "*", "acs:*:*:*:*", "acs:pai:*:*:*", "acs:*:*:p:*", "acs:*:cn-hangzhou:p?:*", "acs:*:*:*:project/p",
    "acs:paidlc:*:*:resourcegroup/g*", "acs:*:*:*:workspace/w1", "acs:*:*:*:cluster/c1", "acs:*:*:q:job/j",
    "acs:*:*:*:workspace/w1/job/*", "acs:jobmeter:*:*:*",
]  # fmt: skip
STATEMENTS = st.fixed_dictionaries(
    {
        "Effect": st.sampled_from(["Allow", "Allow", "Deny"]),
        "Action": st.one_of(st.sampled_from(ACTIONS), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=3)),
        "Resource": st.one_of(st.sampled_from(RESOURCES), st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=3)),
    }
)
JOBS = st.builds(
    Job,
    id=st.sampled_from(["j", "k"]), project=st.sampled_from(["p", "q"]), workspace=st.sampled_from(["", "w1", "w2"]),
    resource_group=st.sampled_from(["", "g1", "h"]),
)  # fmt: skip


def naive_glob(pattern: str, text: str) -> bool:
    parts = [".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def naive(policies: list[dict[str, Any]], api: str, operation: str, job: Job, cluster: str) -> bool:
    """Evaluate policies naively: deny wins, and deny is the default."""
    relatives = ["", f"project/{job.project}", f"job/{job.id}"]
    relatives += [f"resourcegroup/{job.resource_group}"] if job.resource_group else []
    relatives += [f"workspace/{job.workspace}", f"workspace/{job.workspace}/job/{job.id}"] if job.workspace else []
    relatives += [f"cluster/{cluster}"] if cluster else []
    arns = [f"acs:{one}:any:{job.project}:{relative}" for one in list_services(api) for relative in relatives]
    verdict = False
    for statement in (one for policy in policies for one in policy["Statement"]):
        names = [name.lower() for name in list_action_names(api, operation)]
        if not any(naive_glob(action.lower(), name) for action in listed(statement["Action"]) for name in names):
            continue
        wanted = [
            text if text == "*" else re.sub(r"^acs:([^:]*):[^:]*:", r"acs:\1:any:", text)
            for text in listed(statement["Resource"])
        ]
        if any(naive_glob(text, arn) for text in wanted for arn in arns):
            if statement["Effect"] == "Deny":
                return False
            verdict = True
    return verdict


def principal(*policies: dict[str, Any], project: str | None = None, role: Role = Role.ADMIN) -> Principal:
    text = encode_policies((f"p{number}", json.dumps(policy).encode()) for number, policy in enumerate(policies))
    return Principal(id="k", name="k", role=role, project=project, policies=compile_policies(text))


def sees(who: Principal, operation: tuple[str, str], job: Job, cluster: str) -> bool:
    try:
        scope = authorize(who, "jobs:read", None, operation, by_resource=True)
    except ForbiddenError:
        return False
    return scope.shows(job, [cluster])


@given(
    policies=st.lists(st.lists(STATEMENTS, min_size=1, max_size=4), min_size=1, max_size=3),
    operation=st.sampled_from(OPERATIONS),
    job=JOBS,
    cluster=st.sampled_from(["", "c1", "c2"]),
    project=st.sampled_from([None, "p"]),
)
def test_the_compiled_policies_decide_as_the_naive_evaluator(
    policies: list[list[dict[str, Any]]], operation: tuple[str, str], job: Job, cluster: str, project: str | None
) -> None:
    made = [{"Version": "1", "Statement": statements} for statements in policies]
    expected = naive(made, *operation, job, cluster) and project in (None, job.project)
    assert sees(principal(*made, project=project), operation, job, cluster) == expected


@given(
    policies=st.lists(st.lists(STATEMENTS, min_size=1, max_size=4), min_size=1, max_size=3),
    operation=st.sampled_from(OPERATIONS),
    job=JOBS,
    cluster=st.sampled_from(["", "c1", "c2"]),
    project=st.sampled_from([None, "p"]),
)
def test_an_operation_that_does_not_honour_a_partial_grant_answers_for_whole_projects_alone(
    policies: list[list[dict[str, Any]]], operation: tuple[str, str], job: Job, cluster: str, project: str | None
) -> None:
    made = [{"Version": "1", "Statement": statements} for statements in policies]
    try:
        scope = authorize(principal(*made, project=project), "jobs:read", None, operation)
    except ForbiddenError:
        return
    assert scope.grant is None
    assert not scope.allows(job.project) or naive(made, *operation, job, cluster)


def test_what_honours_a_partial_grant_reads_alerts_jobs_metrics_or_nodes() -> None:
    actions: set[str | None] = {
        one.action for dialect in list_dialects() for one in dialect.operations if one.by_resource
    }
    actions |= {one.action for one in ENDPOINTS if one.by_resource}
    assert actions == {"alerts:read", "metrics:read", "jobs:read", "nodes:read"}


@given(pattern=st.text("ab*?.", max_size=12), text=st.text("ab.\n", max_size=12))
def test_patterns_match_as_plain_ones_do(pattern: str, text: str) -> None:
    assert Glob(pattern).matches(text) == naive_glob(pattern, text)


def test_a_pattern_of_many_stars_does_not_take_for_ever() -> None:
    assert not Glob("a*" * 200 + "b").matches("a" * 500)


def test_every_operation_has_an_action_and_no_two_of_an_api_share_it() -> None:
    for dialect in list_dialects():
        names = [name for one in dialect.operations for name in list_action_names(dialect.name, one.name)[:1]]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z-]+:[A-Za-z_]+", name) for name in names), names
    own = [list_action_names("native", one.name)[0] for one in ENDPOINTS if one.action]
    assert len(set(own)) == len(own)
    assert list_action_names("pai-dlc", "GetJobMetrics") == ("paidlc:GetJobMetrics", "pai:GetJobMetrics")


def named(*names: str) -> Principal:
    text = encode_policies((name, None) for name in names)
    return Principal(id="k", name="k", role=Role.ADMIN, policies=compile_policies(text))


def allowed(who: Principal, action: str, *operation: str) -> bool:
    try:
        authorize(who, action, None, (operation[0], operation[1]))
    except ForbiddenError:
        return False
    return True


def test_the_named_policies_allow_what_the_vendor_s_pages_say() -> None:
    full, reading, arms = map(named, ("AliyunPAIFullAccess", "AliyunPAIReadOnlyAccess", "AliyunARMSFullAccess"))
    for api, operation in (
        ("eflo", "ListSyslogs"),
        ("eas", "DescribeResourceLog"),
        ("pai-dlc", "GetJobMetrics"),
    ):
        assert allowed(full, "jobs:read", api, operation)
        assert allowed(reading, "jobs:read", api, operation)
        assert not allowed(arms, "jobs:read", api, operation)
    assert allowed(full, "jobs:write", "eas", "CreateResourceLog")
    assert not allowed(reading, "jobs:write", "eas", "CreateResourceLog")
    assert allowed(arms, "jobs:read", "pai-llm-trace", "GetXtraceToken")
    assert not allowed(full, "jobs:read", "pai-llm-trace", "GetXtraceToken")
    assert not allowed(full, "jobs:read", "native", "getJob")
    assert allowed(named("JobmeterFullAccess"), "server:admin", "native", "backup")
    assert all(encode_policies([(name, None)]) for name in SYSTEM_POLICIES)


ON = {"Version": "1", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "acs:*:*:p:*"}]}


def test_a_policy_narrows_to_projects_and_its_role_still_bounds_it() -> None:
    who = principal(ON)
    assert authorize(who, "jobs:read", None, ("native", "listJobs")) == Scope(frozenset({"p"}))
    for action, project in (("jobs:read", "q"), ("server:read", None), ("keys:read", None), ("jobs:write", None)):
        with pytest.raises(ForbiddenError):
            authorize(who, action, project, ("native", "x"))
    own = principal(ON, project="p")
    assert authorize(own, "jobs:write", None, ("native", "recordJobs")) == Scope(frozenset({"p"}))
    with pytest.raises(ForbiddenError):
        authorize(principal(ON, project="p", role=Role.READER), "jobs:write", None, ("native", "recordJobs"))
    with pytest.raises(ForbiddenError):
        authorize(principal(ON, project="q"), "jobs:read", None, ("native", "listJobs"))


def test_a_key_with_policies_makes_no_keys_and_does_nothing_without_a_name() -> None:
    who = named("JobmeterFullAccess")
    with pytest.raises(ForbiddenError):
        choose_key_project(who)
    with pytest.raises(ForbiddenError):
        authorize(who, "jobs:read", None, UNNAMED)


def test_single_resources_are_for_reading() -> None:
    group = {"Version": "1", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "acs:*:*:*:resourcegroup/g"}]}
    who = principal(group, project="p")
    scope = authorize(who, "nodes:read", None, ("native", "listNodes"), by_resource=True)
    assert scope.shows_node(Node(name="n", project="p", resource_group="g"))
    assert not scope.shows_node(Node(name="n", project="q", resource_group="g"))
    assert not scope.shows_node(Node(name="n", project="p", resource_group="h"))
    assert scope.shows_group("p", "g")
    assert not scope.shows_group("p", "h")
    for action in ("jobs:write", "jobs:delete", "ingest:write", "usage:read", "server:read", "keys:read"):
        for by_resource in (False, writes(action)):
            with pytest.raises(ForbiddenError):
                authorize(who, action, None, ("native", "x"), by_resource=by_resource)


@pytest.mark.parametrize(
    "change",
    [
        {"Condition": {}}, {"NotAction": "x"}, {"Effect": "Maybe"}, {"Action": []}, {"Action": ""}, {"Action": 1},
        {"Resource": "acs:pai"}, {"Resource": "arn:aws:s3:::x"}, {"Resource": []}, {"Action": "x" * 600},
    ],
)  # fmt: skip
def test_a_document_that_is_wrong_is_refused(change: dict[str, Any]) -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*", **change}
    with pytest.raises(InvalidRequestError) as refused:
        encode_policies([("x", json.dumps({"Version": "1", "Statement": [statement]}).encode())])
    assert refused.value.field == "policy"


EMPTY = b'{"Version": "1", "Statement": []}'


@pytest.mark.parametrize("content", [b"", b"[]", b'{"Version": "2", "Statement": []}', EMPTY, b"\xff", b" " * 70_000])
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        encode_policies([("x", content)])


def test_a_name_that_is_unknown_is_refused_and_one_that_went_allows_nothing() -> None:
    with pytest.raises(InvalidRequestError, match="AliyunPAIFullAccess"):
        encode_policies([("AliyunFullAccess", None)])
    gone = '[{"name":"Gone"}]'
    assert decode_documents(gone) == [("Gone", {"Version": "1", "Statement": []})]
    assert not allowed(
        Principal(id="k", name="k", role=Role.ADMIN, policies=compile_policies(gone)), "jobs:read", "native", "x"
    )
    assert decode_documents("") == []
    assert compile_policies("") is None
