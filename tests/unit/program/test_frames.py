"""Tests of tables of records."""

import msgspec

from jobmeter.program.frames import RecordList


class Reading(msgspec.Struct):
    """Record with numbers, texts and lists."""

    value: float | None
    place: str = ""
    parts: list[str] = []


def test_a_column_of_zeros_is_shown_and_a_column_of_missing_values_is_not():
    shown = RecordList(Reading, [Reading(0.0), Reading(None)])._repr_html_()
    assert "value" in shown
    assert ">0.0<" in shown
    assert "place" not in shown
    assert "parts" not in shown


def test_a_list_without_records_says_so():
    assert RecordList(Reading)._repr_html_() == "<p>none</p>"


def test_a_long_list_prints_its_number_and_its_first_rows_in_one_line_each():
    rows = [Reading(float(at), place="a\nb" * 40) for at in range(300)]
    head, names, *shown = repr(RecordList(Reading, rows)).splitlines()
    assert (head, names.split(), len(shown)) == ("<300 rows>", ["value", "place"], 10)
    assert all(len(row) <= 70 and row.endswith("…") for row in shown)
    assert repr(RecordList(Reading)) == "<0 rows>"
