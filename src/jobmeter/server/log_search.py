"""Answers a search for log lines page by page, with sealed tokens between them."""

import msgspec
from msgspec.structs import replace

from jobmeter.access.page_token import seal, unseal
from jobmeter.access.principal import Scope
from jobmeter.query.log_pages import FoundLines, LogCursor, LogSearch, next_lines
from jobmeter.server.services import Services


def search_logs(services: Services, search: LogSearch, scope: Scope) -> FoundLines:
    """One page. Raises as ``Executor.run``, and InvalidRequestError for an invalid token."""
    now_ms = services.clock.now_ms()
    question_bytes = repr(replace(search.question, limit=0)).encode()
    cursor = None
    if search.token:
        place = unseal(services.vault, question_bytes, search.token, now_ms, search.field)
        cursor = msgspec.msgpack.decode(place, type=LogCursor)
    lines, end = next_lines(lambda question: services.executor.run(question, scope), search.question, cursor)
    return FoundLines(lines, seal(services.vault, question_bytes, msgspec.msgpack.encode(end), now_ms) if end else "")
