"""Tests of rules that make jobs of processes without a scheduler, and of the ranks that launchers set."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.trees import plant, plant_process

from jobmeter.collect.base import Owner
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.environ import find_local_rank, find_rank
from jobmeter.collect.discover.member import MembershipSource
from jobmeter.collect.discover.rules import (
    LONGEST_COMMAND,
    LONGEST_PATTERN,
    MOST_BYTES,
    MOST_RULES,
    RuleSubject,
    find_first_match,
    read_rules,
)
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.errors import ConfigurationError
from jobmeter.model.glob import Glob

ID = "0123456789abcdef" * 4


@pytest.fixture
def found(tmp_path):
    """Return the members of the planted processes under these rules, by process number."""

    def members(text):
        file = tmp_path / "rules.toml"
        file.write_text(text)
        classifier = NodeClassifier("n1", str(tmp_path / "proc"), rules=read_rules(file))
        table = ProcessTable(classifier, str(tmp_path / "proc"))
        return {process.stat.key.pid: process.member for process in table.refresh()}

    return members


def test_a_unit_is_a_job_for_each_of_its_runs(tmp_path, found):
    groups = "2:memory:/system.slice/train-7.service\n1:cpu,cpuacct:/system.slice/train-7.service/inner\n0::/\n"
    plant_process(tmp_path, 10, groups=groups)
    plant_process(tmp_path, 11, 10, groups=groups, RANK="3", LOCAL_RANK="1")
    plant_process(tmp_path, 12, groups="0::/system.slice/cron.service\n")
    members = found('[[job]]\nunit = "train-*.service"\njob = "training-{1}"\nuser = "ada"\n')
    assert set(members) == {10, 11}
    one, ranked = members[10], members[11]
    assert (one.owner, one.source, one.kind, one.name, one.user) == (
        Owner("training-7", "worker-0"),
        MembershipSource.RULE,
        "Service",
        "train-7",
        "ada",
    )
    assert one.groups == dict.fromkeys(("memory", "cpu", "cpuacct"), "/system.slice/train-7.service")
    assert (ranked.owner, ranked.rank, ranked.process_rank, ranked.local_rank) == (one.owner, None, 3, 1)
    assert found('[[job]]\nunit = "train-*"\n')[10].owner.job == "train-7", "no manager tells which run it is"


def test_the_run_of_a_unit_is_part_of_its_id(tmp_path):
    (tmp_path / "invocation:web.service").symlink_to("5f3c9a1e7b2d4c60a1b2c3d4e5f60718")
    file = tmp_path / "rules.toml"
    file.write_text('[[job]]\nunit = "web.service"\n')
    (rule,) = read_rules(file)
    match = rule.match(RuleSubject("/nowhere", 1, {"": "/system.slice/web.service"}, str(tmp_path)))
    assert match is not None
    assert match.job == "web-5f3c9a1e"


@pytest.mark.parametrize(
    ("path", "job"),
    [
        (f"/docker/{ID}", "docker-0123456789ab"),
        (f"/system.slice/docker-{ID}.scope/inner", "docker-0123456789ab"),
        (f"/machine.slice/libpod-{ID}.scope", "podman-0123456789ab"),
        ("/docker/short", None),
    ],
)
def test_containers(tmp_path, found, path, job):
    plant_process(tmp_path, 10, groups=f"0::{path}\n")
    members = found('[[job]]\ncontainer = "*"\n')
    assert (members[10].owner.job if members else None) == job
    assert set(found('[[job]]\ncontainer = "podman"\n')) == ({10} if job and job.startswith("podman") else set())


def test_a_pattern_of_groups_and_the_first_rule_wins(tmp_path, found):
    plant_process(tmp_path, 10, groups="0::/batch/ada/job-17/step\n")
    plant_process(tmp_path, 11, groups="0::/batch/ada\n")
    text = '[[job]]\ncgroup = "/batch/*/job-*"\njob = "{1}-{2}"\nname = "job {2}"\ntype = "Batch"\n'
    text += '[[job]]\ncgroup = "/batch"\njob = "all"\n'
    members = found(text)
    assert (members[10].owner, members[10].name, members[10].kind) == (
        Owner("ada-17", "worker-0"),
        "job-17",
        "Batch",
    )
    assert (members[10].groups, members[11].owner.job) == ({"": "/batch/ada/job-17"}, "all")


def test_a_command_and_all_that_it_starts_with_a_replica_for_each_rank(tmp_path, found):
    for pid, parent, rank_of in ((10, 1, "0"), (11, 1, "1"), (12, 11, "5")):
        plant_process(tmp_path, pid, parent, OMPI_COMM_WORLD_RANK=rank_of)
        plant(tmp_path, {f"proc/{pid}/cmdline": "python3\0/srv/train.py\0--run=a b\0" if pid != 12 else "helper\0"})
    members = found('[[job]]\ncommand = "python? */train.py --run=*"\njob = "train {3}"\n')
    assert [members[pid].owner for pid in (10, 11, 12)] == [
        Owner("train-a-b", "worker-0"),
        Owner("train-a-b", "worker-1"),
        Owner("train-a-b", "worker-1"),
    ]
    assert all(member.groups == {} for member in members.values())


def test_the_workers_of_ray_by_their_titles(tmp_path, found):
    """Ray 2 overwrites the command line of a worker with a title, and the rest of it with zeros."""
    for pid, title in ((10, "ray::train"), (11, "ray::train"), (12, "ray::IDLE")):
        plant_process(tmp_path, pid, RAY_JOB_ID="01000000")
        plant(tmp_path, {f"proc/{pid}/cmdline": title + "\0" * 180})
    members = found('[[job]]\ncommand = "ray::[!A-Z]*"\njob = "ray-{1}{2}"\n')
    assert {pid: member.owner for pid, member in members.items()} == dict.fromkeys(
        (10, 11), Owner("ray-train", "worker-0")
    )


def test_a_scheduler_and_tags_come_before_rules(tmp_path, found):
    plant_process(tmp_path, 10, groups="0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", SLURM_PROCID="0")
    plant_process(tmp_path, 11, JOBMETER_JOB_ID="tagged")
    members = found('[[job]]\ncgroup = "/"\njob = "everything"\n')
    assert [members[pid].owner.job for pid in (10, 11)] == ["7", "tagged"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[job]]\n", "rule 1: give one of unit, container, cgroup, command"),
        ('[[job]]\nunit = "a"\ncommand = "b"\n', "rule 1: give one of"),
        ('[[job]]\nunit = "a"\n[[job]]\ncommand = "b*"\n', "rule 2: job is missing"),
        ('[[job]]\ncgroup = "batch"\njob = "x"\n', "does not begin with /"),
        ('[[job]]\ncommand = "b*"\njob = "{2}"\n', "names {2}; there is 1, pid"),
        ('[[job]]\ncommand = "b"\njob = "{pid:>9}"\n', "names {pid:>9}; there is pid"),
        ('[[job]]\ncommand = "b"\njob = "{pid.real}"\n', "names {pid.real}"),
        ('[[job]]\ncommand = "b"\njob = "{"\n', "has an unmatched bracket"),
        ('[[job]]\nunit = "a"\nstate = "b"\n', "unknown field `state`"),
        ("[[job]\n", "rules.toml: "),
        ("#" * (MOST_BYTES + 1), "is longer than"),
        (f'[[job]]\ncommand = "{"a" * (LONGEST_PATTERN + 1)}"\njob = "x"\n', "rule 1: command has 1025 characters"),
        ('[[job]]\nunit = "a"\n' * (MOST_RULES + 1), "101 rules"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, text, said):
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_rules(file)
    assert said in error.value.message


STARS = "*" + " -m *".join(["python"] * 30) + "*.py"
HOSTILE = "python -m " * 1_000


@pytest.mark.parametrize("rule", [f'command = "{STARS}"\njob = "x"', f'cgroup = "/a/{"*a" * 100}b"\njob = "x"'])
def test_no_command_line_and_no_path_stops_the_scan(tmp_path, found, rule):
    """Backtracking in a regular expression with as many stars would take years."""
    plant_process(tmp_path, 10, groups=f"0::/a/{'a' * 200}\n")
    plant(tmp_path, {"proc/10/cmdline": HOSTILE.replace(" ", "\0")})
    assert found(f"[[job]]\n{rule}\n") == {}


def test_of_a_command_line_no_more_is_read_than_a_rule_may_match(tmp_path, found):
    plant_process(tmp_path, 10)
    plant(tmp_path, {"proc/10/cmdline": "x" * LONGEST_COMMAND + "end"})
    assert found('[[job]]\ncommand = "*end"\njob = "x"\n') == {}
    assert set(found('[[job]]\ncommand = "*x"\njob = "x"\n')) == {10}


PIECES = st.sampled_from(["a", "b", "/", "*", "?", "[ab]", "[!a]", "."])


def plain(pattern, within):
    """Return the pattern as a regular expression with a shell's meaning; slow for a hostile text."""
    wild = {"*": f"({within}*)", "?": f"({within})", "[ab]": "([ab])", "[!a]": "([^a/])" if "/" in within else "([^a])"}
    return "".join(wild.get(piece) or re.escape(piece) for piece in pattern)


@given(pattern=st.lists(PIECES, min_size=1, max_size=7), text=st.text("ab/.\n", max_size=9))
def test_wildcards_stand_for_what_a_greedy_expression_says(pattern, text):
    found = re.fullmatch(plain(pattern, "."), text, re.DOTALL)
    glob = Glob("".join(pattern), classes=True)
    assert glob.find_wildcards(text) == (found and found.groups())
    assert glob.matches(text) == bool(found)
    assert glob.count == sum(piece[0] in "*?[" for piece in pattern)


@given(pattern=st.lists(PIECES, max_size=7), text=st.text("ab/.", max_size=9))
def test_a_rule_of_a_group_is_a_beginning_of_its_path(tmp_path_factory, pattern, text):
    shell, path = "/" + "".join(pattern).strip("/") or "/", "/" + text
    file = tmp_path_factory.mktemp("rules") / "rules.toml"
    file.write_text(f"[[job]]\ncgroup = '{shell}'\njob = 'x'\n")
    match = find_first_match(read_rules(file), RuleSubject("/nowhere", 1, {"": path}))
    pieces = re.findall(r"\[[^\]]+\]|.", shell)
    expected = re.match(plain(pieces, "[^/]") + "(?=/|$)", path)
    assert (match and match.groups) == (expected and {"": expected[0]})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        read_rules(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, (3, 1)),  # torchrun, Accelerate, DeepSpeed
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "3"}, (3, 1)),
        ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1"}, (3, 1)),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_LOCAL_RANK": "1"}, (3, 1)),
        ({"HOROVOD_RANK": "3", "HOROVOD_LOCAL_RANK": "1"}, (3, 1)),
        ({"RANK_ID": "3"}, (3, None)),  # MindSpore
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, (3, 1)),
        ({"RANK": "x"}, (None, None)),
    ],
)
def test_the_ranks_that_launchers_give(variables, ranks):
    assert (find_rank(variables), find_local_rank(variables)) == ranks
