"""Finds the series of a request: by metric or by id."""

from collections.abc import Generator, Sequence
from typing import Any

from jobmeter.dialects.base import ask
from jobmeter.dialects.opentsdb.errors import NO_NAME
from jobmeter.dialects.opentsdb.tsuid import make_tsuid, split_tsuid
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.catalog import CATALOG
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart
from jobmeter.query.series import FoundSeries, NamesQuestion, SeriesQuestion
from jobmeter.wire.opentsdb.names import parse_opentsdb_name


def find_by_metric(metric: str, since_ms: int | None = None) -> Generator[Question[Any], Any, FoundSeries]:
    """Return the series of a metric. Raises NotFoundError (kind ``name``) for an unknown one."""
    name = parse_opentsdb_name(metric)
    found = yield from ask(SeriesQuestion(metrics=frozenset({name}), since_ms=since_ms))
    if not found.series and name not in CATALOG:
        names = yield from ask(NamesQuestion(part=NamePart.METRIC, prefix=name, limit=1))
        if name not in names:
            raise NotFoundError(f"No such name for 'metrics': '{metric[:200]}'", NO_NAME, metric)
    return found


def find_by_tsuids(tsuids: Sequence[str]) -> Generator[Question[Any], Any, FoundSeries]:
    """Return the series of some ids, in the order of the ids; unknown ones are left out.

    Raises InvalidRequestError for an invalid id.
    """
    parts = [split_tsuid(text) for text in tsuids]
    if None in parts:
        raise InvalidRequestError(f"Invalid TSUID: {tsuids[parts.index(None)][:64]}", "tsuids")
    jobs = tuple(sorted({part[0] for part in parts if part is not None}))
    found = yield from ask(SeriesQuestion(jobs=jobs))
    by_id = {make_tsuid(one): one for one in found.series}
    return FoundSeries(tuple(by_id[text] for text in tsuids if text in by_id), found.milliseconds)
