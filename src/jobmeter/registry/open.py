"""Opens the registry of a URL."""

from contextlib import ExitStack

from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.database import Database


def open_registry(url: str, retention: Retention) -> Registry:
    """Open the registry at ``sqlite:///PATH`` or ``postgresql://...``, and create or migrate its tables.

    ``retention`` is for projects without a setting. Raises ConfigurationError for an invalid URL or a database of a
    newer version, UnavailableError if the database does not answer.
    """
    with ExitStack() as undo:
        database = Database(url)
        undo.callback(database.close)
        registry = Registry(database, retention)
        undo.pop_all()
        return registry
