"""Connections to PostgreSQL. Its driver is loaded only if the registry uses it."""

from typing import Any

import psycopg
from psycopg import errors

from jobmeter.registry.breaker import compute_timeout


class PostgresqlConnection(psycopg.Connection[Any]):
    """A connection that is closed with OperationalError if an answer does not arrive in time."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # noqa: ANN401 - psycopg's own
        """Wait for an answer within the time limit of the context."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        seconds = compute_timeout()
        try:
            return super().wait(gen, interval, seconds)
        except errors._WaitTimeout as error:  # noqa: SLF001 - what the method is documented to raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {seconds:g} s") from error


def connect(dialect: object, record: object, arguments: list[Any], options: dict[str, Any]) -> PostgresqlConnection:  # noqa: ARG001 - a listener's shape
    """Open a connection for SQLAlchemy."""
    return PostgresqlConnection.connect(*arguments, **options)
