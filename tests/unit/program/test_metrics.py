"""Tests of notebook metrics: the summary on one scale, unusual lines, plots with units."""

import re

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.client.bodies import MetricAnswer, MetricLine
from jobmeter.errors import InvalidRequestError
from jobmeter.program.metrics import FEW, Metrics, select_unusual

STEP = 60_000


def line(rank, values, metric="gpu.utilization", unit="1"):
    points = [(STEP * at, value) for at, value in enumerate(values)]
    place = {"replica": f"worker-{rank}", "device": "gpu0", "rank": rank}
    return MetricLine(metric=metric, unit=unit, points=points, **place)


def answered(*lines):
    return Metrics(MetricAnswer(job="train-1", start=0, end=STEP * 10, step=STEP, lines=list(lines)))


def ranks(count, slow=(), metric="gpu.utilization", unit="1", scale=1.0):
    means = [(0.55 if rank in slow else 0.9 + 0.001 * (rank % 5)) * scale for rank in range(count)]
    return [
        line(rank, [mean, mean + 0.01 * scale, mean - 0.01 * scale], metric, unit) for rank, mean in enumerate(means)
    ]


def test_many_lines_are_summarised_with_the_lowest_the_highest_and_the_unusual_ones():
    shown = repr(answered(*ranks(64, slow=(7, 23)))).splitlines()
    assert len(shown) == 6
    assert shown[0].startswith("<Metrics of train-1: 64 lines, 192 values, 1970-01-01 00:00:00 to")
    cells = [re.split(r"  +", row) for row in shown[1:]]
    assert cells[0] == ["metric", "line", "mean", "min", "max", "last"]
    assert cells[1] == ["gpu.utilization", "median of 64 lines", "90.2%", "54.0%", "91.4%", "89.2%"]
    assert cells[2][:3] == ["gpu.utilization", "lowest: worker-7 gpu0", "55.0%"]
    assert cells[3][1].startswith("highest: worker-")
    assert cells[4][:3] == ["gpu.utilization", "worker-23 gpu0", "55.0%"]


def test_few_lines_are_printed_one_by_one_on_the_scale_of_their_metric():
    found = answered(*ranks(2), *ranks(2, metric="gpu.power", unit="W", scale=700.0))
    assert [row.split()[:2] for row in repr(found).splitlines()[2:]] == [
        ["gpu.utilization", "worker-0"], ["gpu.utilization", "worker-1"],
        ["gpu.power", "worker-0"], ["gpu.power", "worker-1"],
    ]  # fmt: skip
    shown = answered(line(0, [1.0, 1.0]), line(1, [0.5, 0.5]))._repr_html_()
    heights = [set(re.findall(r",([0-9.]+)", points)) for points in re.findall(r'points="([^"]*)"', shown)]
    assert heights == [{"1.0"}, {"12.0"}], "half as high on a scale from 0 to 1"


def test_many_lines_share_one_chart_in_which_unusual_ones_are_red():
    shown = answered(*ranks(64, slow=(7,)))._repr_html_()
    assert shown.count("<svg") == 3
    chart = shown.split("<svg")[1]
    assert chart.count("<polyline") == 64
    assert chart.count("#d62728") == 1
    assert chart.rindex("#d62728") > chart.rindex("opacity"), "drawn above the others"


def test_nothing_was_measured():
    assert repr(answered()).count("\n") == 0
    assert "<table>" in answered()._repr_html_()
    assert answered().unusual == []


NEAR = st.lists(st.floats(0.96, 1.04), min_size=4, max_size=70)


@given(NEAR, st.floats(1e-3, 1e9))
def test_lines_within_a_tenth_of_their_median_are_usual_on_any_scale(means, scale):
    assert select_unusual([line(rank, [mean * scale]) for rank, mean in enumerate(means)]) == []


@given(st.lists(st.floats(0.99, 1.01), min_size=5, max_size=70), st.floats(0.0, 0.7), st.floats(1e-3, 1e9), st.data())
def test_one_line_far_from_the_others_is_found_wherever_it_stands(means, low, scale, data):
    place = data.draw(st.integers(0, len(means)))
    lines = [line(rank, [mean * scale]) for rank, mean in enumerate([*means[:place], low, *means[place:]])]
    lines[place] = line(place, [low * scale])
    assert select_unusual(lines) == [lines[place]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_few_lines_none_is_unusual(count):
    assert select_unusual(ranks(count, slow=(0,))) == []


@pytest.fixture
def figures():
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    yield plt
    plt.close("all")


def test_a_plot_has_units_and_names_the_unusual_line(figures):
    axes = answered(*ranks(64, slow=(23,), metric="gpu.power", unit="W", scale=700.0)).plot()
    assert len(axes.get_lines()) == 64
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["worker-23 gpu0"]
    marked = [one for one in axes.get_lines() if one.get_color() == "tab:red"]
    assert [one.get_label() for one in marked] == ["worker-23 gpu0"]
    assert axes.yaxis.get_major_formatter()(1500, 0) == "1.5 kW"
    assert axes.get_ylabel() == "gpu.power"
    assert axes.get_title().startswith("train-1: ")


def test_metrics_with_different_units_have_axes_each(figures):
    both = answered(*ranks(3), *ranks(3, metric="gpu.power", unit="W", scale=700.0))
    axes = both.plot()
    assert [one.get_ylabel() for one in axes] == ["gpu.utilization", "gpu.power"]
    assert [one.yaxis.get_major_formatter()(0.5, 0) for one in axes] == ["50.0%", "0.5 W"]
    with pytest.raises(InvalidRequestError, match=r"gpu\.utilization, gpu\.power: name one"):
        both.plot(axes[0])
    assert answered(*ranks(3)).plot(axes[0]) is axes[0]
    assert answered().plot() is not None


def test_a_legend_has_at_most_a_few_lines(figures):
    assert answered(*ranks(FEW + 1)).plot().get_legend() is None
    assert len(answered(*ranks(FEW)).plot().get_legend().get_texts()) == FEW
