"""Opens the table of the servers that share a registry."""

from functools import partial

from jobmeter.model.server_group import OpenGroup, open_no_group
from jobmeter.settings import Settings


def make_group_opener(settings: Settings) -> OpenGroup:
    """Return the function that opens the table. Loads the registry's modules only if servers can share it."""
    if not settings.registry_url.startswith("postgres"):
        return open_no_group
    from jobmeter.registry.server_group import open_server_group  # noqa: PLC0415 - said above

    return partial(open_server_group, settings.registry_url)
