"""Lists the dialects: the only file that names them."""

from collections.abc import Sequence
from importlib import import_module

from jobmeter.dialects.base import Dialect
from jobmeter.dialects.base.view import View, ViewCall
from jobmeter.plugins import PluginKind, load_plugins, working

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
    "opentsdb:OPENTSDB",
    "otlp:OTLP",
    "alibaba.gateway:GATEWAY",
)
"""Folder and name of each dialect, in the order in which a call is offered to them."""


def dialects() -> Sequence[Dialect]:
    """Return every dialect, in the order of ``DIALECTS``; dialects of plug-ins follow."""
    own: dict[str, Dialect] = {one.name: one for one in (_loaded(*entry.split(":")) for entry in DIALECTS)}
    plugins = working(load_plugins(PluginKind.DIALECTS, own))
    return (*own.values(), *(one.part for one in plugins))


def view_calls(view: View) -> Sequence[tuple[str, ViewCall]]:
    """Return the title of the API and the call, for each dialect that can return the data of a chart."""
    calls = ((dialect.title, dialect.view_call(view)) for dialect in dialects())
    return [(title, call) for title, call in calls if call is not None]


def _loaded(folder: str, name: str) -> Dialect:
    dialect: Dialect = getattr(import_module(f"jobmeter.dialects.{folder}"), name)
    return dialect
