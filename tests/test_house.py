"""Figures of the source stay within their bars."""

import pytest

from tests.house import FIGURES, SHARED_NAMES, packages_without_tests, private_accesses, shared_class_names


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure):
    assert figure.count() <= figure.bar


def test_the_figures_see_what_they_count():
    """Names and packages that are there on purpose are found."""
    assert shared_class_names().keys() >= SHARED_NAMES.keys(), "a reason for a name that stands for one thing"
    assert "registry/columns" not in packages_without_tests()
    assert private_accesses() > 0
