"""The ids of series in OpenTSDB's requests and answers."""

from jobmeter.model.series import Series

TSUID_DIGITS = 32


def make_tsuid(series: Series) -> str:
    """Return the id of a series: its job's key and its own key, in 32 hexadecimal digits."""
    return f"{series.job_key:016X}{series.id:016X}"


def split_tsuid(text: str) -> tuple[int, int] | None:
    """Return the job's key and the series' own key from an id; None for an invalid id."""
    if len(text) != TSUID_DIGITS or any(digit not in "0123456789abcdefABCDEF" for digit in text):
        return None
    return int(text[:16], 16), int(text[16:], 16)
