import io
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobmeter.cli.output import (
    BARS,
    Curve,
    build_console,
    build_table,
    draw_chart,
    draw_sparkline,
    escape_cell,
    format_duration,
    format_time,
    print_hanging,
    show_listing,
)
from jobmeter.model.quantity import format_quantity


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, "-"),
        (0, "0ms"),
        (210, "210ms"),
        (25_300, "25.3s"),
        (5_000, "5s"),
        (1_800_000, "30m"),
        (86_400_000, "1d"),
        (200_000, "3m 20s"),
        (3_840_000, "1h 04m"),
        (2 * 86_400_000 + 3 * 3_600_000, "2d 3h"),
        (59_960, "1m"),
        (119_600, "2m"),
        (3_599_700, "1h"),
        (86_399_000, "1d"),
    ],
)
def test_duration(length, text):
    assert format_duration(length) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "By", "-"),
        (0.612, "1", "61.2%"),
        (0, "By", "0 B"),
        (1536, "By", "1.5 KiB"),
        (80 * 2**30, "By", "80.0 GiB"),
        (3_100_000, "By/s", "3.0 MiB/s"),
        (1.98e9, "Hz", "2.0 GHz"),
        (0.529, "{core}", "0.53 cores"),
        (301.25, "W", "301 W"),
        (77_277.4, "W", "77.3 kW"),
        (999.6, "W", "1 kW"),
        (62.3766, "Cel", "62.4 °C"),
        (1.296e6, "J", "1.3 MJ"),
        (360, "Wh", "360 Wh"),
        (0.1234567, "s", "0.123 s"),
        (5450.4, "s", "5,450 s"),
        (1_234_567, "{error}", "1,234,567 error"),
        (2.345678, "", "2.34568"),
        (-1500, "W", "-1.5 kW"),
        (41, "Cel", "41 °C"),
        (3, "{error}", "3 error"),
        (2.5, "", "2.5"),
        (7, "ms", "7 ms"),
        (4.2, "", "4.2"),
        (1_048_550, "By", "1.0 MiB"),
        (1_048_550, "By/s", "1.0 MiB/s"),
        (float("inf"), "By", "inf PiB"),
    ],
)
def test_quantity(value, unit, text):
    assert format_quantity(value, unit) == text


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_back(text: str) -> tuple[float, float]:
    """Return the milliseconds of a printed duration, and the size of its last digit."""
    parts = re.findall(r"(\d+)(\.\d)? ?(ms|[smhd])", text)
    assert "".join(f"{whole}{rest}{unit}" for whole, rest, unit in parts) == text.replace(" ", "")
    for (_, _, larger), (whole, _, unit) in pairwise(parts):
        assert int(whole) * _UNITS_MS[unit] < _UNITS_MS[larger], f"{text}: {larger} and {unit}"
    _, rest, unit = parts[-1]
    length = sum(float(whole + rest) * _UNITS_MS[unit] for whole, rest, unit in parts)
    return length, _UNITS_MS[unit] / (10 if rest else 1)


@given(st.integers(0, 10**11) | st.integers(0, 10**7) | st.integers(0, 10**5))
def test_a_duration_reads_back_as_the_length_it_was_made_of(length):
    text = format_duration(length)
    read, digit = read_back(text)
    # "1h" means "1h 00m" without the zero, so it is exact to half a minute.
    smaller = {"1d": 3_600_000, "1h": 60_000, "1m": 1_000, "1s": 100}
    exact = smaller.get(re.sub(r"^\d+(\.\d)?", "1", text), digit)
    assert abs(read - length) <= exact / 2
    assert re.fullmatch(r"(?!60s|60m|24h|1000ms).*", text)


@given(st.lists(st.integers(0, 10**10) | st.integers(0, 10**6), min_size=2, max_size=2))
def test_a_longer_duration_never_reads_shorter(lengths):
    short, long = sorted(lengths)
    assert read_back(format_duration(short))[0] <= read_back(format_duration(long))[0]


def test_moment_is_utc():
    assert format_time(1_790_000_000_999) == "2026-09-21 14:13:20"
    assert format_time(None) == "-"


def test_sparkline_covers_the_step_of_a_point_and_leaves_gaps_blank():
    curve = Curve([(0, 1.0), (10, 2.0), (30, 4.0)], 0, 40, 10)
    assert draw_sparkline(curve, 4) == "▃▅ █"
    assert draw_sparkline(curve, 8) == "▃▃▅▅  ██"


def test_a_flat_line_at_zero_is_drawn_at_the_bottom():
    assert draw_sparkline(Curve([(0, 0.0)], 0, 10, 10), 3) == "▁▁▁"


def test_no_points_draw_nothing():
    assert draw_sparkline(Curve([], 0, 10, 10), 3).strip() == ""


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e9, 1e9)), max_size=50),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
    st.integers(1, 100),
)
def test_sparkline_has_its_width_whatever_the_points(points, end, step, width):
    line = draw_sparkline(Curve(sorted(points), 0, end, step), width)
    assert len(line) == width
    assert set(line) <= set(BARS) | {" "}
    inside = [point for point in points if point[0] < end]
    assert bool(line.strip()) == bool(inside)


def test_chart_names_its_bounds_and_its_range():
    text = draw_chart(Curve([(0, 0.0), (60_000, 1.0)], 0, 120_000, 60_000), "1", height=2, width=60)
    top, bottom, axis = text.split("\n")
    assert top.startswith("100.0% ┤")
    assert bottom.startswith("  0.0% ┤▁")
    assert "1970-01-01 00:00:00" in axis
    assert axis.endswith("1970-01-01 00:02:00")


def test_a_cell_cannot_act_on_a_terminal():
    assert escape_cell("\x1b[31mred\x07") == "�[31mred�"
    assert escape_cell("[bold]x") == "\\[bold]x"


def test_plain_output_is_never_cut():
    file = io.StringIO()
    long = "x" * 300
    build_console(file).print(build_table(("id", "n"), [(long, "1")], right=("n",)))
    assert long in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_only_a_state_has_the_colour_of_a_state():
    coloured = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    coloured.print(build_table(("name", "state"), [("Failed", "Running")]))
    text = coloured.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[32mRunning" in text
    assert "31mFailed" not in text


@pytest.mark.parametrize("width", [200, 12])
def test_a_job_with_the_name_of_a_state_is_listed_without_its_colour(width):
    coloured = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    show_listing(coloured, ("id", "name", "state"), [("an-id-as-long-as-this", "Failed", "Running")])
    text = coloured.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[32mRunning" in text
    assert "31mFailed" not in text


def test_states_have_colours_on_a_terminal_only():
    rows = [("Failed",)]
    coloured = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    coloured.print(build_table(("state",), rows))
    assert "\x1b[1;31mFailed" in coloured.file.getvalue()  # type: ignore[attr-defined]


@given(st.lists(st.text("ab[", min_size=1, max_size=60), min_size=1, max_size=12), st.integers(40, 90))
def test_a_wrapped_text_is_indented_and_complete(parts, width):
    shown = io.StringIO()
    print_hanging(Console(file=shown, width=width, highlight=False), "  ", escape_cell(" ".join(parts)), 4)
    first, *further = shown.getvalue().splitlines()
    assert first.startswith("  ")
    assert all(line.startswith("    ") and line[4:].strip() for line in further)
    assert all(len(line) <= width for line in (first, *further))
    assert "".join([first, *further]).replace(" ", "") == "".join(parts)


def test_a_long_text_stays_one_line_outside_a_terminal():
    shown = io.StringIO()
    print_hanging(build_console(shown), "  ", "word " * 500 + "end", 4)
    assert shown.getvalue() == "  " + "word " * 500 + "end\n"


@given(st.integers(0, 150), st.integers(1, 36))
def test_a_tail_stays_on_one_line(length, tail_length):
    shown, end = io.StringIO(), "e" * tail_length
    print_hanging(Console(file=shown, width=40, highlight=False), "", "a " * length, 4, tail=end)
    lines = shown.getvalue().splitlines()
    assert lines[-1].endswith(end)
    assert all(len(line) <= 40 for line in lines)
