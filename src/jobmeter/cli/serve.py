"""``jobmeter serve``: starts the server."""

import gc
import logging
import signal
import sys

import click

from jobmeter.cli.options import data_option, define_verb
from jobmeter.errors import ConfigurationError
from jobmeter.server import LOG_FORMAT
from jobmeter.settings import load

_PORT = click.IntRange(0, 65_535)
_LEVELS = ("debug", "info", "warning", "error")


_GROUPS = {
    "Address": ("host", "port", "tls_cert", "tls_key", "opentsdb_port", "otlp_grpc_port", "processes"),
    "Storage": ("data", "store", "registry", "peer_listen", "new_registry", "new_secret_key", "discard_journals"),
    "Alerts": ("alert_rules", "alert_config"),
}


@define_verb(
    "jobmeter serve",
    "jobmeter serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key",
    name="serve",
    groups=_GROUPS,
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on (default: 127.0.0.1).")
@click.option("--port", type=_PORT, metavar="PORT", help="Port to listen on; 0: any free one (default: 8400).")
@click.option(
    "--processes",
    metavar="NUMBER|auto",
    help="Number of processes; more than 1 adds HTTP workers; auto: one per core, at most 8 (default: 1).",
)
@data_option
@click.option("--store", metavar="DSN", help="Engine: clickhousedb://... or chdb://PATH (default: in the data folder).")
@click.option(
    "--registry", metavar="URL", help="Registry: postgresql://... or sqlite:///PATH (default: in the data folder)."
)
@click.option(
    "--peer-listen",
    metavar="HOST:PORT|off",
    help="Address for the other servers on the same ClickHouse server (default: a free port of this machine).",
)
@click.option(
    "--opentsdb-port", type=_PORT, metavar="PORT", help="Port for OpenTSDB's telnet; 0: any free one (default: none)."
)
@click.option(
    "--otlp-grpc-port", type=_PORT, metavar="PORT", help="Port for OTLP over gRPC; 0: any free one (default: none)."
)
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="Certificate chain in PEM: serve HTTPS.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="The certificate's private key in PEM.")
@click.option(
    "--alert-rules",
    type=click.Path(dir_okay=False),
    multiple=True,
    help="File with alerting and recording rules in Prometheus' form; may be repeated.",
)
@click.option(
    "--alert-config",
    type=click.Path(dir_okay=False),
    help="File with routes and receivers of alerts in Alertmanager's form.",
)
@click.option(
    "--idle-exit",
    type=click.IntRange(0),
    default=0,
    metavar="SECONDS",
    help="Stop after this many seconds without a request (0: never).",
)
@click.option(
    "--new-registry", is_flag=True, help="Create an empty registry if the registry of existing samples is lost."
)
@click.option(
    "--new-secret-key",
    is_flag=True,
    help="Create a new secret key if the old one, which encrypts the keys' secrets, is lost.",
)
@click.option(
    "--discard-journals",
    is_flag=True,
    help="Start even if another server left samples in its journal when it died, and discard them.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Log level; debug logs every request.")
def command(
    idle_exit: int,
    log_level: str,
    new_registry: bool,
    new_secret_key: bool,
    discard_journals: bool,
    alert_rules: tuple[str, ...],
    **flags: object,
) -> None:
    """Start the server.

    Everything is stored in the data folder. The first start creates an administrator's key there (admin.key). SIGTERM
    and SIGINT stop the server; running requests are answered first.
    """
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    logging.getLogger("jobmeter").setLevel(log_level.upper())
    for name in ("urllib3", "clickhouse_connect"):
        logging.getLogger(name).setLevel(logging.ERROR)  # their warnings repeat failures that Jobmeter logs
    logging.captureWarnings(capture=True)
    # Imported modules stay, so a garbage collection during the imports would free nothing and take a tenth of the
    # start. The server enables it again.
    gc.disable()
    # Until the server handles it, a SIGTERM during the start must still unwind open resources.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = load(None, **flags, alert_rules=",".join(alert_rules) or None)
    try:
        from jobmeter.server.run import run

        run(
            settings,
            idle_exit,
            click.echo,
            new_registry=new_registry,
            new_secret_key=new_secret_key,
            discard_journals=discard_journals,
            # Logs must not contain secrets, not even one-time ones.
            with_link=sys.stdout.isatty(),
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing: install jobmeter[server] to run a server") from error
    finally:
        gc.enable()
