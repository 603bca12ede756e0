"""Relay for MLflow: a local address to which the programs of a job log, with or without a server.

Writes become records and samples in the outbox. The delivery sends them like measured samples: in order, with retries,
and after the job's end. The server answers reads. While it does not answer, reads show the runs logged here.
"""

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from jobmeter.client.transport import API
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.launch.tracked_runs import TrackedRuns
from jobmeter.collect.launch.tracking import TOKEN, TRACKING_URI
from jobmeter.collect.local_http import LOOPBACK, LocalHandler, LocalServer
from jobmeter.errors import (
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from jobmeter.model.time import Clock
from jobmeter.wire.mlflow.changes import NewRun, check_active, make_batch_entries, make_run, make_update, mark_deleted
from jobmeter.wire.mlflow.experiments import VERSION, check_plain, make_experiment_body, name_experiment
from jobmeter.wire.mlflow.filters import meets_all, parse, parse_order, parse_view, sort
from jobmeter.wire.mlflow.names import PREFIX, VERSION_PATH, check_key, make_experiment_id, parse_run, run_id
from jobmeter.wire.mlflow.pages import MOST_HISTORY, MOST_PAGE, MOST_RESULTS, check_size, cut_page
from jobmeter.wire.mlflow.runs import Run, make_body, make_info
from jobmeter.wire.mlflow.values import KeyValue, MetricValue

_MOST_CONNECTIONS = 1_024
_FIRST_SECONDS, _IDLE_SECONDS = 10, 600
"""Longest waits in seconds for data of a connection: before and after its first request with the token."""
_FLUSH_SECONDS = 2.0
"""Longest time in seconds that a read waits for the delivery of earlier writes."""
_REST_SECONDS = 5.0
"""Seconds after a failed call in which no request calls the server."""
_JSON = "application/json"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_log = logging.getLogger(__name__)
_ERRORS: tuple[tuple[type[JobmeterError], int, str], ...] = (
    (InvalidRequestError, 400, "INVALID_PARAMETER_VALUE"),
    (UnauthenticatedError, 401, "UNAUTHENTICATED"),
    (ForbiddenError, 403, "PERMISSION_DENIED"),
    (NotFoundError, 404, "RESOURCE_DOES_NOT_EXIST"),
    (ThrottledError, 429, "REQUEST_LIMIT_EXCEEDED"),
    (UnavailableError, 503, "TEMPORARILY_UNAVAILABLE"),
    (JobmeterError, 500, "INTERNAL_ERROR"),
)
_AWAY = (UnavailableError, ThrottledError, QueryTimeoutError, UnauthenticatedError, ForbiddenError)


class RelayRequest(NewRun, frozen=True, kw_only=True):
    """Fields of every request. ``value`` is a number or a text, depending on the call."""

    raw: bytes = b""
    run_id: str = ""
    run_uuid: str = ""
    name: str = ""
    experiment_name: str = ""
    artifact_location: str = ""
    status: str = ""
    end_time: int | None = None
    metrics: tuple[MetricValue, ...] = ()
    params: tuple[KeyValue, ...] = ()
    key: str = ""
    value: Any = ""
    timestamp: int | None = None
    step: int = 0
    metric_key: str = ""
    experiment_ids: tuple[str, ...] = ()
    filter: str = ""
    run_view_type: str = "ACTIVE_ONLY"
    order_by: tuple[str, ...] = ()
    max_results: int | None = None
    page_token: str = ""


class MlflowRelay(LocalServer):
    """Serves MLflow's calls for the runs of one job. Raises OSError if no port is free."""

    def __init__(self, runs: TrackedRuns, delivery: Delivery, user: str, clock: Clock) -> None:
        """``user`` is the default user of a run. ``clock`` is the wall clock."""
        self._runs = runs
        self._delivery = delivery
        self._user = user
        self._clock = clock
        self._token = secrets.token_urlsafe(32)
        self._run_token = ""
        self._rest_until = 0.0
        self._calls: Mapping[str, Callable[[RelayRequest], Any]] = {
            f"POST {PREFIX}/experiments/create": _create_experiment,
            f"GET {PREFIX}/experiments/get-by-name": lambda request: _show_experiment(request.experiment_name),
            f"GET {PREFIX}/experiments/get": lambda request: _show_experiment(name_experiment(request.experiment_id)),
            f"POST {PREFIX}/runs/create": self._create,
            f"POST {PREFIX}/runs/update": self._update,
            f"POST {PREFIX}/runs/delete": self._delete,
            f"POST {PREFIX}/runs/log-batch": self._log_batch,
            f"POST {PREFIX}/runs/log-metric": self._log_metric,
            f"POST {PREFIX}/runs/log-parameter": self._log_param,
            f"POST {PREFIX}/runs/set-tag": self._set_tag,
            f"GET {PREFIX}/runs/get": self._get,
            f"GET {PREFIX}/metrics/get-history": self._get_history,
            f"POST {PREFIX}/runs/search": self._search,
        }
        super().__init__(0, _RelayHandler, _MOST_CONNECTIONS, "mlflow")

    def extend_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that logs here. The program connects without a proxy."""
        own = {TRACKING_URI: self.url, TOKEN: self._token}
        if any(environment.get(name) for name in _PROXIES):
            name = "no_proxy" if environment.get("no_proxy") else "NO_PROXY"
            own[name] = ",".join(filter(None, (environment.get(name), LOOPBACK)))
        return {**environment, **own}

    def is_authorized(self, authorization: str) -> bool:
        """Return True for the token of this job."""
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def serve(self, method: str, target: str, sent: bytes | None) -> tuple[int, str, bytes]:
        """Return the answer of a call: status, media type and body."""
        try:
            return self._answer(method, target, sent)
        except JobmeterError as error:
            return _refusal(error)
        except Exception:  # noqa: BLE001 - the program gets an answer, whatever fails
            _log.warning("a request of MLflow failed", exc_info=True)
            return _refusal(JobmeterError("The request failed because of an internal error."))

    def _answer(self, method: str, target: str, sent: bytes | None) -> tuple[int, str, bytes]:
        if sent is None:
            raise InvalidRequestError("A request needs Content-Length, of at most 4 MiB.", "body")
        if not target.startswith("/"):  # without a slash the full URL could name another host
            raise InvalidRequestError("The path of a request begins with a slash.", "path")
        path, _, query = target.partition("?")
        call = f"{method} {path}"
        if call == f"GET {VERSION_PATH}":
            return 200, "text/plain; charset=utf-8", VERSION.encode()
        work = self._calls.get(call)
        if work is None:
            return self._forward_other(method, target, sent)
        found = work(_request_of(call, query, sent))
        return 200, _JSON, found if isinstance(found, bytes) else msgspec.json.encode(found)

    def _create(self, request: RelayRequest) -> Any:  # noqa: ANN401 - an object of JSON, as of all calls
        id_, now_ms = run_id(self._runs.job, secrets.token_hex(16)), self._clock.now_ms()
        run = make_run(id_, request, project=self._runs.project, caller=self._user, now_ms=now_ms, local=True)
        self._runs.create(run)
        return {"run": make_body(run, ())}

    def _update(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        changed = self._runs.change(run, make_update(run, request.status, request.end_time, request.run_name))
        return {"run_info": make_info(changed)}

    def _delete(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        self._runs.change(run, mark_deleted(run))
        return {}

    def _log_batch(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        self._runs.change(run, make_batch_entries(run, request.metrics, request.params, request.tags))
        self._runs.log(run, request.metrics)
        return {}

    def _log_metric(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        check_active(run)
        given = {"key": request.key, "value": request.value, "timestamp": request.timestamp, "step": request.step}
        self._runs.log(run, [_convert(given, MetricValue)])
        return {}

    def _log_param(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        self._runs.change(run, make_batch_entries(run, (), [_pair(request)], ()))
        return {}

    def _set_tag(self, request: RelayRequest) -> Any:  # noqa: ANN401
        run = self._find(request)
        self._runs.change(run, make_batch_entries(run, (), (), [_pair(request)]))
        return {}

    def _get(self, request: RelayRequest) -> Any:  # noqa: ANN401
        id_ = _read_run_id(request)
        answer = self._fetch_about_run(id_, f"{PREFIX}/runs/get?{urlencode({'run_id': id_})}")
        if answer is not None:
            return answer
        run = self._find(request)
        newest = self._runs.find_newest(run.id)
        return {"run": make_body(run, [newest[key].body for key in sorted(newest)])}

    def _get_history(self, request: RelayRequest) -> Any:  # noqa: ANN401
        key = check_key(request.metric_key, "metric_key")
        size = check_size(MOST_HISTORY if request.max_results is None else request.max_results, MOST_HISTORY)
        id_ = _read_run_id(request)
        given = {"run_id": id_, "metric_key": key, "max_results": size, "page_token": request.page_token}
        answer = self._fetch_about_run(id_, f"{PREFIX}/metrics/get-history?{urlencode(given)}")
        if answer is not None:
            return answer
        page, more = cut_page(self._runs.read_history(self._find(request).id, key), request.page_token, size)
        return {"metrics": [point.body for point in page], **more}

    def _search(self, request: RelayRequest) -> Any:  # noqa: ANN401
        answer = self._call_server("POST", f"{PREFIX}/runs/search", request.raw)
        if answer is not None:
            return answer
        clauses, orders, shown = parse(request.filter), parse_order(request.order_by), parse_view(request.run_view_type)
        size = min(check_size(request.max_results or MOST_PAGE, MOST_RESULTS), MOST_PAGE)
        runs = [run for run in self._runs.all if run.experiment in request.experiment_ids and run.deleted in shown]
        newest = {run.id: self._runs.find_newest(run.id) for run in runs}
        found = sort((run for run in runs if meets_all(clauses, run, newest[run.id])), orders, newest)
        page, more = cut_page(found, request.page_token, size)
        bodies = [make_body(run, [point.body for _, point in sorted(newest[run.id].items())]) for run in page]
        return {"runs": bodies, **more}

    def _forward_other(self, method: str, target: str, sent: bytes) -> tuple[int, str, bytes]:
        """Forward a call that changes no run of this job. Without an answer, refuse the call as unknown."""
        answer = self._call_server(method, target, sent)
        if answer is not None:
            return 200, _JSON, answer
        problem = {
            "error_code": "ENDPOINT_NOT_FOUND",
            "message": f"Jobmeter's server does not answer, and `jobmeter run` has no {target[:200]}.",
        }
        return 404, _JSON, msgspec.json.encode(problem)

    def _find(self, request: RelayRequest) -> Run:
        """Return a run of this job. A run that was not created here comes from the disk or from the server.

        Raises NotFoundError, or UnavailableError while only the server knows the run.
        """
        id_ = _read_run_id(request)
        run = self._runs.find(id_)
        if run is None and parse_run(id_) == (self._runs.job, True):
            # The disk is read before the server, so that a record which is delivered in between is found on the server.
            self._runs.recall()
            run = self._runs.find(id_) or self._fetch_run(id_)
        if run is None:
            raise NotFoundError(f"Run with id={id_[:300]!r} not found", "run", id_)
        return run

    def _fetch_run(self, run: str) -> Run | None:
        """Return a run of this job from the server. Raises UnavailableError if the server does not answer."""
        stored = None if self._is_resting else self._request("GET", self._make_job_path())
        if stored is None:
            raise UnavailableError(
                f"The server does not answer, and the run {run} was not created here. Try again later."
            )
        self._runs.learn(_decode_stored_runs(stored))
        return self._runs.find(run)

    def _call_server(self, method: str, target: str, sent: bytes = b"") -> bytes | None:
        """Call the server with the job's token, after delivering earlier writes. None if the server does not answer."""
        if self._is_resting:
            return None
        if not self._delivery.flush(_FLUSH_SECONDS):
            self._pause_calls()
            return None
        for _ in range(2):  # a second try, in case the token has expired
            if not self._run_token:
                issued = self._request("POST", self._make_job_path("/run-token"))
                if issued is None:
                    break
                self._run_token = msgspec.json.decode(issued, type=_Issued).token
            headers = {"Authorization": f"Bearer {self._run_token}", "Content-Type": _JSON}
            answer = self._request(method, target, sent, headers)
            if answer is not None or self._run_token:
                return answer
        return None

    def _fetch_about_run(self, run: str, target: str) -> bytes | None:
        """Return the server's answer about a run. None without an answer, or for a run that only this relay knows."""
        try:
            return self._call_server("GET", target)
        except NotFoundError:
            if self._runs.find(run) is None:
                raise
            return None

    def _make_job_path(self, end: str = "") -> str:
        project = f"?{urlencode({'project': self._runs.project})}" if self._runs.project else ""
        return f"{API}/jobs/{quote(self._runs.job, safe='')}{end}{project}"

    def _request(
        self, method: str, target: str, sent: bytes = b"", headers: dict[str, str] | None = None
    ) -> bytes | None:
        """Return the body of the server's answer; None without an answer or permission. Raises other refusals."""
        try:
            found = self._delivery.requester.request(method, target, sent or None, headers or {}).body
        except _AWAY as error:
            _log.debug("the server does not answer: %s", error)
            if isinstance(error, UnauthenticatedError):
                self._run_token = ""
            self._pause_calls()
            return None
        self._rest_until = 0.0
        return found

    @property
    def _is_resting(self) -> bool:
        return self._clock.monotonic() < self._rest_until

    def _pause_calls(self) -> None:
        self._rest_until = self._clock.monotonic() + _REST_SECONDS


class _Issued(msgspec.Struct):
    token: str


class _StoredJob(msgspec.Struct):
    extra: dict[str, Any] = {}


class _StoredAnswer(msgspec.Struct):
    job: _StoredJob


class _RelayHandler(LocalHandler):
    timeout = _FIRST_SECONDS
    server: MlflowRelay

    def respond(self) -> None:
        """Answer one call. Other users of the machine reach the port too, so the token is checked first."""
        if not self.server.is_authorized(self.fields.get("authorization", "")):
            self.close_connection = True
            self.answer(*_refusal(UnauthenticatedError(f"This address needs the token of {TOKEN}.", "malformed")))
            return
        self.connection.settimeout(_IDLE_SECONDS)
        self.answer(*self.server.serve(self.command, self.path, self.read_body()))


def _create_experiment(request: RelayRequest) -> Mapping[str, Any]:
    check_plain(request.artifact_location, request.tags)
    return {"experiment_id": make_experiment_id(request.name)}


def _show_experiment(name: str) -> Mapping[str, Any]:
    return {"experiment": make_experiment_body(name)}


def _request_of(call: str, query: str, sent: bytes) -> RelayRequest:
    try:
        given: Any = dict(parse_qsl(query)) if call.startswith("GET ") else msgspec.json.decode(sent or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("The request is not a JSON object.", "body") from error
    fields = {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given
    request: RelayRequest = _convert({**fields, "raw": sent} if isinstance(fields, dict) else fields, RelayRequest)
    return request


def _convert(given: Any, shape: type[Any]) -> Any:  # noqa: ANN401 - of any type
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"Invalid request: {error}", "body") from error


def _pair(request: RelayRequest) -> KeyValue:
    pair: KeyValue = _convert({"key": request.key, "value": request.value}, KeyValue)
    return pair


def _read_run_id(request: RelayRequest) -> str:
    found = request.run_id or request.run_uuid
    if not found:
        raise InvalidRequestError("Missing value for required parameter 'run_id'.", "run_id")
    return found


def _decode_stored_runs(body_of_job: bytes) -> dict[str, Any]:
    try:
        runs = msgspec.json.decode(body_of_job, type=_StoredAnswer).job.extra.get("mlflow", {}).get("runs", {})
    except (msgspec.DecodeError, AttributeError):
        return {}
    return runs if isinstance(runs, dict) else {}


def _refusal(error: JobmeterError) -> tuple[int, str, bytes]:
    status, code = next((status, code) for kind, status, code in _ERRORS if isinstance(error, kind))
    return status, _JSON, msgspec.json.encode({"error_code": code, "message": error.message})
