"""Open the registry that a URL names."""

from contextlib import ExitStack

from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.database import Database
from jobmeter.registry.sql import SqlRegistry


def open_registry(url: str, retention: Retention) -> Registry:
    """The registry at ``sqlite:///PATH`` or ``postgresql://...``, its tables made or migrated.

    ``retention`` is what projects without a setting of their own get. Raises ConfigurationError for a URL that is none
    or a database of a newer version, UnavailableError when the database does not answer.
    """
    with ExitStack() as undo:
        database = Database(url)
        undo.callback(database.close)
        registry = SqlRegistry(database, retention)
        undo.pop_all()
        return registry
