"""Series and samples of golden cases, in the form of question results."""

import numpy as np

from jobmeter.model.batch import SampleColumns
from jobmeter.model.series import Series
from jobmeter.query.series import FoundSeries, LastQuestion, NamesQuestion, Samples, SamplesQuestion, SeriesQuestion


def series_of(given):
    """Parse a series from its JSON, in which ``labels`` is an object."""
    return Series(**{**given, "labels": tuple(sorted(given.get("labels", {}).items()))})


def columns_of(points):
    """Build columns from a list of (time, value) for each series."""
    rows = sorted((index, time, value) for index, one in enumerate(points) for time, value in one)
    index, time, value = zip(*rows, strict=True) if rows else ((), (), ())
    return SampleColumns(np.array(index, np.uint32), np.array(time, np.int64), np.array(value, np.float64))


def stored_result(given, question):
    """Return the result of a question about stored series; None for any other question."""
    match question:
        case SeriesQuestion():
            return FoundSeries([series_of(one) for one in given or ()])
        case NamesQuestion():
            return given or []
        case SamplesQuestion() | LastQuestion():
            return Samples(columns_of(given or ()))
        case _:
            return None
