"""Attempt number of a run: one more than the highest on the server."""

import os
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

import click
import msgspec

from jobmeter.client.transport import API, Transport
from jobmeter.collect.spool import Spool
from jobmeter.errors import ConflictError, JobmeterError
from jobmeter.model.time import SECOND, Clock


class _NextAttempt(msgspec.Struct):
    attempt: int


def determine_attempt(
    job: str,
    project: str,
    owner: str,
    spool: Spool | None,
    connect: Callable[[], Transport],
    clock: Clock,
    say: Callable[[str], None],
) -> int:
    """Determine the number of this attempt of a job.

    A supervisor may set it in JOBMETER_ATTEMPT. Otherwise the server returns it. While the server does not answer, or
    samples of an earlier attempt wait on this machine, it is the seconds since 1970: above every earlier number. Raises
    a usage error if the job is still running.
    """
    counted = _read_restart_count(os.environ)
    if counted is not None:
        return counted
    if spool is None or not spool.size:
        try:
            return _request_attempt(connect(), job, project, owner)
        except ConflictError as error:
            raise click.UsageError(error.message) from error
        except JobmeterError as error:
            say(f"earlier attempts of job {job} are unknown ({error.message}): using the time as the attempt number")
    return clock.now_ms() // SECOND


def _read_restart_count(environment: Mapping[str, str]) -> int | None:
    """Return the number that a supervisor set; None if the variable belongs to a surrounding run."""
    text = environment.get("JOBMETER_ATTEMPT", "")
    if "JOBMETER_MEASURED" in environment or not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    return int(text)


def _request_attempt(server: Transport, job: str, project: str, owner: str) -> int:
    named = urlencode({"owner": owner, **({"project": project} if project else {})})
    try:
        answer = server.request("GET", f"{API}/jobs/{quote(job, safe='')}/attempt?{named}")
        return msgspec.json.decode(answer.body, type=_NextAttempt).attempt
    except msgspec.DecodeError as error:
        raise JobmeterError(
            "the server's answer cannot be read: check that --server names a Jobmeter server"
        ) from error
    finally:
        server.close()
