"""Routers of the server, in matching order."""

from collections.abc import Sequence

from jobmeter.dialects.registry import list_dialects
from jobmeter.server.dialect_router import DialectRouter
from jobmeter.server.native.router import NativeRouter
from jobmeter.server.pages import PageRouter
from jobmeter.server.pipeline import Router
from jobmeter.server.root import HealthRouter, RootRouter
from jobmeter.server.services import Services


def list_routers(services: Services) -> Sequence[Router]:
    """List the routers in matching order."""
    every = [DialectRouter(dialect, services) for dialect in list_dialects()]
    return [
        NativeRouter(services),
        HealthRouter(services),
        *(router.owned for router in every if router.owned is not None),
        *every,
        PageRouter(),  # after the dialects, because CloudMonitor calls use the page's path
        RootRouter(services, list_dialects()),
    ]
