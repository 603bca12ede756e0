"""Table of the results as text or as Markdown."""

from collections.abc import Sequence

from benchmarks.row import OURS, PROMETHEUS, VICTORIA, Result, Table, joined, verdict

PEERS = (VICTORIA, PROMETHEUS)
_HEADS = ("ratio", "bar", "")


def text(tables: Sequence[Table], versions: dict[str, str]) -> str:
    """Return the table as text, with a line for each row.

    A cell has the median, and the lowest and the highest figure of the rounds. Jobmeter is better at a ratio above 1.
    """
    lines = _lines(tables, versions)
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    aligned = [
        "  ".join(f"{cell:{'<' if at in (0, 5, 6) else '>'}{widths[at]}}" for at, cell in enumerate(line)).rstrip()
        for line in lines
    ]
    return "\n".join([*aligned, *_remarks(tables)])


def markdown(tables: Sequence[Table], versions: dict[str, str]) -> str:
    """Return the table of ``text`` as Markdown."""
    first, *rest = _lines(tables, versions)
    lines = [first, ["---"] * len(first), *rest]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + [f"\n{one}" for one in _remarks(tables)])


def _lines(tables: Sequence[Table], versions: dict[str, str]) -> list[list[str]]:
    heads = [f"{name} {versions.get(name, '')}".strip() for name in (OURS, *PEERS)]
    lines = [["", *heads, *_HEADS]]
    for one in joined(tables):
        cells = [_cell(one, name) for name in (OURS, *PEERS)]
        ratio = one.ratio(VICTORIA)
        bar = one.row.bar.text if one.row.bar else ""
        met = "VOID" if one.failure else verdict(one.row, tables)
        lines.append([f"{one.row.name}, {one.row.unit}", *cells, f"{ratio:.2f}" if ratio else "", bar, met])
    return lines


def _remarks(tables: Sequence[Table]) -> list[str]:
    found = joined(tables)
    notes = [f"{one.row.key}: {note}" for one in found for note in one.notes]
    return [*notes, *dict.fromkeys(f"{one.row.key} is void: {one.failure}" for one in found if one.failure)]


def _cell(result: Result, name: str) -> str:
    values = result.figures.get(name)
    if not values:
        return ""
    spread = f" ({_short(min(values))} to {_short(max(values))})" if len(values) > 1 else ""
    return _short(result.median(name) or 0.0) + spread


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
