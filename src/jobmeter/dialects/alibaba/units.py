"""The units in which PAI's products answer: percent, and MB/s.

Utilisations are percent: the sample answer of
https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics is 23.45. That page
gives rates no unit; PaiStudio's ListTrainingJobInstanceMetrics documents MB/s for the same metric names.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jobmeter.dialects.base import rounded
from jobmeter.model.catalog import CATALOG
from jobmeter.query.request import Line

_FACTORS: Mapping[str, float] = MappingProxyType({"1": 100.0, "By/s": 1e-6})


def in_their_unit(line: Line) -> list[float]:
    """A line's values as percent (0 to 100) or MB/s (10^6 bytes a second), to 12 significant digits."""
    factor = _FACTORS[CATALOG[line.metric].answer_unit]
    return [rounded(value) for value in (line.value * factor).tolist()]
