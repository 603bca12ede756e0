"""Tests of the causes of a replica's end: tracebacks, their chains, the first of several ends, and mere mentions."""

import numpy as np
import pytest
from benchmarks.faults.build import START, Made, batch
from benchmarks.faults.wordings import CHATTER, UNCAUGHT, draw_line
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.failures import list_failed_replicas
from jobmeter.diagnose.rules import uncaught_error
from jobmeter.diagnose.thresholds import load
from jobmeter.model.event import ALERT_FIRING, Event, EventSource, Level
from jobmeter.model.finding import FindingRole, Severity
from jobmeter.model.job import JobState
from jobmeter.model.time import HOUR, MINUTE

THRESHOLDS = load()
TRACE = "Traceback (most recent call last):"


def made(**more):
    return Made(np.random.default_rng(0), devices=0, length=HOUR, **more)


def found(job):
    return examine(job.case(), THRESHOLDS)


def root(job):
    roots = [one for one in found(job) if one.role is FindingRole.ROOT]
    assert len(roots) == 1, roots
    return roots[0]


def test_the_first_exception_of_a_chain_counts():
    job = made(replicas=1)
    job.fail(
        "worker-0",
        1,
        TRACE,
        '  File "a.py", line 1, in read',
        "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        TRACE,
        '  File "a.py", line 2, in main',
        "RuntimeError: cannot start",
    )
    one = root(job)
    assert one.rule == "file_missing"
    assert one.evidence[0].text.startswith("FileNotFoundError")
    assert [evidence.kind for evidence in one.evidence][-1] == "status"


@pytest.mark.parametrize("source", [EventSource.SERVER, EventSource.JOB])
def test_an_alert_about_a_cause_is_no_evidence_of_the_cause(source):
    job = made(replicas=1)
    job.fail("worker-0", 1)
    text = "JobFailed (critical): the job was preempted"
    event = Event(time=START + HOUR - 1_000, job="j", source=source, reason=ALERT_FIRING, message=text)
    findings = examine(replace(job.case(), events=[event]), THRESHOLDS)
    assert any(one.rule == "preempted" for one in findings) is (source is EventSource.JOB)


def test_an_earlier_exception_that_was_caught_does_not_count():
    job = made(replicas=1)
    job.fail("worker-0", 1, TRACE, " x", "PermissionError: no", "retry", TRACE, " y", "ValueError: in the end")
    assert root(job).evidence[0].text == "ValueError: in the end"


def test_the_rank_that_a_launcher_puts_before_a_line_is_passed_over():
    job = made(replicas=1)
    job.fail("worker-0", 1, f"[rank3]: {TRACE}", "[rank3]:   at x", "[rank3]: KeyError: 'a'")
    assert root(job).rule == "python_exception"


def test_the_first_to_end_has_the_root_and_the_others_follow():
    job = made(replicas=4)
    job.fail("worker-2", 1, TRACE, " x", "ValueError: bad", early=5_000)
    for name in ("worker-0", "worker-1", "worker-3"):
        job.fail(name, 1, TRACE, " x", "RuntimeError: NCCL error: timed out")
    findings = found(job)
    assert [(one.rule, one.role, one.subject.name) for one in findings[:1]] == [
        ("python_exception", FindingRole.ROOT, "worker-2")
    ]
    assert {(one.rule, one.role) for one in findings[1:]} == {("nccl_timeout", FindingRole.CASCADE)}


def test_a_collective_that_times_out_first_still_follows_from_a_recorded_cause():
    job = made(replicas=2)
    job.fail("worker-0", 134, "Watchdog caught collective operation timeout", early=9_000)
    job.fail("worker-1", 1, TRACE, " x", "torch.OutOfMemoryError: CUDA out of memory.")
    first, *rest = found(job)
    assert (first.rule, first.role, first.subject.name) == ("cuda_oom", FindingRole.ROOT, "worker-1")
    assert {(one.rule, one.role) for one in rest} <= {
        ("nccl_timeout", FindingRole.CASCADE),
        ("rank_lost", FindingRole.CASCADE),
    }


def test_the_same_error_everywhere_is_one_root_and_confirmations():
    job = made(replicas=3)
    for at, name in enumerate(job.names):
        job.fail(name, 2, "train.py: error: unrecognized arguments: --lr", early=100 * at)
    findings = found(job)
    assert [one.rule for one in findings] == ["config_error"] * 3
    assert [one.role for one in findings] == [FindingRole.ROOT, FindingRole.CONFIRMATION, FindingRole.CONFIRMATION]


def test_many_of_one_kind_are_reported_in_one():
    job = made(replicas=40)
    for at, name in enumerate(job.names):
        job.fail(name, 1, "Connection closed by peer" if at else "CUDA out of memory", early=0 if at else 3_000)
    findings = found(job)
    assert [(one.rule, one.role) for one in findings] == [
        ("cuda_oom", FindingRole.ROOT),
        ("nccl_timeout", FindingRole.CASCADE),
    ]
    assert findings[1].sentence.endswith("Connection closed by peer; 38 more replicas likewise")
    assert len(findings[1].replicas) == 39
    assert all("Connection closed by peer" in one.text for one in findings[1].evidence)
    assert findings[1].subject.kind == "job"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Tried to allocate 2.5 GiB: CUDA out of memory (GPU 3)", False),
        ("torch.OutOfMemoryError: out of memory", False),
        ("worker-0: OOMKilled", True),
    ],
)
def test_the_memory_of_a_device_is_not_the_hosts(error, expected):
    job = made(replicas=1, error=error)
    job.fail("worker-0", 1)
    assert ("host_oom_kill" in {one.rule for one in found(job)}) is expected


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.QUEUED])
def test_a_job_that_did_not_fail_has_no_cause(state):
    job = made(replicas=1)
    job.say(TRACE, HOUR - 500, level=Level.ERROR)
    job.say("ValueError: caught", HOUR - 500, level=Level.ERROR)
    job.state = state
    assert found(job) == []


def test_a_job_without_replicas_that_say_so_failed_as_a_whole():
    job = made(replicas=1)
    job.state, job.error = JobState.FAILED, "lost"
    one = root(job)
    assert (one.rule, one.subject.kind) == ("node_failure", "job")


def test_a_traceback_long_before_the_end_says_nothing():
    job = made(replicas=1)
    for text in (TRACE, " x", "ValueError: an hour ago"):
        job.say(text, 0, level=Level.ERROR)
    job.fail("worker-0", 9)
    assert root(job).rule == "unknown_exit"


def test_a_signal_of_ours_is_no_exception():
    job = made(replicas=1)
    job.fail("worker-0", 137, TRACE, " x", "ValueError: printed by a handler")
    one = root(job)
    assert one.rule == "killed"
    assert one.severity is Severity.CRITICAL


def test_the_last_attempt_counts():
    job = made(replicas=1)
    job.fail("worker-0", 1)
    case = job.case()
    assert [failure.exit_code for failure in list_failed_replicas(case, THRESHOLDS["causes"])] == [1]


def test_hostile_lines_take_no_time():
    job = made(replicas=1)
    job.fail("worker-0", 1, *["loss" + "=" * 60_000, "NCCL" + " " * 60_000, "(" * 60_000, TRACE] * 20)
    assert found(job)[0].rule == "unknown_exit"


def with_fault(job, code=79, before=60_000):
    job.say_kernel(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=77, name=python", job.length - before)
    return job


def test_an_end_without_a_sign_gives_way_to_a_cause_that_shows_a_moment_later():
    """The order of two ends is uncertain if they are this close together."""
    job = made(replicas=3)
    job.fail("worker-0", 1, early=3_000)
    job.fail("worker-1", 1, TRACE, " x", "torch.OutOfMemoryError: CUDA out of memory.")
    job.fail("worker-2", 143, early=1_000)
    first, *rest = found(job)
    assert (first.rule, first.role, first.subject.name) == ("cuda_oom", FindingRole.ROOT, "worker-1")
    assert {(one.rule, one.role) for one in rest} >= {
        ("unknown_exit", FindingRole.CASCADE),
        ("killed", FindingRole.CASCADE),
    }
    assert FindingRole.ROOT not in {one.role for one in rest}


def test_a_cause_that_began_before_an_end_without_a_sign_is_the_root_however_late_its_replica_ended():
    job = made(replicas=2)
    job.fail("worker-0", 137, early=60_000)
    job.fail("worker-1", 1, "CUDA error: uncorrectable ECC error encountered", "torch: dumping core")
    assert root(job).rule == "killed"  # it began a minute after the end of the other rank
    job.say("CUDA error: uncorrectable ECC error encountered", job.length - 61_000, "worker-1")
    assert (root(job).rule, root(job).subject.name) == ("gpu_hardware", "worker-1")


def test_a_cause_long_after_an_end_without_a_sign_is_not_its_cause():
    job = made(replicas=2)
    job.fail("worker-0", 1, early=30_000)
    job.fail("worker-1", 1, TRACE, " x", "FileNotFoundError: [Errno 2] No such file or directory: 'rank0.pt'")
    assert (root(job).rule, root(job).subject.name) == ("unknown_exit", "worker-0")


def test_an_exception_is_a_sign_and_gives_way_to_no_later_cause():
    job = made(replicas=2)
    job.fail("worker-0", 1, TRACE, " x", "ValueError: bad", early=3_000)
    job.fail("worker-1", 1, TRACE, " x", "torch.OutOfMemoryError: CUDA out of memory.")
    assert (root(job).rule, root(job).subject.name) == ("python_exception", "worker-0")


def test_collectives_that_time_out_everywhere_do_not_hide_the_one_xid():
    job = with_fault(made(replicas=4))
    for name in job.names:
        job.fail(name, 134, "Watchdog caught collective operation timeout")
    first, *rest = found(job)
    assert (first.rule, first.role, first.severity) == ("xid", FindingRole.ROOT, Severity.CRITICAL)
    assert {one.role for one in rest} == {FindingRole.CASCADE}


def test_an_end_without_a_sign_follows_from_a_critical_fault_of_a_device():
    job = with_fault(made(replicas=1))
    job.fail("worker-0", 1)
    assert root(job).rule == "xid"
    assert [(one.rule, one.severity) for one in found(job) if one.role is FindingRole.CASCADE] == [
        ("unknown_exit", Severity.WARNING)
    ]


@pytest.mark.parametrize(("code", "before"), [(63, 60_000), (79, 30 * 60_000), (79, -30_000)])
def test_a_slight_fault_or_one_of_another_time_explains_nothing(code, before):
    job = made(replicas=1)
    job.fail("worker-0", 1, early=40_000)
    with_fault(job, code, before + 40_000)
    roots = {one.rule for one in found(job) if one.role is FindingRole.ROOT}
    assert roots == {"unknown_exit", "xid"}


@pytest.mark.parametrize("seed", range(20))
def test_a_stop_of_all_ranks_loses_none(seed):
    """Stop signals reach the ranks in any order within seconds, and each rank ends in the same way."""
    random = np.random.default_rng(seed)
    job = made(replicas=int(random.integers(2, 33)))
    code = int(random.choice([129, 130, 137, 143]))
    for name in job.names:
        job.fail(name, code, early=int(random.integers(0, 40_000)))
    job.state = (JobState.STOPPED, JobState.FAILED)[seed % 2]
    assert "rank_lost" not in {one.rule for one in found(job)}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("state", [JobState.STOPPED, JobState.FAILED, JobState.RUNNING])
def test_a_rank_whose_samples_stop_long_before_the_others_is_lost(seed, state):
    """The rank's own end is unknown, and the job may end later in any way."""
    random = np.random.default_rng(seed)
    job = batch(random)
    lost = job.names[int(random.integers(job.replicas))]
    since = int(random.integers(10, 50)) * MINUTE
    job.gap = (lost, since, job.length + HOUR)
    if state.finished:
        for name in job.names:
            job.fail(name, 143)
        job.ends[lost] = (START + job.length - 1, None, "")
    job.state = state
    rank_lost = [one for one in found(job) if one.rule == "rank_lost"]
    assert [one.subject.name for one in rank_lost] == [lost]
    assert abs(rank_lost[0].start - (START + since)) <= MINUTE


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("owner", ["", "task_memcg=/slurm/uid_1/job_99/step_0,task=python,"])
@pytest.mark.parametrize("apart", [-9_000, 0, 9_000, 60_000])
def test_a_kill_that_the_kernel_reports_without_a_job_explains_an_end_at_that_time_and_place(seed, owner, apart):
    random = np.random.default_rng(seed)
    job = made(replicas=4)
    killed = job.names[int(random.integers(4))]
    job.fail(killed, 137, early=30_000)
    node = f"node-{killed}"
    job.say_kernel(f"oom-kill:constraint=CONSTRAINT_NONE,{owner}pid=7,uid=0", job.length - 30_000 + apart, node)
    job.say_kernel("Out of memory: Killed process 7 (python)", job.length - 30_000, "node-of-others")
    expected = "host_oom_kill" if not owner and apart < 15_000 else "killed"
    assert (root(job).rule, root(job).subject.name) == (expected, killed)


def test_a_job_that_was_stopped_did_not_fail():
    job = made(replicas=1)
    job.state = JobState.STOPPED
    assert [one.rule for one in found(job)] == []
    job.state = JobState.FAILED
    assert root(job).rule == "unknown_exit"


def test_a_job_of_which_no_replica_failed_by_record_names_the_rank_whose_line_says_why():
    job = made(state=JobState.FAILED)
    job.say("RuntimeError: CUDA out of memory", job.length - 200, "worker-2")
    [one] = [one for one in found(job) if one.rule == "cuda_oom"]
    assert (one.subject.kind, one.replicas) == ("job", ["worker-2"])
    assert one.sentence == "worker-2 (node-worker-2): RuntimeError: CUDA out of memory"


MARKS = ["2026-11-26T10:00:0{}.25Z ", "2026-11-26 10:00:0{} | ", "[1,{}]<stderr>:", "worker-{}  | ", "(main pid=10{}) "]


@pytest.mark.parametrize("mark", [*MARKS, "", "[rank{}]: ", "    | "])
def test_the_marks_that_a_logger_or_launcher_puts_before_each_line_of_a_traceback_are_passed_over(mark):
    job = made(replicas=1)
    chain = "During handling of the above exception, another exception occurred:"
    lines = [TRACE, '  File "a.py", line 1, in read', "PermissionError: [Errno 13] no: 'x'", "", chain, ""]
    lines += [TRACE, '  File "b.py", line 2, in main', "    read()", "RuntimeError: cannot start"]
    job.fail("worker-0", 1, *(mark.format(at % 10) + line for at, line in enumerate(lines)))
    assert root(job).rule == "permission_denied"


@pytest.mark.parametrize("mark", [*MARKS, "", "[rank{}]: ", "    | "])
@pytest.mark.parametrize(
    "below", [[], ["    ~~~~~^^^"], ["        'CUDA out of memory. Tried to allocate')", "      ^^^"]]
)
def test_source_code_that_a_traceback_quotes_is_no_evidence(mark, below):
    job = made(replicas=1)
    lines = [TRACE, '  File "a.py", line 1, in <module>', "    assert ok or fail('loss is nan')", *below]
    job.fail("worker-0", 1, *(mark.format(at % 10) + line for at, line in enumerate([*lines, "ValueError: no rows"])))
    found = root(job)
    assert found.rule == "python_exception"
    assert found.evidence[0].text.endswith("ValueError: no rows")


def test_an_error_that_the_program_quotes_and_raises_is_shown_by_its_message():
    job = made(replicas=1)
    job.fail(
        "worker-0", 1, TRACE, '  File "a.py", line 1', '    raise E("loss is nan")', "E: loss is nan", "    nan loss"
    )
    assert [one.text for one in root(job).evidence][:2] == ["E: loss is nan", "    nan loss"]


def test_a_word_before_the_header_of_a_traceback_alone_is_no_mark_of_its_lines():
    job = made(replicas=1)
    job.fail("worker-0", 1, f"it failed: {TRACE}", '  File "a.py", line 1', "PermissionError: [Errno 13] no: 'x'")
    assert root(job).rule == "permission_denied"


@pytest.mark.parametrize("mark", ["", "[rank1]: ", "3: "])
def test_the_rank_before_any_other_line_is_passed_over_too(mark):
    job = made(replicas=1)
    job.fail("worker-0", 2, f"{mark}Usage: train [OPTIONS]", f"{mark}Error: No such option: --rate")
    assert root(job).rule == "config_error"


@given(st.integers(0, 2**32 - 1))
def test_an_uncaught_error_of_any_language_is_named_among_other_lines(seed):
    random = np.random.default_rng(seed)
    code, lines = UNCAUGHT[random.integers(len(UNCAUGHT))]
    chatter = [draw_line(random, str(one)) for one in random.choice(CHATTER, int(random.integers(30)))]
    before = UNCAUGHT[random.integers(len(UNCAUGHT))][1] if random.random() < 0.3 else ()
    prefix = f"[rank{random.integers(8)}]: " if random.random() < 0.3 else ""
    job = made(replicas=1)
    job.fail("worker-0", code, *before, *chatter, *(prefix + line for line in lines))
    one = root(job)
    assert one.rule == "uncaught_error"
    assert any(line.strip() in one.evidence[0].text for line in lines if line.strip())


def test_the_time_to_search_an_uncaught_error_never_grows_with_the_square_of_a_line():
    for row in uncaught_error._ERRORS:
        for wording in row:
            inner = wording.removesuffix(".*)")
            assert inner.count(".*") <= 1, wording
            assert all(part.startswith("^") for part in inner.split("|") if ".*" in part), wording


def test_the_message_of_an_uncaught_error_is_in_the_sentence():
    job = made(replicas=1)
    job.fail("worker-0", 134, "terminate called after throwing an instance of 'std::runtime_error'", "  what():  bad 7")
    assert root(job).sentence.endswith(
        "terminate called after throwing an instance of 'std::runtime_error' what():  bad 7"
    )


@pytest.mark.parametrize("code", [137, 143])
def test_an_error_of_a_thread_long_before_a_kill_is_not_its_cause(code):
    job = made(replicas=1)
    job.fail("worker-0", code, 'Exception in thread "pool-1" java.lang.IllegalStateException: closed')
    assert root(job).rule == "killed"


def test_a_collective_that_ends_a_process_through_an_exception_stays_a_consequence():
    job = made(replicas=2)
    job.fail("worker-0", 1, TRACE, " x", "ValueError: bad", early=9_000)
    what = "  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"
    job.fail("worker-1", 134, "terminate called after throwing an instance of 'c10::DistBackendError'", what)
    first, *rest = found(job)
    assert (first.rule, first.subject.name) == ("python_exception", "worker-0")
    assert {one.rule for one in rest} == {"nccl_timeout"}
