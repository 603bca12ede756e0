"""``jobmeter agent``: measures this node and the jobs on it."""

import logging
import os
import signal
import sys
from pathlib import Path

import click

from jobmeter.cli.options import (
    FILE,
    FOLDER,
    build_env_option,
    build_interval_option,
    build_job_ids_option,
    build_key_option,
    ca_file_option,
    check_option,
    check_server,
    define_verb,
    find_data_folder,
    make_stop_event,
    parse_interval,
)
from jobmeter.cli.program_options import add_program_options
from jobmeter.cli.run import read_node_name
from jobmeter.client.transport import Transport
from jobmeter.collect.agent import Agent, NodeSources
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.clusters import SlurmClusters, read_own_cluster
from jobmeter.collect.discover.rules import read_rules
from jobmeter.collect.energy.polled import RedfishSettings
from jobmeter.collect.kubelet.storage import KubeletSettings
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.collect.spool import Spool
from jobmeter.collect.syslog.reader import LogSettings
from jobmeter.collect.text import escape_invalid
from jobmeter.errors import ConfigurationError
from jobmeter.model.cluster import JobIds
from jobmeter.model.series import check_name
from jobmeter.model.time import SystemClock
from jobmeter.wire.program import places

_SHORTEST_INTERVAL_MS = 1000
_LONGEST_GROUP = 256


_GROUPS = {
    "Connection": ("server", "key", "ca_file", "spool"),
    "This node": ("node", "cluster", "resource_group"),
    "Jobs": ("job_rules", "job_mapping_dir", "job_ids"),
    "Energy": ("redfish", "redfish_ca_file"),
    "Storage of pods": ("kubelet", "kubelet_ca_file", "kubelet_token_file"),
    "System logs": ("kernel_log", "journal", "log_files", "log_rate"),
    "Numbers of programs": ("socket", "statsd", "otlp"),
}


@define_verb(
    "jobmeter agent --server https://meter.example --key TOKEN",
    "jobmeter agent --server https://meter.example --key TOKEN --once",
    groups=_GROUPS,
)
@build_env_option("--server", "The server ({}).", metavar="URL", required=True)
@build_key_option("A writer's token (JOBMETER_KEY).", envvar="JOBMETER_KEY", required=True)
@build_interval_option("10s")
@click.option(
    "--spool",
    type=FOLDER,
    metavar="DIR",
    help="Folder for data that waits for the server (default: spool/agent in the data folder).",
)
@click.option("--cluster", metavar="NAME", default="", help="Name of the cluster that this node belongs to.")
@build_env_option("--resource-group", "Resource group that this node belongs to ({}).", metavar="NAME", default="")
@click.option("--node", metavar="NAME", help="Name of this node (default: its host name).")
@ca_file_option
@build_env_option(
    "--job-rules",
    "File with rules that assign units, containers, control groups and commands to jobs ({}).",
    type=FILE,
    metavar="FILE",
)
@build_env_option(
    "--job-mapping-dir",
    "Folder in which a scheduler's prolog writes the GPUs of each job ({}).",
    type=FOLDER,
    metavar="DIR",
)
@build_job_ids_option("Form of Slurm job ids: plain NUMBER, or NUMBER@CLUSTER (JOBMETER_JOB_IDS).")
@click.option("--kernel-log/--no-kernel-log", default=True, help="Read the kernel's log if permitted.")
@click.option("--journal/--no-journal", default=True, help="Read systemd's journal if present.")
@click.option(
    "--log-file",
    "log_files",
    multiple=True,
    metavar="PATTERN",
    envvar="JOBMETER_LOG_FILES",
    help="Read these files, such as /var/log/app/*.log; may be repeated (JOBMETER_LOG_FILES, separated by spaces).",
)
@build_env_option(
    "--log-rate",
    "Most log lines per second from each source ({}); a further line reports how many were dropped.",
    type=click.FloatRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
)
@build_env_option(
    "--redfish",
    "Management controller that measures this node's power: https://[USER:PASSWORD@]HOST ({}).",
    metavar="URL",
)
@build_env_option(
    "--redfish-ca-file", "Certificates (PEM) that verify the management controller ({}).", type=FILE, metavar="FILE"
)
@build_env_option(
    "--kubelet", "This node's kubelet, which measures the storage of pods: https://127.0.0.1:10250 ({}).", metavar="URL"
)
@build_env_option(
    "--kubelet-ca-file",
    "Certificates (PEM) that verify the kubelet ({}; default: the service account's).",
    type=FILE,
    metavar="FILE",
)
@build_env_option(
    "--kubelet-token-file", "Token for the kubelet ({}; default: the service account's).", type=FILE, metavar="FILE"
)
@add_program_options(f"{places.SHARED_FOLDER}/{places.AGENT_SOCKET} for root, else in the user's folder")
@click.option(
    "--once", is_flag=True, help="Measure once, send, and exit; with status 1 if the server did not accept the samples."
)
def command(  # noqa: PLR0913 - one for each option
    *,
    server: str,
    key: str,
    interval: str,
    spool: Path | None,
    cluster: str,
    resource_group: str,
    node: str | None,
    ca_file: str | None,
    once: bool,
    job_rules: Path | None,
    job_mapping_dir: Path | None,
    job_ids: str,
    kernel_log: bool,
    journal: bool,
    log_files: tuple[str, ...],
    log_rate: float,
    redfish: str | None,
    redfish_ca_file: Path | None,
    kubelet: str | None,
    kubelet_ca_file: Path | None,
    kubelet_token_file: Path | None,
    programs: ProgramSettings,
) -> None:
    """Measure this node and the jobs on it, read its system logs, and send everything to a server."""
    logging.basicConfig(level=logging.INFO, format="jobmeter agent: %(message)s")
    check_server(server)
    place = NodeIdentity(
        check_option(check_name, node or read_node_name(), "--node"),
        check_option(check_name, cluster, "--cluster") if cluster else "",
        resource_group=_group(resource_group),
    )
    interval_ms = parse_interval(interval, _SHORTEST_INTERVAL_MS)
    transport = Transport(server, key, ca_file=ca_file)
    agent = Agent(
        place,
        lambda: transport,
        SampleClock(SystemClock()),
        _spool(spool or find_data_folder() / "spool" / "agent"),
        interval_ms,
        LogSettings(kernel=kernel_log, journal=journal, files=log_files, lines_a_second=log_rate),
        NodeSources(
            read_rules(job_rules) if job_rules else (),
            job_mapping_dir,
            SlurmClusters(read_own_cluster(os.environ), JobIds(job_ids)),
            RedfishSettings(redfish, redfish_ca_file) if redfish else None,
            KubeletSettings(kubelet, kubelet_ca_file, kubelet_token_file) if kubelet else None,
        ),
        programs,
    )
    if once:
        if problem := agent.measure_once():
            raise ConfigurationError(problem)
        return
    stop = make_stop_event({signal.SIGUSR2: agent.release_devices})
    logging.getLogger("jobmeter").info("measuring %s every %s for %s", place.node, interval, server)
    if not agent.run(stop):
        logging.getLogger("jobmeter").info("undelivered data stays in the spool; the next start sends it")
    sys.exit(0)


def _spool(directory: Path) -> Spool | None:
    try:
        return Spool(directory)
    except OSError as error:
        logging.getLogger("jobmeter").warning(
            "the spool %s cannot be used (%s): using memory instead", directory, error
        )
        return None


def _group(name: str) -> str:
    if len(name) > _LONGEST_GROUP:
        raise click.UsageError(f"--resource-group may have {_LONGEST_GROUP} characters")
    return escape_invalid(name.strip())
