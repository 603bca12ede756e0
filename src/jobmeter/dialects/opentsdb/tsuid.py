"""The ids of series that OpenTSDB's requests and answers have."""

from jobmeter.model.series import Series

TSUID_DIGITS = 32


def tsuid(series: Series) -> str:
    """The id of a series: its job's key and its own, in 32 hexadecimal digits."""
    return f"{series.job_key:016X}{series.id:016X}"


def split_tsuid(text: str) -> tuple[int, int] | None:
    """The job's key and the series' own of an id; None for what cannot be one."""
    if len(text) != TSUID_DIGITS or any(digit not in "0123456789abcdefABCDEF" for digit in text):
        return None
    return int(text[:16], 16), int(text[16:], 16)
