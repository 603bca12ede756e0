"""Figures of the source stay within their bars."""

import ast

import pytest

from tests import house
from tests.house import FIGURES, count_private_accesses, packages_without_tests, shared_class_names


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure):
    assert figure.count() <= figure.bar


def test_a_class_name_of_two_modules_is_found(monkeypatch):
    modules = {"query/a.py": "class Line: ...\nclass _Own: ...", "cli/b.py": "class Line: ...\nclass _Own: ..."}
    monkeypatch.setattr(house, "trees", lambda: {name: ast.parse(text) for name, text in modules.items()})
    assert shared_class_names() == {"Line": ["query/a.py", "cli/b.py"]}


def test_the_figures_see_what_they_count():
    """A package with tests is not listed, and an access in a text of Python is counted."""
    assert "registry/columns" not in packages_without_tests()
    assert count_private_accesses("a._b = self._c + d._replace()") == 1
