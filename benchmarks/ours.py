"""Contestant Jobmeter, started as users start it."""

import functools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import native
from benchmarks.client import Post, Request, answer
from benchmarks.contestant import Contestant, Points, Template
from benchmarks.data import Data, Names
from benchmarks.questions import Asked
from benchmarks.row import OURS

API = "/api/jobmeter/v1"
FRAMES = "application/vnd.jobmeter.frames"


class Jobmeter(Contestant):
    """``jobmeter serve`` with one process, 60 days of raw samples and otherwise its defaults."""

    name = OURS
    ready = "/readyz"

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        serve = [sys.executable, "-m", "jobmeter", "serve"]
        return [*serve, "--data", str(self.data_folder), "--port", str(self.port)]

    @property
    def environment(self) -> Mapping[str, str]:
        """See ``Contestant.environment``."""
        return {"JOBMETER_RETENTION_RAW_DAYS": "60", "JOBMETER_PROCESSES": "1"}

    @functools.cached_property
    def token(self) -> str:
        """Key of the administrator, which the first start creates."""
        return str(json.loads((self.data_folder / "admin.key").read_text())["token"])

    @property
    def headers(self) -> Mapping[str, str]:
        """See ``Contestant.headers``."""
        return {"Authorization": f"Bearer {self.token}"}

    def path(self, asked: Asked) -> str:
        """See ``Contestant.path``."""
        chosen = f"&replica={asked.replica}" if asked.replica else ""
        span = f"start={asked.start_ms}&end={asked.end_ms}&step={asked.step_s}s"
        return f"{API}/jobs/{asked.job}/metrics?metric={asked.metric}&{span}&by={asked.by}{chosen}"

    def points(self, body: bytes, step_s: int) -> Points:
        """See ``Contestant.points``."""
        del step_s
        lines = json.loads(body)["lines"]
        return {(one["replica"], one["device"] or ""): dict(one["points"]) for one in lines}

    @staticmethod
    def template(series: Sequence[Names]) -> Template:
        """See ``Contestant.template``."""
        return native.NativeTemplate(series)

    def written(self) -> Post:
        """See ``Contestant.written``."""
        return Post(self.port, f"{API}/ingest", {**self.headers, "Content-Type": FRAMES})

    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """See ``Contestant.import_bodies``."""
        return self.written(), native.bodies(data)

    def export(self, asked: Asked) -> str:
        """See ``Contestant.export``."""
        span = f"start={asked.start_ms}&end={asked.end_ms}"
        return f"{API}/jobs/{asked.job}/samples?metric={asked.metric}&{span}&format=csv"

    def exported(self, body: bytes) -> Points:
        """See ``Contestant.exported``."""
        found: Points = {}
        for line in body.decode().splitlines()[1:]:
            at, replica, device, value = line.split(",")
            found.setdefault((replica, device), {})[int(at)] = float(value)
        return found

    def status(self) -> dict[str, Any]:
        """Return the status that the server reports, with rows and bytes on disk of each table."""
        result: dict[str, Any] = json.loads(answer(self.request(f"{API}/status")))
        return result

    def in_files(self, samples: int) -> bool:
        """See ``Contestant.in_files``."""
        return int(self.status()["rows"]["samples"]) >= samples

    def raw_bytes(self) -> int:
        """See ``Contestant.raw_bytes``."""
        return int(self.status()["bytes"]["samples"])

    def vendor(self, job: str) -> Request:
        """Return a request for PAI-DLC GetJobMetrics with its default range, the last hour."""
        return self.request(f"/api/v1/jobs/{job}/metrics?MetricType=GpuCoreUsage&TimeStep=5m")

    def wait_for_roll_ups(self, asked: Asked, tier: str, quiet: float = 10.0, patience: float = 900.0) -> None:
        """Wait until imported samples are rolled up, as they are on a server that has run for some minutes.

        The wait ends when no roll-up was added for ``quiet`` seconds and the query reads the roll-ups of ``tier``.
        Raises RuntimeError after ``patience`` seconds.
        """
        deadline = time.monotonic() + patience
        last, since = 0, time.monotonic()
        while time.monotonic() < deadline:
            rows = self.status()["rows"]
            now = rows["minutes"] + rows["hours"]
            if now != last:
                last, since = now, time.monotonic()
            elif now and time.monotonic() - since >= quiet:
                if tier in json.loads(answer(self.request(self.path(asked))))["tiers"]:
                    return
                since = time.monotonic()
            time.sleep(1)
        raise RuntimeError(f"no roll-up ({tier}) of {asked.job} in {patience:.0f} s")


class JobmeterOfTwo(Jobmeter):
    """``jobmeter serve`` with two worker processes."""

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        return [*super().command, "--processes", "2"]
