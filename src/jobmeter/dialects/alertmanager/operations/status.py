"""Receivers and status."""

from jobmeter import __version__
from jobmeter.dialects.alertmanager.requests import API, answer, operation
from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.model.alert import AlertingQuestion
from jobmeter.model.time import format_iso


@operation(f"GET {API}/receivers", "alerts:read", name="getReceivers")
class GetReceivers(Request, frozen=True):
    """Returns the names of the receivers."""

    def _steps(self) -> Steps:
        found = yield from ask(AlertingQuestion())
        return answer([{"name": name} for name in found.receivers])


@operation(f"GET {API}/status", "alerts:read", name="getStatus")
class GetStatus(Request, frozen=True):
    """Returns the version and the receivers' names."""

    def _steps(self) -> Steps:
        found = yield from ask(AlertingQuestion())
        empty = dict.fromkeys(("branch", "buildDate", "buildUser", "goVersion"), "")
        return answer(
            {
                "cluster": {"status": "disabled", "peers": []},
                "config": {"original": found.config},
                "uptime": format_iso(found.started),
                "versionInfo": {**empty, "revision": f"jobmeter-{__version__}", "version": "0.25.0"},
            }
        )
