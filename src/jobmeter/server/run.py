"""A server process from its start to its end.

What this module imports stands before everything else that a start does: it is little. The engine is opened on a thread
while the rest is loaded.
"""

from collections.abc import Callable
from contextlib import ExitStack

from jobmeter.model.time import SystemClock
from jobmeter.server.address import bind, tls_files
from jobmeter.server.folder import claimed
from jobmeter.server.http.limits import allow_descriptors
from jobmeter.server.stopping import Stopping
from jobmeter.settings import Settings


def run(
    settings: Settings,
    idle_exit: int,
    announce: Callable[[str], None],
    *,
    new_registry: bool = False,
    new_secret_key: bool = False,
    with_link: bool = False,
) -> None:
    """Serve until stopped, or until no request came for ``idle_exit`` seconds (0: for ever).

    ``announce`` gets one line with the URL when the server listens, and with ``with_link`` one that signs in to the
    page once. ``new_registry`` and ``new_secret_key`` are those of ``jobmeter.server.missing.Anew``. Raises
    ConfigurationError or UnavailableError when the server cannot start.
    """
    clock = SystemClock()
    tls_files(settings)
    descriptors = allow_descriptors()
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping(settings.grace_seconds))
        bound = stack.enter_context(bind(settings.host, settings.port))
        stack.enter_context(claimed(settings.data))
        from jobmeter.server.opening import Opening  # noqa: PLC0415 - said above
        from jobmeter.store.registry import opener  # noqa: PLC0415 - said above

        opening = Opening(opener(settings.store_dsn, clock))
        stack.callback(opening.close)
        from jobmeter.server.missing import Anew  # noqa: PLC0415 - said above
        from jobmeter.server.serving import Start, serve  # noqa: PLC0415 - said above

        anew = Anew(registry=new_registry, secret=new_secret_key)
        start = Start(
            settings=settings,
            clock=clock,
            stopping=stopping,
            bound=bound,
            opening=opening,
            descriptors=descriptors,
            anew=anew,
            with_link=with_link,
            idle_exit=idle_exit,
        )
        serve(start, announce)
