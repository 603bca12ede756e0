"""Public functions whose names begin with no verb, by the reason: others decide or know these names.

A name consists of the module and the function. An entry without such a function fails ``tests/test_house.py``.
"""

from collections.abc import Mapping

NOUN_NAMES: Mapping[str, Mapping[str, str]] = {
    "a program begins in its function main": {
        "alerts/apprise_process.py": "main",
        "cli/main.py": "main",
        "collect/stacks/unpickle.py": "main",
        "examples/demo.py": "main",
        "examples/faults.py": "main",
        "examples/gentd26.py": "main",
    },
    "Python's library calls it: files, sockets, servers, pickles": {
        "cli/loading/files.py": "readinto",
        "cli/terminal.py": "writelines",
        "collect/local_http.py": "server_bind",
        "collect/process_events/netlink.py": "fileno",
        "collect/stacks/unpickle.py": "persistent_load",
    },
    "asyncio calls it: asyncio.Protocol": {
        "server/http/connection.py": "connection_made connection_lost data_received eof_received",
        "store/channel.py": "connection_made connection_lost data_received",
    },
    "a clock stands for the library's time.monotonic and datetime.now": {
        "collect/clock.py": "now_ns now_ms monotonic",
        "model/time.py": "now_ms monotonic",
    },
    "Textual calls it by the name of a key's action": {
        "cli/screens/base.py": "action_sort action_reverse",
        "cli/screens/job.py": "action_devices action_findings",
        "cli/screens/jobs.py": "action_all",
    },
    "pytest calls it, or names a value by it": {
        "testing/collector.py": "collector collections",
        "testing/dialect.py": "pytest_generate_tests",
    },
    "MLflow calls it: RunContextProvider": {
        "program/mlflow_context.py": "in_context tags",
    },
    "it has the name of the client's method of clickhouse-connect in whose place it is called": {
        "store/clickhouse/nodes.py": "command raw_insert",
    },
    "PromQL names it": {
        "promql/evaluation.py": (
            "absent absent_over_time histogram_fraction histogram_quantile histogram_quantiles max_of min_of pi "
            "quantile_over_time range scalar time timestamp vector"
        ),
    },
    "programs and notebooks of users call it: the published client and jobmeter.log": {
        "program/asynchronous.py": "job logs",
        "program/client.py": "columns job jobs nodes",
        "program/comparison.py": "columns",
        "program/frames.py": "columns",
        "program/job.py": ("columns events findings latest logs metrics notes phases quality tags timeline"),
        "program/log.py": "event meta span",
        "program/metrics.py": "columns rows",
    },
}


def list_noun_names() -> set[str]:
    """Return every entry as ``module: function``."""
    return {
        f"{module}: {name}"
        for modules in NOUN_NAMES.values()
        for module, names in modules.items()
        for name in names.split()
    }
