"""Submits jobs to a Flink: flink_jobs.py HOST PORT NAME..., in an environment with ``apache-flink``.

Its last line of output contains the job ids by name, as JSON.
"""

import json
import sys
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "300 ms"}
OPTIONS: dict[str, dict[str, str]] = {
    "windows": {
        "execution.checkpointing.interval": "1 s",
        "state.backend.type": "rocksdb",
        "state.latency-track.keyed-state-enabled": "true",
        "state.backend.latency-track.keyed-state-enabled": "true",
        "parallelism.default": "2",
    },
    "fails": {"restart-strategy.type": "none"},
    "restarts": {**RESTARTS, "restart-strategy.fixed-delay.attempts": "2"},
    "recovers": {**RESTARTS, "restart-strategy.fixed-delay.attempts": "100", "execution.checkpointing.interval": "1 s"},
}
ROWS = "'connector'='datagen','rows-per-second'='{rate}'"
COUNTED = "'fields.id.kind'='sequence','fields.id.start'='0','fields.id.end'='{last}'"
WINDOWS = (
    "CREATE TABLE events (id BIGINT, k INT, v DOUBLE, jitter INT, et AS CAST(TIMESTAMPADD(SECOND, -jitter,"
    " CURRENT_TIMESTAMP) AS TIMESTAMP(3)), WATERMARK FOR et AS et - INTERVAL '1' SECOND) WITH ("
    + ROWS.format(rate=500)
    + ",'fields.k.min'='0','fields.k.max'='9','fields.jitter.min'='0','fields.jitter.max'='6')",
    "CREATE TABLE sums (k INT, w TIMESTAMP(3), c BIGINT, s DOUBLE) WITH ('connector'='blackhole')",
)
INSERTS = {
    "windows": (
        "INSERT INTO sums SELECT k, TUMBLE_START(et, INTERVAL '2' SECOND), COUNT(*), SUM(v) FROM events"
        " GROUP BY k, TUMBLE(et, INTERVAL '2' SECOND)"
    ),
    "steady": "INSERT INTO numbers SELECT id FROM endless",
    "recovers": "INSERT INTO numbers SELECT id FROM endless",
    "ends": "INSERT INTO numbers SELECT id FROM few",
    "fails": "INSERT INTO numbers SELECT 100 / (id - 50) FROM few",
    "restarts": "INSERT INTO numbers SELECT 100 / (id - 50) FROM few",
}
PLAIN = (
    f"CREATE TABLE few (id BIGINT) WITH ({ROWS.format(rate=100)},{COUNTED.format(last=100)})",
    f"CREATE TABLE endless (id BIGINT) WITH ({ROWS.format(rate=100)})",
    "CREATE TABLE numbers (id BIGINT) WITH ('connector'='blackhole')",
)


def submit(host: str, port: str, name: str) -> Any:
    """Submit a job and return its client."""
    configuration = Configuration()
    options = {
        "execution.target": "remote",
        "rest.address": host,
        "rest.port": port,
        "execution.attached": "false",
        "pipeline.name": name,
        "parallelism.default": "1",
        **OPTIONS.get(name, {}),
    }
    for option, value in options.items():
        configuration.set_string(option, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for statement in WINDOWS if name == "windows" else PLAIN:
        tables.execute_sql(statement)
    return tables.execute_sql(INSERTS[name]).get_job_client()


if __name__ == "__main__":
    _, host, port, *names = sys.argv
    print(json.dumps({name: str(submit(host, port, name).get_job_id()) for name in names}))
