"""Connections to PostgreSQL. Only where the registry is there is its driver loaded."""

from typing import Any

import psycopg
from psycopg import errors

from jobmeter.registry.breaker import patience_seconds


class Connection(psycopg.Connection[Any]):
    """One that is given up when an answer does not come in time: OperationalError."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ANN401 - psycopg's own
        """See ``psycopg.Connection.wait``."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        seconds = patience_seconds()
        try:
            return super().wait(gen, interval, seconds)
        except errors._WaitTimeout as error:  # noqa: SLF001 - what the method is documented to raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {seconds:g} s") from error


def connect(dialect: object, record: object, arguments: list[Any], options: dict[str, Any]) -> Connection:  # noqa: ARG001 - a listener's shape
    """What SQLAlchemy is to take as a new connection."""
    return Connection.connect(*arguments, **options)
