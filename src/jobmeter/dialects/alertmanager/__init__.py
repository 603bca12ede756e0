"""Alertmanager's API, version 2: alerts, groups, silences, receivers, status. Sources and readings: SPEC.md."""

from jobmeter.access.signatures import BASIC, TOKENS
from jobmeter.dialects.alertmanager import errors
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of

ALERTMANAGER = PathDialect(
    name="alertmanager",
    title="Alertmanager, API version 2",
    schemes=(*TOKENS, BASIC),
    operations=operations_of(f"{__name__}.operations"),
    gaps=(),
    render=errors.render,
    wrong_path="There is no {path} in the API of Alertmanager.",
    owns=lambda path: path.startswith("/api/v2/"),
)
