"""Rules: one in each file of ``diagnose/rules``, tables of ``causes.toml`` and ``memory.toml``, and plug-ins."""

import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.diagnose.causes import load_causes
from jobmeter.diagnose.memory import load_memory_rules
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.thresholds import Table, Thresholds, load, make_table
from jobmeter.errors import ConfigurationError
from jobmeter.model.catalog import Kind, find
from jobmeter.model.log_query import parse_log_query
from jobmeter.plugins import Plugin, PluginKind, load_plugins, report_failure, select_working

_NOTHING: Findings = iter(())
P = ParamSpec("P")
R = TypeVar("R")


@cache
def list_rules() -> tuple[Rule, ...]:
    """Return every rule, sorted by name."""
    own = {one.name: one for one in (*load_causes(), *load_memory_rules(), *_load_rules())}
    plugins = [_guard_rule(one) for one in select_working(load_plugins(PluginKind.RULES, own)) if _is_usable(one)]
    return tuple(sorted((*own.values(), *plugins), key=lambda rule: rule.name))


def _load_rules() -> Iterator[Rule]:
    package = import_module("jobmeter.diagnose.rules")
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        rule: Rule = getattr(module, found.name)
        yield replace(rule, sees=rule.sees or (module.__doc__ or "").split("\n\n", 1)[0])


def load_thresholds(path: str = "") -> Thresholds:
    """Return the thresholds of all rules, overridden by the operator's file, if any. Raises ConfigurationError."""
    return load(path, dict(_tables()))


def _tables() -> Iterator[tuple[str, Table]]:
    for plugin in select_working(load_plugins(PluginKind.RULES)):
        try:
            entries = {name: {"value": value, "origin": origin} for name, value, origin in plugin.part.numbers}
            yield plugin.name, make_table(plugin.name, entries)
        except (ConfigurationError, AttributeError, TypeError, ValueError) as error:
            report_failure(plugin, f"its thresholds are wrong: {error}")


def _is_usable(plugin: Plugin) -> bool:
    """Return False for a rule whose questions would fail: the questions of all rules are sent together."""
    try:
        error = _mistake(plugin.part)
    except Exception as raised:  # noqa: BLE001 - a module of somebody else may have any values
        error = f"{type(raised).__name__}: {raised}"
    if error:
        report_failure(plugin, error)
    return not error


def _mistake(rule: object) -> str:
    if not isinstance(rule, Rule):
        return "it is not a jobmeter.diagnose.rule.Rule"
    try:
        hash(rule)
    except TypeError as error:
        return f"its rule needs tuples and frozensets instead of lists and sets: {error}"
    msgspec.convert([rule.metrics, rule.counters, rule.nodes, rule.hides], list[tuple[str, ...]])
    msgspec.convert([rule.title, rule.sees, rule.advice, rule.source], list[str])
    for search in filter(None, (rule.kernel, rule.lines)):
        parse_log_query(f"({search})")
    gauges = [name for name in rule.counters if (metric := find(name)) and metric.kind is not Kind.COUNTER]
    return f"{gauges[0]} is no counter" if gauges else ""


def _guard_rule(plugin: Plugin) -> Rule:
    """Return the rule of a plug-in in a form that gives no findings or suspicions if it fails."""
    rule: Rule = plugin.part
    find_facts, suspects = rule.find_facts, rule.suspects
    guarded = {
        "find": _guard_call(plugin, lambda _, *given: iter(list(rule.evaluate(*given))), _NOTHING),
        "find_facts": find_facts and _guard_call(plugin, lambda *given: iter(list(find_facts(*given))), _NOTHING),
        "suspects": suspects and _guard_call(plugin, suspects, None),
    }
    return Rule(**{**{name: getattr(rule, name) for name in Rule.__struct_fields__}, **guarded})


def _guard_call(plugin: Plugin, work: Callable[P, R], otherwise: R) -> Callable[P, R]:
    def attempt(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return work(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - a rule of somebody else must not hide the findings of others
            report_failure(plugin, f"{type(error).__name__}: {error}")
            return otherwise

    return attempt
