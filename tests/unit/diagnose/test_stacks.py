"""Tests of finding the awaited rank in random stacks: it is named whatever its place, name and number."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.diagnose.places import describe_place, may_work
from jobmeter.diagnose.stack_findings import add_stacks
from jobmeter.diagnose.stacks import compare
from jobmeter.model.event import STACK_EVIDENCE, Event, EventSource, Level
from jobmeter.model.finding import Finding, FindingRole, Severity, Subject
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.stacks import GroupProgress, NodeEvidence, RankEvidence, StackFrame, ThreadStack
from jobmeter.model.task import NodeAnswer

RECEIVES = {"state": "S", "call": "recvfrom", "target": "socket:[7]", "wait": "wait_woken"}
SLEEPS = {"state": "S", "call": "clock_nanosleep", "wait": "hrtimer_nanosleep"}
WORDS = st.from_regex(r"[a-z]{1,3}_step[0-9]", fullmatch=True)


def stack(*functions, line=10):
    """Return frames, innermost first, of functions named from the outermost to the innermost."""
    return [StackFrame(name, f"/srv/train/{name}.py", line) for name in reversed(functions)]


def rank(at, functions=(), line=10, **more):
    threads = [ThreadStack(100 + at, "MainThread", stack(*functions, line=line))] if functions else []
    return RankEvidence(replica=f"worker-{at}", rank=at, pid=100 + at, threads=threads, **{"moved": False, **more})


def view(size, state=JobState.RUNNING):
    job = Job(id="j", project="p", state=JobState.RUNNING, start=0, recorded=True)
    replicas = [Replica(name=f"worker-{at}", rank=at, node=f"node-{at % 2}", state=state) for at in range(size)]
    return JobView(job=job, replicas=replicas, allocations=[])


def answers(ranks):
    return [
        NodeAnswer(node=f"node-{side}", time=1, stacks=NodeEvidence([one for one in ranks if one.rank % 2 == side]))
        for side in (0, 1)
    ]


def result_of(ranks):
    return compare(view(len(ranks)), answers(ranks))


def named(result):
    return {one.replica for one in result.named}


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(3, 40),
    data=st.data(),
    before=st.lists(WORDS, max_size=4),
    wait=st.lists(WORDS, min_size=1, max_size=4),
    away=st.lists(WORDS, min_size=1, max_size=4),
    calls=st.booleans(),
)
def test_the_odd_one_out_is_named_wherever_it_is(size, data, before, wait, away, calls):
    """The decision uses the places of the ranks, and their system calls, but no function names."""
    odd = data.draw(st.integers(0, size - 1))
    wait, away = [f"w{word}" for word in wait], [f"a{word}" for word in away]
    waiting, other = (RECEIVES, SLEEPS) if calls else ({"state": "S"}, {"state": "S"})
    ranks = [
        rank(at, ["main", *before, *(away if at == odd else wait)], **(other if at == odd else waiting))
        for at in data.draw(st.permutations(range(size)))
    ]
    result = result_of(ranks)
    assert named(result) == {f"worker-{odd}"}
    assert f"`{away[-1]}` ({away[-1]}.py:10)" in result.named[0].text
    assert f"in `{wait[0]}`" in result.sentence


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 20), data=st.data(), functions=st.lists(WORDS, min_size=1, max_size=5))
def test_no_rank_is_named_where_all_are_at_one_place(size, data, functions):
    lines = data.draw(st.integers(1, 99))
    assert result_of([rank(at, functions, lines, **RECEIVES) for at in range(size)]).named == []


def test_ranks_that_wait_in_different_parts_of_one_collective_are_all_in_it():
    """The root of a tree receives from its children, and the others from the root: all are in the collective."""
    ranks = [rank(0, ["main", "all_reduce", "gather"], **RECEIVES)]
    ranks += [rank(at, ["main", "all_reduce", "scatter"], **RECEIVES) for at in range(1, 4)]
    assert result_of(ranks).named == []


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_the_one_outside_of_a_collective_is_named(odd):
    ranks = [rank(at, ["main", "load" if at == odd else "all_reduce"], state="S") for at in range(2)]
    assert named(result_of(ranks)) == {f"worker-{odd}"}


def test_of_two_ranks_at_unknown_places_none_is_named():
    assert result_of([rank(0, ["main", "one"], state="S"), rank(1, ["main", "other"], state="S")]).named == []


def test_a_rank_on_another_line_of_the_same_function():
    ranks = [rank(at, ["main"], 5 if at == 1 else 9, **(SLEEPS if at == 1 else RECEIVES)) for at in range(3)]
    assert named(result_of(ranks)) == {"worker-1"}


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"state": "T"}, "is stopped by a signal or a debugger in `all_reduce`"),
        ({"state": "X", "exit_code": 137}, "is gone: SIGKILL ended it"),
        ({"state": "X", "exit_code": 3}, "is gone: it exited with status 3"),
        ({"state": "Z"}, "is gone: it has no process"),
    ],
)
def test_a_stopped_or_gone_rank_explains_the_others_wherever_they_are(evidence, words):
    ranks = [rank(at, ["main", "all_reduce"], **RECEIVES) for at in range(3)]
    ranks[0] = rank(0, ["main", "all_reduce", "retry"], **SLEEPS)
    ranks.append(rank(3, ["main", "all_reduce"], **evidence))
    result = result_of(ranks)
    assert named(result) == {"worker-3"}
    assert words in result.named[0].text
    assert "worker-1, worker-2 wait in `all_reduce`" in result.sentence


def test_a_rank_of_which_nobody_found_a_process_is_gone():
    found = [rank(at, ["main", "all_reduce"], **RECEIVES) for at in range(3)]
    assert named(compare(view(4), answers(found))) == {"worker-3"}
    assert named(compare(view(4), answers(found)[:1])) == set(), "its node gave no answer"


def test_the_flight_recorder_decides():
    """All wait in one place of the program, and one of them has not entered the last collective."""

    def progress(at):
        return [GroupProgress(group="0", members=4, enqueued=11 if at == 2 else 12, operation="all_reduce")]

    ranks = [rank(at, ["main", "train", "synchronize"], state="R", groups=progress(at)) for at in range(4)]
    result = result_of(ranks)
    assert named(result) == {"worker-2"}
    assert "has not entered all_reduce 12 of group 0" in result.sentence


def test_without_stacks_the_kernel_decides():
    missing = ["no Python stacks"]
    ranks = [rank(at, missing=missing, **(SLEEPS if at == 1 else RECEIVES)) for at in range(4)]
    result = result_of(ranks)
    assert named(result) == {"worker-1"}
    assert "it sleeps (in the kernel's hrtimer_nanosleep)" in result.sentence
    assert result.notes == ["worker-0, worker-1, worker-2, worker-3: no Python stacks"]


def test_a_rank_blocked_by_a_filesystem_is_named():
    ranks = [rank(at, ["main", "all_reduce"], **RECEIVES) for at in range(3)]
    ranks.append(rank(3, ["main", "save"], state="D", call="openat", wait="rpc_wait_bit_killable"))
    result = result_of(ranks)
    assert named(result) == {"worker-3"}
    assert "waits for a network filesystem (uninterruptible) in `save`" in result.sentence


SLOW: dict[str, dict[str, Any]] = {
    "a write to a slow disk": {"state": "D", "call": "fsync", "wait": "folio_wait_bit_common"},
    "an unknown wait in the kernel": {"state": "D"},
    "a flush": {"state": "S", "call": "fsync"},
    "a write over the network": {
        "state": "S",
        "call": "write",
        "target": "/mnt/step.pt",
        "wait": "request_wait_answer",
    },
    "a network filesystem": {"state": "S", "wait": "ll_file_read"},
    "data of its loader": {"state": "S", "call": "poll", "wait": "do_poll"},
    "steps": {"moved": True},
}
STUCK: dict[str, dict[str, Any]] = {
    "sleep": SLEEPS,
    "a lock": {"state": "S", "call": "futex", "wait": "futex_wait_queue"},
    "a pipe": {"state": "S", "call": "read", "target": "/tmp/commands", "wait": "pipe_read"},
    "a terminal": {"state": "S", "call": "read", "target": "/dev/pts/0", "wait": "n_tty_read"},
    "the end of a child": {"state": "S", "call": "wait4", "wait": "do_wait"},
    "a debugger on a slow disk": {"state": "T", "moved": True},
}


@pytest.mark.parametrize("reason", [*SLOW, *STUCK])
def test_a_named_rank_may_be_slow_instead_of_stuck(reason):
    evidence = rank(3, ["main", "save"], **{"state": "S", **{**SLOW, **STUCK}[reason]})
    if reason == "data of its loader":
        loader = StackFrame("_try_get_data", "/opt/python/torch/utils/data/dataloader.py", 1288)
        evidence = replace(evidence, threads=[ThreadStack(103, "MainThread", [loader, *stack("main", "epoch")])])
    others = [rank(at, ["main", "all_reduce"], **RECEIVES) for at in range(3)]
    [odd] = result_of([*others, evidence]).named
    assert (odd.replica, odd.may_work) == ("worker-3", reason in SLOW)


def test_a_poll_is_no_network_filesystem():
    evidence = RankEvidence(replica="w", state="S", wait="poll_schedule_timeout.constprop.0")
    assert describe_place(evidence).startswith("waits for data from another process")
    assert not may_work(evidence)


def test_ranks_that_move_may_be_at_work():
    ranks = [replace(rank(at, ["main", "load" if at else "step"], state="R"), moved=True) for at in range(4)]
    assert "every rank moved within a second" in result_of(ranks).sentence


def test_no_answer_and_what_nccl_reports_are_notes():
    result = compare(view(2), [NodeAnswer(node="node-0"), NodeAnswer(node="node-1", time=1, stacks=NodeEvidence([]))])
    assert "node-0: no answer from its agent" in result.notes
    evidence = NodeEvidence([rank(0, ["main"], **RECEIVES)], ["DEAD: 1 job process is considered dead"], ["it is late"])
    notes = compare(view(1), [NodeAnswer(node="node-0", time=1, stacks=evidence)]).notes
    assert notes == ["NCCL's RAS: DEAD: 1 job process is considered dead", "node-0: it is late"]


def test_several_ranks_of_one_replica_have_their_numbers():
    ranks = [
        replace(rank(at, ["main", "load" if at == 2 else "all_reduce"], state="S"), replica="pod") for at in range(4)
    ]
    job = JobView(job=view(1).job, replicas=[Replica(name="pod", node="n")], allocations=[])
    result = compare(job, [NodeAnswer(node="n", time=1, stacks=NodeEvidence(ranks))])
    assert result.sentence.startswith("pod rank 2 (n, pid 102) is not in the collective")


# Findings made of it


def finding(rule="hang_hw", start=100_000, end=200_000):
    return Finding(
        rule=rule, role=FindingRole.ROOT, severity=Severity.CRITICAL, confidence=0.9, subject=Subject("job", "j"),
        start=start, end=end, evidence=[], advice="", source="", sentence="All 4 ranks have stood still",
    )  # fmt: skip


def compared(time, text, replica="", level=Level.WARNING):
    source = EventSource.REPLICA if replica else EventSource.JOB
    return Event(time=time, job="j", source=source, reason=STACK_EVIDENCE, message=text, replica=replica, level=level)


def test_a_finding_takes_the_sentence_of_the_newest_evidence_since_it_began():
    events = [
        compared(50_000, "before it"),
        compared(110_000, "first"),
        compared(150_000, "second"),
        compared(150_000, "it sleeps", "worker-2"),
        compared(900_000, "of another time"),
    ]
    hang, other = add_stacks([finding(), finding("xid")], events)
    assert hang.sentence == "second"
    assert [(one.kind, one.text, one.replica) for one in hang.evidence] == [
        ("status", "All 4 ranks have stood still", ""),
        ("event", "it sleeps", "worker-2"),
    ]
    assert other == finding("xid")


def test_evidence_that_names_no_rank_leaves_the_sentence():
    [hang] = add_stacks([finding()], [compared(150_000, "all are at one place", level=Level.INFO)])
    assert hang.sentence == "All 4 ranks have stood still"
    assert [one.text for one in hang.evidence] == ["all are at one place"]
    assert add_stacks([finding()], []) == [finding()]
