"""Tests of jobs' GPUs by ``scontrol``: one command for all new jobs, with lines as Slurm 22.05 prints them."""

from pathlib import Path

import pytest
from tests.support.fakes import SetClock

from jobmeter.collect.scheduler.slurm.controller import Devices, parse_details
from jobmeter.collect.scheduler.slurm.slurm_job import Attempt, SlurmJob

LINE = (
    "JobId={number} JobName={name} UserId=ada(1000) JobState=RUNNING TRES=cpu=2,mem=300M,node=2,gres/gpu=4"
    " JOB_GRES=gpu:h200:4 Nodes=n[1-2] CPU_IDs=0-1 Mem=300 GRES=gpu:h200:2(IDX:{gpus}) MinCPUsNode=1"
)


def line(number: int, gpus: str = "0-1", name: str = "train") -> str:
    return LINE.format(number=number, gpus=gpus, name=name)


def job(number: int) -> SlurmJob:
    return SlurmJob(
        number=number,
        label=str(number),
        name="",
        user="ada",
        gpu_count=4,
        attempts=(Attempt(state="RUNNING", start=1),),
    )


class Scontrol:
    """Replacement of scontrol, which prints these lines and records its arguments."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.path, self.calls, self._lines = folder / "scontrol", folder / "calls", folder / "lines"
        self._lines.write_text("\n".join(lines))
        self.path.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\ncat {self._lines}\n')
        self.path.chmod(0o755)

    def words(self) -> list[str]:
        return self.calls.read_text().splitlines()


def test_many_new_jobs_are_one_question(tmp_path: Path) -> None:
    scontrol = Scontrol(tmp_path, *(line(number) for number in range(1, 41)))
    devices = Devices(str(scontrol.path), SetClock(0))
    jobs = [job(number) for number in range(1, 41)]
    for _ in range(3):
        found = devices.add_cached(jobs)
        assert {one.number: one.gpus for one in found} == {
            number: {"n1": (0, 1), "n2": (0, 1)} for number in range(1, 41)
        }
    assert scontrol.words() == ["--all show job --details --oneliner"]
    devices.add_cached([*jobs, job(99)])
    assert scontrol.words()[1:] == ["--all show job --details --oneliner 99"]


@pytest.mark.parametrize("fails", [True, False])
def test_unknown_gpus_are_queried_again_less_and_less_often(tmp_path: Path, fails: bool) -> None:
    """A command may fail, and Slurm may not show the GPUs of a job in its first moments."""
    scontrol = Scontrol(tmp_path)
    working = scontrol.path.read_text()
    if fails:
        scontrol.path.write_text(f'#!/bin/sh\necho "$@" >> {scontrol.calls}\nexit 1\n')
    clock = SetClock(0)
    devices = Devices(str(scontrol.path), clock)
    for _ in range(100):
        assert [one.gpus for one in devices.add_cached([job(1), job(2)])] == [{}, {}]
        clock.time_ms += 1_000
    assert 5 <= len(scontrol.words()) <= 12
    scontrol.path.write_text(working)
    (tmp_path / "lines").write_text("\n".join([line(1), line(2)]))
    clock.time_ms += 60_000
    found = {1: {"n1": (0, 1), "n2": (0, 1)}, 2: {"n1": (0, 1), "n2": (0, 1)}}
    assert {one.number: one.gpus for one in devices.add_cached([job(1), job(2)])} == found
    calls = len(scontrol.words())
    clock.time_ms += 60_000
    devices.add_cached([job(1), job(2)])
    assert len(scontrol.words()) == calls


def test_the_words_of_a_user_name_no_devices() -> None:
    """A job's name is any text, possibly a whole line of another job."""
    forged = "JOB_GRES=gpu:h200:1 Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:h200:1(IDX:7)"
    assert parse_details([line(1, name=f"x {forged}")]) == {1: {"n1": (0, 1), "n2": (0, 1)}}
    text = "\n".join([line(7), line(1, name=f"x\n{line(7, gpus='3')}")])
    assert parse_details(text.splitlines()) == {7: {}, 1: {}}
