"""Life of a server process from start to end.

This module imports little, because its imports delay the start. A thread opens the engine while the rest is loaded.
"""

from collections.abc import Callable
from contextlib import ExitStack

from jobmeter.kernel.library import require
from jobmeter.model.time import SystemClock
from jobmeter.server.address import bind, find_tls_files
from jobmeter.server.folder import claim
from jobmeter.server.http.limits import allow_descriptors
from jobmeter.server.stopping import Stopping
from jobmeter.server.workers.process import fork_workers
from jobmeter.settings import Settings


def run(
    settings: Settings,
    idle_exit: int,
    announce: Callable[[str], None],
    *,
    new_registry: bool = False,
    new_secret_key: bool = False,
    discard_journals: bool = False,
    with_link: bool = False,
) -> None:
    """Serve until stopped, or until ``idle_exit`` seconds without a request (0: never).

    ``announce`` gets a line with the URL when the server listens, and with ``with_link`` a line with a one-time sign-in
    link for the page. For the other flags see ``jobmeter.server.missing.Recreate``. Raises
    ConfigurationError or UnavailableError when the server cannot start.
    """
    require()
    clock = SystemClock()
    find_tls_files(settings)
    _ = settings.worker_processes  # a wrong value is an error before anything starts
    descriptors = allow_descriptors()
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping(settings.grace_seconds))
        bound = stack.enter_context(bind(settings.host, settings.port))
        stack.enter_context(claim(settings.data))
        from jobmeter.server.opening import Opening  # noqa: PLC0415 - said above
        from jobmeter.server.server_group import make_group_opener  # noqa: PLC0415 - said above
        from jobmeter.store.registry import find_opener  # noqa: PLC0415 - said above

        open_engine = find_opener(
            settings.store_dsn,
            clock,
            settings.journals,
            discard=discard_journals,
            peer_listen=settings.peer_listen,
            open_group=make_group_opener(settings),
        )
        workers = fork_workers(bound, settings.worker_processes, stack)
        opening = Opening(open_engine)
        stack.callback(opening.close)
        from jobmeter.server.missing import Recreate  # noqa: PLC0415 - said above
        from jobmeter.server.serving import Start, serve  # noqa: PLC0415 - said above

        recreate = Recreate(registry=new_registry, secret=new_secret_key, journals=discard_journals)
        start = Start(
            settings=settings,
            clock=clock,
            stopping=stopping,
            bound=bound,
            workers=workers,
            opening=opening,
            descriptors=descriptors,
            recreate=recreate,
            with_link=with_link,
            idle_exit=idle_exit,
        )
        serve(start, announce)
