"""Lists the dialects: the only file that names them."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar, cast

from jobmeter.access.call import Call
from jobmeter.dialects.base import Dialect, Match
from jobmeter.dialects.base.view import View, ViewCall
from jobmeter.errors import JobmeterError
from jobmeter.plugins import Plugin, PluginKind, load_plugins, report_failure, select_working

R = TypeVar("R")

DIALECTS = (
    "alibaba.pai_dlc:PAI_DLC",
    "alibaba.pai_studio:PAI_STUDIO",
    "alibaba.pai_llm_trace:PAI_LLM_TRACE",
    "alibaba.cms:CMS",
    "alibaba.eas:EAS",
    "alibaba.eflo:EFLO",
    "alibaba.foas:FOAS",
    "modelarts:MODELARTS",
    "baseten:BASETEN",
    "mlflow:MLFLOW",
    "prometheus:PROMETHEUS",
    "alertmanager:ALERTMANAGER",
    "opentsdb:OPENTSDB",
    "otlp:OTLP",
    "alibaba.gateway:GATEWAY",
)
"""Folder and name of each dialect, in the order in which calls are offered to them."""


def list_dialects() -> Sequence[Dialect]:
    """Return every dialect, in the order of ``DIALECTS``; dialects of plug-ins follow."""
    own: dict[str, Dialect] = {one.name: one for one in (_load_dialect(*entry.split(":")) for entry in DIALECTS)}
    plugins = select_working(load_plugins(PluginKind.DIALECTS, own))
    return (*own.values(), *(cast("Dialect", _PluginDialect(one)) for one in plugins))


def view_calls(view: View) -> Sequence[tuple[str, ViewCall]]:
    """Return the title of the API and the call, for each dialect that can return the data of a chart."""
    calls = ((dialect.title, dialect.view_call(view)) for dialect in list_dialects())
    return [(title, call) for title, call in calls if call is not None]


class _PluginDialect:
    """Dialect of a plug-in. If it fails, it has no operation for the call, so that other dialects can have one."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._dialect: Dialect = plugin.part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a dialect
        return getattr(self._dialect, name)

    def find_operation(self, call: Call) -> Match | None:
        return self._attempt(lambda: self._dialect.find_operation(call))

    def view_call(self, view: View) -> ViewCall | None:
        return self._attempt(lambda: self._dialect.view_call(view))

    def _attempt(self, work: Callable[[], R | None]) -> R | None:
        try:
            return work()
        except JobmeterError:
            raise
        except Exception as error:  # noqa: BLE001 - a module of somebody else may raise anything
            report_failure(self._plugin, f"{type(error).__name__}: {error}")
            return None


def _load_dialect(folder: str, name: str) -> Dialect:
    dialect: Dialect = getattr(import_module(f"jobmeter.dialects.{folder}"), name)
    return dialect
