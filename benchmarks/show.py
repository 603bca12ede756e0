"""The table for people: as text, or as Markdown that is ready to paste."""

from collections.abc import Iterable, Sequence

from benchmarks.row import OURS, PROMETHEUS, VICTORIA, Row, Verdict, joined, verdicts

PEERS = (VICTORIA, PROMETHEUS)


def show(runs: Sequence[Sequence[Row]]) -> str:
    """Medians with the lowest and highest of the rounds; ``better by`` above 1 speaks for Jobmeter. Bars at the end."""
    rows = _rows(runs)
    table = [["", OURS, *PEERS, "better by"]]
    table += [[f"{row.name} [{row.unit}]", *(_cell(row, one) for one in (OURS, *PEERS)), _last(row)] for row in rows]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    lines = [
        f"{line[0]:{widths[0]}}" + "".join(f"  {line[at]:>{widths[at]}}" for at in (1, 2, 3)) + f"   {line[4]}"
        for line in table
    ]
    return "\n".join([*lines, "", *bars(verdicts(runs), len(runs))])


def bars(judged: Iterable[Verdict], runs: int) -> list[str]:
    """Which bars are met, a line each."""
    lines = ["bars (times better than the peer in the same run; what is asked for)"]
    for one in judged:
        word = _word(one, runs)
        ratios = ", ".join(f"{ratio:.2f}x" for ratio in one.ratios)
        wanted = f"{one.bar.text}: {'more than ' if one.bar.strict else ''}{one.bar.times:g}x {one.bar.peer}"
        lines.append(f"  {one.name:52} {word:14} {ratios:24} {wanted}")
    return lines


def markdown(runs: Sequence[Sequence[Row]], versions: dict[str, str], machine: str) -> str:
    """The table as Markdown, the machine above it."""
    judged = {one.name: one for one in verdicts(runs)}
    heads = [f"{name} {versions.get(name, '')}".strip() for name in (OURS, *PEERS)]
    lines = [machine, "", f"| | {' | '.join(heads)} | better by | bar |", "|---|---|---|---|---|---|"]
    for row in _rows(runs):
        cells = [_cell(row, name) if row.figures.get(name) else "" for name in (OURS, *PEERS)]
        verdict = judged.get(row.name)
        lines.append(f"| {row.name}, {row.unit} | {' | '.join(cells)} | {_ratios(row)} | {_bar(verdict)} |")
    return "\n".join(lines)


def _bar(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return f"{verdict.bar.text}: {_word(verdict, len(verdict.ratios))}"


def _word(verdict: Verdict, runs: int) -> str:
    if not verdict.ratios:
        return "not measured"
    return ("met" if verdict.met else "not met") if runs == 1 else f"met in {verdict.met} of {len(verdict.ratios)}"


def _rows(runs: Sequence[Sequence[Row]]) -> Sequence[Row]:
    return runs[0] if len(runs) == 1 else joined(runs)


def _cell(row: Row, name: str) -> str:
    values = row.figures.get(name)
    if not values:
        return "-"
    spread = f" ({_short(min(values))} to {_short(max(values))})" if len(values) > 1 else ""
    return _short(row.median(name) or 0.0) + spread


def _ratios(row: Row) -> str:
    found = ((name, row.ratio(name)) for name in PEERS)
    return ", ".join(f"{ratio:.2f}x {name}" for name, ratio in found if ratio is not None)


def _last(row: Row) -> str:
    return f"{_ratios(row)}  ({row.note})" if row.note else _ratios(row)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
