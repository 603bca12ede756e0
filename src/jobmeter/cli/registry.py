"""Verbs: only this module names them. Installed packages add theirs as plug-ins."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from jobmeter.plugins import Plugin, PluginKind, load_plugins

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Measure": {
        "demo": "Measure a small job and open its page.",
        "run": "Run a command as a job and measure it.",
        "agent": "Measure this node and the jobs on it.",
        "scheduler": "Send the jobs of a cluster's scheduler to a server.",
        "import": "Import samples and job records from files.",
        "doctor": "Check what is measured on this machine.",
    },
    "Look": {
        "jobs": "List jobs.",
        "show": "Show a job: its replicas, devices and summary.",
        "metrics": "Print metrics of a job.",
        "top": "Watch the usage of jobs, or of one job, live.",
        "logs": "Print log lines of a job or a node.",
        "traces": "Show the slowest traces of a job.",
        "events": "List the events of a job, of a node, or all events.",
        "nodes": "List nodes.",
        "utilization": "Show used and idle device hours by project or user.",
        "alerts": "List pending and firing alerts.",
        "tag": "Add, remove and list the tags of a job.",
        "note": "Write, list and delete the notes of a job.",
        "open": "Open the page in a browser, signed in.",
        "catalog": "List all metrics.",
    },
    "Diagnose": {
        "findings": "List the findings of all jobs.",
        "diagnose": "Find out why a job is slow or failed.",
        "compare": "Compare jobs side by side.",
    },
    "Operate": {
        "serve": "Start the server.",
        "status": "Show server status.",
        "usage": "Show API calls and their cost.",
        "silence": "Silence alerts; list and end silences.",
        "retention": "Show or set the retention of samples.",
        "delete": "Delete jobs and their data.",
        "backup": "Back up a running server.",
        "restore": "Restore a backup into an empty data folder.",
        "migrate-store": "Move the telemetry to another engine.",
        "size": "Compute the server that a number of nodes needs.",
    },
    "Share": {
        "key": "Create, list and revoke keys.",
        "share": "Create a share token for a job.",
        "shippers": "Ship log lines to other systems.",
    },
}
"""Verbs by heading, with their short help."""
VERBS: Mapping[str, str] = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
"""Short help of each verb. Verb ``x`` is ``command`` in ``jobmeter.cli.x_`` or ``jobmeter.cli.x``."""

_MODULES = {"import": "import_", "migrate-store": "migrate_store"}


def load_verb(name: str) -> click.Command | None:
    """Load a verb; None for an unknown name. Raises ClickException for a broken plug-in."""
    if name in VERBS:
        command: click.Command = import_module(f"jobmeter.cli.{_MODULES.get(name, name)}").command
        command.short_help = VERBS[name]
        return command
    plugin = next((one for one in load_plugin_verbs() if one.name == name), None)
    if plugin is None:
        return None
    if plugin.error:
        raise click.ClickException(plugin.problem)
    found: click.Command = plugin.part
    return found


def load_plugin_verbs() -> Sequence[Plugin]:
    """Load the verbs of plug-ins, with the broken ones."""
    return load_plugins(PluginKind.VERBS, VERBS)
