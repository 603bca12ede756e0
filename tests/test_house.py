"""Figures of the source stay within their bars."""

import ast

import pytest

from tests import house
from tests.house import FIGURES, packages_without_tests, private_accesses, shared_class_names


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure):
    assert figure.count() <= figure.bar


def test_a_class_name_of_two_modules_is_found(monkeypatch):
    modules = {"query/a.py": "class Line: ...\nclass _Own: ...", "cli/b.py": "class Line: ...\nclass _Own: ..."}
    monkeypatch.setattr(house, "trees", lambda: {name: ast.parse(text) for name, text in modules.items()})
    assert shared_class_names() == {"Line": ["query/a.py", "cli/b.py"]}


def test_the_figures_see_what_they_count():
    """Packages and accesses that are there on purpose are found."""
    assert "registry/columns" not in packages_without_tests()
    assert private_accesses() > 0
