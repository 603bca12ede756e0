"""Write the reference pages from the program: ``make docs``.

A test compares the committed pages with new ones.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from jobmeter.access.actions import list_action_names
from jobmeter.access.limit import Per
from jobmeter.access.policy import SYSTEM_POLICIES
from jobmeter.cli.main import cli
from jobmeter.cli.options import GroupedCommand, Record
from jobmeter.cli.registry import VERBS
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.running import RUNNING
from jobmeter.diagnose.thresholds import COMMON, Table, load
from jobmeter.dialects.base import Operation
from jobmeter.dialects.registry import list_dialects
from jobmeter.model import catalog
from jobmeter.model.catalog import Metric
from jobmeter.model.retention import Retention
from jobmeter.server.native.endpoint import NATIVE_API, Endpoint
from jobmeter.server.native.openapi import make_document
from jobmeter.server.native.problem import STATUS
from jobmeter.server.native.router import BASE, ENDPOINTS
from jobmeter.settings import Limits, Settings

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- Made by `make docs`; the program is the source. -->\n"

_CLI = """\
A failure is one line on standard error and exit status 1; wrong usage is 2. Output is a table on a terminal and the
same as plain text elsewhere; `NO_COLOR` turns colours off. Every listing has `--json`: an array of objects.

Verbs that talk to a server take the one of `--server` (`JOBMETER_SERVER`), else the one that runs on the data folder
(`--data`, `JOBMETER_DATA`, by default `$XDG_DATA_HOME/jobmeter` or `~/.local/share/jobmeter`), else one on port 8400
that takes the folder's key; when there is none they start one on the data folder, which leaves after ten idle minutes.
The key is that of `--key` (`JOBMETER_KEY`), else the data folder's administrator key, which is shown to servers on this
machine only. A server with a certificate of its own is trusted by `SSL_CERT_FILE`.
"""

_RATES = """\
These operations may be called so often where `rate_limits` says nothing of them, because their vendor states it; no
other operation is limited. `by one` is whose calls count together: a `key`'s, or those of all keys of an `account` (the
key's project; `default` for keys without one). What `rate_limits` says of an operation, or of `*`, comes first. A call
too many is refused with status 429 in the words of its API, and with the time to wait where its clients look for it:
`Retry-After`, for Alibaba Cloud's SDKs also `x-acs-retry-after` and `x-ratelimit-user-api`, with the code
`Throttling.User` (`Throttling` in the URL form).
"""

_CATALOG = """\
One table names every metric; `jobmeter catalog --json` and `GET /api/jobmeter/v1/catalog` print it. A sample is in
`unit`, an answer in `read in`: a counter is sent as it grows and read as its rate. Units are those of UCUM: `By` bytes,
`s` seconds, `W` watts, `J` joules, `Cel` degrees Celsius, `Hz`, `{core}` cores. `shown as` tells a `ratio` (unit `1`, 0
to 1, shown in percent) from a plain `number` (no unit) and a `quantity` with a unit. `title` is its heading on the
page. `joined by` says how a job's value is made of its members' (replicas, devices), `on a node` how a node's is,
`bounds` what a sample may be: a value outside of them is refused, its unit must be wrong.

Names that begin with `app.` (what a program reports) or `external.` (what another system named) are open: gauges
without a unit.
"""


def cli_page() -> str:
    """Return the page of the verbs: usage, meaning and options."""
    context = click.Context(cli, info_name="jobmeter")
    parts = [
        "# The command line\n",
        _MADE,
        _CLI,
        *(f"- [`jobmeter {verb}`](#jobmeter-{verb}): {text}" for verb, text in VERBS.items()),
        "",
    ]
    for verb in VERBS:
        command = cli.get_command(context, verb)
        if command is not None:
            parts += _verb(command, click.Context(command, context, info_name=verb))
    return "\n".join(parts).rstrip() + "\n"


def _verb(command: click.Command, context: click.Context, level: int = 2) -> list[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"{'#' * level} {context.command_path}\n", f"```\n{context.command_path} {usage}\n```\n"]
    parts += [f"{' '.join(text.split())}\n" for text in inspect.cleandoc(command.help or "").split("\n\n") if text]
    if command.epilog:
        parts.append(f"```sh\n{textwrap.dedent(command.epilog.partition('Examples:')[2]).strip()}\n```\n")
    for heading, records in _sections(command, context).items():
        parts += [f"| {heading} | what |", "|---|---|"]
        parts += [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in records]
        parts.append("")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                parts += _verb(below, click.Context(below, context, info_name=name), level + 1)
    return parts


def _sections(command: click.Command, context: click.Context) -> dict[str, list[Record]]:
    """Return the options of a verb by heading."""
    if isinstance(command, GroupedCommand):
        sections = command.group_options(context)
        own = {heading: [one for one in records if "--help" not in one[0]] for heading, records in sections.items()}
        return {heading: records for heading, records in own.items() if records}
    found = (parameter.get_help_record(context) for parameter in command.params)
    records = [record for record in found if record is not None and record[1]]
    return {"option": records} if records else {}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


_SCOPES = {
    "replica": "What a replica uses",
    "device": "What a device does",
    "node": "What a node does",
    "agent": "What the agent costs",
    "job": "What a job does",
}


_COLUMNS = (
    *("metric", "title", "unit", "read in", "shown as", "kind"),
    *("joined by", "on a node", "bounds", "what", "in other APIs"),
)


def catalog_page() -> str:
    """Return the page of the metrics, by scope."""
    parts = [
        "# The catalogue of metrics\n",
        _MADE,
        _CATALOG,
    ]
    for scope, title in _SCOPES.items():
        metrics = [metric for metric in catalog.METRICS if metric.scope == scope]
        if metrics:
            parts += [
                f"## {title}\n",
                f"| {' | '.join(_COLUMNS)} |",
                "|---" * len(_COLUMNS) + "|",
            ]
            parts += [*(_metric(metric) for metric in metrics), ""]
    return "\n".join(parts).rstrip() + "\n"


def _metric(metric: Metric) -> str:
    derived = f" Derived as {metric.ratio[0]} / {metric.ratio[1]} where it was not measured." if metric.ratio else ""
    derived += f" {' - '.join(metric.difference)} where it was not measured." if metric.difference else ""
    derived += f" The rate of {metric.rate_of} where it was not measured." if metric.rate_of else ""
    low = "" if metric.minimum is None else f"from {metric.minimum:g}"
    high = "" if metric.maximum is None else f"to {metric.maximum:g}"
    vendors = ", ".join(f"{dialect}: `{name}`" for dialect, name in sorted(metric.names.items()))
    cells = (
        f"`{metric.name}`",
        metric.title,
        metric.unit,
        metric.answer_unit,
        metric.format,
        metric.kind,
        metric.over,
        metric.on_node or metric.over,
        f"{low} {high}".strip(),
        metric.text + derived,
        vendors,
    )
    return f"| {' | '.join(cells)} |"


_DIALECTS = """\
Jobmeter answers these vendors' APIs on its own port, at the paths that their SDKs send: point an SDK at Jobmeter by its
endpoint and give it the access key pair of a key (`jobmeter key create`). Metric names are in the
[catalogue](catalog.md), the last column. How each client is pointed here is told in [How to](../index.md#vendor-apis).

What is not answered is marked: `notyet` is going to be, `notimpl` could be and nobody plans to, `never` makes no sense
here.
"""

_HTTP = """\
Everything is below `/api/jobmeter/v1`; [OpenAPI](https://www.openapis.org/) of it at `/api/jobmeter/v1/openapi.json`.
The same as a page for people is at `/api/jobmeter/v1/docs`. Neither needs a key.

**Credentials.** The token of a key, in one of `Authorization: Bearer TOKEN`, `Authorization: Api-Key TOKEN`,
`Api-Key: TOKEN`, `X-Auth-Token: TOKEN`. A reader may read, a writer may also write and share, an administrator
everything; a key of a project sees and changes that project alone. What lies outside is answered as if it did not
exist.

**Requests.** Times are milliseconds since the epoch or ISO 8601 (UTC where no zone is named), durations texts such as
`30s`, `5m`, `1h`, `7d`. A parameter that may be given more than once may also be a comma separated list. A parameter
that is unknown is refused. JSON bodies may come with `Content-Encoding: gzip`; a field with `?` may be absent.

**Answers** are JSON; times in them are milliseconds since the epoch. Missing is absent (or null), never 0. Every answer
has a header `x-request-id`.

**Refusals**, of any status, have one body: `{"error": {"code", "message", "field"}, "request_id"}`; `field` is the
parameter, the header or the part of the body that is meant.

| code | status |
|---|---|
CODES
With 429 and 503 the header `Retry-After` says in how many seconds to try again. A body beyond the size limit is
`limit_exceeded` with status 413.

**At the root**, without a key: `/healthz` (the process lives), `/readyz` (store and registry work), `/metrics`
(Jobmeter's own metrics as Prometheus text; no label names a project, a job or a key).
"""

_SETTINGS = """\
A flag of `jobmeter serve` comes before the environment variable, the variable before the default.
"""


def dialects_page() -> str:
    """Return the page of the dialects: operations with their parameters, and operations without an answer."""
    parts = ["# Other vendors' APIs\n", _MADE, _DIALECTS]
    for dialect in list_dialects():
        schemes = ", ".join(f"`{scheme.name}`" for scheme in dialect.schemes)
        parts += [f"## {dialect.title}\n", f"`{dialect.name}`. Credentials, the first that a call has: {schemes}.\n"]
        for operation in dialect.operations:
            parts += [f"### {operation.name}\n", f"`{operation.method} {operation.path}`\n", f"{operation.text}\n"]
            parts += ["| parameter | in | required | what |", "|---|---|---|---|"]
            for one in operation.parameters:
                parts.append(f"| `{one.name}` | {one.where} | {'yes' if one.required else ''} | {one.text} |")
            parts.append("")
        parts += ["### Not answered\n", *(f"- `{gap.status}` {gap.what}: {gap.reason}" for gap in dialect.gaps), ""]
    return "\n".join(parts).rstrip() + "\n"


def http_page() -> str:
    """Return the page of the routes of Jobmeter's own API."""
    codes = "".join(f"| `{code}` | {status} |\n" for code, status in STATUS.items())
    parts = ["# Jobmeter's own HTTP API\n", _MADE, _HTTP.replace("CODES\n", f"{codes}\n")]
    for tag in dict.fromkeys(endpoint.tag for endpoint in ENDPOINTS):
        parts.append(f"## {tag}\n")
        for endpoint in ENDPOINTS:
            if endpoint.tag == tag:
                parts += _endpoint(endpoint)
    return "\n".join(parts).rstrip() + "\n"


def _endpoint(endpoint: Endpoint) -> list[str]:
    needs = f"Needs `{endpoint.action}`." if endpoint.action else "Needs no key."
    parts = [
        f"### {endpoint.route}\n",
        f"{endpoint.summary}. {endpoint.text} {needs}".replace("  ", " ") + "\n",
    ]
    if endpoint.body is not None:
        parts.append(f"Body: `{_shape(endpoint.body)}`. {' '.join(endpoint.body.__doc__.replace('``', '`').split())}\n")
    elif endpoint.body_text:
        parts.append(f"Body: {endpoint.body_text}\n")
    rows = [(name, "path", "yes", text) for name, text in endpoint.paths.items()]
    rows += [(one.name, "query", "yes" if one.required else "", one.text) for one in endpoint.queries]
    if rows:
        parts += ["| parameter | in | required | what |", "|---|---|---|---|"]
        parts += [f"| `{name}` | {where} | {required} | {text} |" for name, where, required, text in rows]
        parts.append("")
    (answer,) = get_args(endpoint.answer_kind) or (endpoint.answer_kind,)
    fields = ", ".join(f"`{name}`" for name in answer.__struct_fields__)
    kinds = f" Also {', '.join(f'`{kind}`' for kind in endpoint.other_types)}." if endpoint.other_types else ""
    many = "an array of objects with " if answer is not endpoint.answer_kind else ""
    return [*parts, f"Answer: {many}{fields}.{kinds}\n"]


def _shape(body: type[msgspec.Struct]) -> str:
    """Return the names of a body's fields, and of the structures that it has lists of."""
    names = []
    for field in msgspec.structs.fields(body):
        below = [_shape(one) for one in get_args(field.type) if hasattr(one, "__struct_fields__")]
        name = f'"{field.encode_name}"' + ("" if field.required else "?")
        names.append(f"{name}: [{below[0]}]" if below else name)
    return f"{{{', '.join(names)}}}"


def settings_page() -> str:
    """Return the page of the settings, with their defaults and docstrings."""
    parts = ["# Settings of the server\n", _MADE, _SETTINGS]
    for shape, title in ((Settings, "The server"), (Retention, "Retention"), (Limits, "Limits")):
        parts += [f"## {title}\n", f"{' '.join((shape.__doc__ or '').split())}\n"]
        parts += ["| setting | default | what |", "|---|---|---|"]
        for field in msgspec.structs.fields(shape):
            if field.default is not msgspec.NODEFAULT and shape is not Retention:
                parts.append(f"| `{field.name}` | {_default(field.default)} | {_texts(shape)[field.name]} |")
            elif shape is Retention:
                variable = f"JOBMETER_RETENTION_{field.name.upper()}"
                parts.append(f"| `{field.name}` | {_default(field.default)} | ({variable}) |")
            elif field.name == "data":
                parts.append(f"| `data` | `~/.local/share/jobmeter` | {_texts(shape)['data']} |")
        parts.append("")
    parts += ["## Rates\n", _RATES, "| API | operation | calls a second | at once | by one |", "|---|---|---|---|---|"]
    parts += [
        f"| {dialect.title} | `{operation.name}` | {operation.rate.per_second:g} | {operation.rate.burst} "
        f"| {operation.rate.per or Per.KEY} |"
        for dialect in list_dialects()
        for operation in dialect.operations
        if operation.rate is not None
    ]
    return "\n".join(parts).rstrip() + "\n"


_ACTIONS = """\
[Policies](../how-to/permissions.md) name an operation by its action. Where there are two names, either does; upper and
lower case are the same. `needs` is what the key's role has to allow besides, where it has one. `by resource` says
whether a policy may allow the operation on single jobs, nodes, resource groups, workspaces or clusters: the answer then
leaves out all others. Any other operation is refused to such a key; it needs a policy for a whole project.
"""


def actions_page() -> str:
    """Return the page of the actions of operations, and of the shipped policies."""
    parts = ["# Actions of policies\n", _MADE, _ACTIONS]
    apis: list[tuple[str, str, Sequence[Operation | Endpoint]]] = [
        (dialect.name, dialect.title, dialect.operations) for dialect in list_dialects()
    ]
    own = [one for one in ENDPOINTS if one.action is not None]
    for api, title, operations in (*apis, (NATIVE_API, "Jobmeter's own API", own)):
        if operations:
            parts += [f"## {title}\n", "| operation | action | needs | by resource |", "|---|---|---|---|"]
            parts += [_action_row(api, one) for one in operations]
            parts.append("")
    parts.append("## Policies by name\n")
    for name, policy in SYSTEM_POLICIES.items():
        actions = ", ".join(f"`{action}`" for action in policy["Statement"][0]["Action"])
        parts.append(f"- `{name}` allows {actions}")
    return "\n".join(parts).rstrip() + "\n"


def _action_row(api: str, operation: Operation | Endpoint) -> str:
    yes = "yes" if operation.by_resource or operation.action == "catalog:read" else ""
    return f"| `{operation.name}` | {_names(api, operation.name)} | `{operation.action}` | {yes} |"


def _names(api: str, operation: str) -> str:
    return ", ".join(f"`{name}`" for name in list_action_names(api, operation))


_RULES = """\
A rule looks at what is stored of a job and gives findings; `jobmeter diagnose JOB` prints them, see
[the guide](../how-to/diagnose.md). An operator may replace every number below: when the server starts,
`JOBMETER_RULES=FILE` names a TOML file with the same names, say

```toml
[common]
minute = "1s"              # what a minute of every time below lasts

[gpu_idle_allocated]
hold = "30m"
idle = 0.02
```

A time is a text, a share 0 to 1. An unknown entry, or a value of the wrong kind, is refused at the start. Rules about
a job's end share the thresholds of `causes`. Each rule is a file in `jobmeter/diagnose/rules`, or a table of
`causes.toml` or `memory.toml` in `jobmeter/diagnose`.
"""


def rules_page() -> str:
    """Return the page of the rules: description, thresholds and their origins."""
    tables = load().tables
    parts = ["# Diagnostic rules\n", _MADE, _RULES]
    for name, text in ((COMMON, "What all rules share."), ("causes", "What rules about a job's end share."),
                       (RUNNING, "How jobs are looked at while they run.")):  # fmt: skip
        parts += [f"## {name}\n", f"{text}\n", *_thresholds(tables[name])]
    for rule in list_rules():
        parts += _rule(rule, tables)
    return "\n".join(parts).rstrip() + "\n"


def _rule(rule: Rule, tables: Mapping[str, Table]) -> list[str]:
    reads = [f"`{name}`" for name in (*rule.metrics, *rule.counters, *rule.nodes)]
    parts = [f"## {rule.name}\n", f"{rule.title}. {rule.sees} {rule.advice}\n"]
    if reads:
        parts.append(f"Reads {', '.join(reads)}.\n")
    if rule.cause is not None:
        parts.append("A cause of a job's end: it looks at exit statuses, events and the last lines of each replica.\n")
    if rule.running:
        parts.append("The server also evaluates this rule while jobs run.\n")
    parts.append(f"Source: <{rule.source}>\n")
    return [*parts, *_thresholds(tables.get(rule.name, {}))]


def _thresholds(table: Table) -> list[str]:
    if not table:
        return []
    rows = [f"| `{name}` | {one.text} | {one.origin} |" for name, one in table.items()]
    return ["| threshold | default | origin |", "|---|---|---|", *rows, ""]


def _default(value: object) -> str:
    return f"`{value}`" if value not in {"", None} else ""


def _texts(shape: type) -> dict[str, str]:
    """Return the docstring below each field of a class."""
    definition = next(node for node in ast.walk(ast.parse(inspect.getsource(shape))) if isinstance(node, ast.ClassDef))
    found = {}
    for field, text in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).replace("``", "`").split())
    return found


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "catalog.md": catalog_page,
    "dialects.md": dialects_page,
    "http-api.md": http_page,
    "rules.md": rules_page,
    "settings.md": settings_page,
    "actions.md": actions_page,
}


WEB = Path(__file__).parents[1] / "web"
OPENAPI, CATALOG = WEB / "openapi.json", WEB / "catalog.json"


def openapi() -> str:
    """Return the source of the page's types: the API's description without its prose, refusals and version."""
    described = json.loads(make_document(BASE, ENDPOINTS))
    described["info"]["version"] = "1"
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"] = {"200": operation["responses"]["200"]}
    return json.dumps(_without_prose(described), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def page_catalog() -> str:
    """Return titles, groups and places of the metrics and rules that the page shows."""
    found = {
        "groups": [{"id": group, "title": group.heading} for group in catalog.MetricGroup],
        "metrics": [
            {
                "name": metric.name,
                "title": metric.title,
                "group": metric.group,
                "unit": metric.answer_unit,
                "column": metric.column,
                "views": [str(view.name).lower() for view in metric.views],
            }
            for metric in catalog.METRICS
        ],
        "rules": {rule.name: rule.title for rule in list_rules()},
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _without_prose(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_without_prose(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {"description", "summary", "example", "examples"}
    return {name: _without_prose(one) for name, one in value.items() if name not in plain or isinstance(one, dict)}


def main() -> None:
    """Write every page."""
    OPENAPI.write_text(openapi(), encoding="utf-8")
    CATALOG.write_text(page_catalog(), encoding="utf-8")
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
