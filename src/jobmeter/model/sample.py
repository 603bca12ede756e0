"""Single measurement: the form in which an agent takes them (the server's is ``jobmeter.model.batch``)."""

from typing import NamedTuple

from jobmeter.model.series import Series


class Sample(NamedTuple):
    """Value of a series at a time: epoch milliseconds, and the catalogue's unit."""

    series: Series
    time_ms: int
    value: float
