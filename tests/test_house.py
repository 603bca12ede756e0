"""Figures of the source stay within their bars."""

import pytest

from tests.house import FIGURES, packages_without_tests, private_accesses, shared_class_names


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure):
    assert figure.count() <= figure.bar


def test_the_figures_see_what_they_count():
    """Names and packages that are there on purpose are found."""
    assert "JobDetail" in shared_class_names()
    assert "registry/columns" not in packages_without_tests()
    assert private_accesses() > 0
