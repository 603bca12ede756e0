"""Tests of the source's size figures: none exceeds its limit."""

import pytest

from tests import house
from tests.house import (
    FIGURES,
    find_named,
    names_without_verb,
    noun_names,
    packages_without_tests,
    private_accesses,
    shared_class_names,
)
from tests.support.noun_names import list_noun_names


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure):
    assert figure.count() <= figure.bar


def test_a_class_name_of_two_modules_is_found(monkeypatch):
    modules = {"query/a.py": "class Line: ...\nclass _Own: ...", "cli/b.py": "class Line: ...\nclass _Own: ..."}
    monkeypatch.setattr(house, "named_nodes", lambda: {name: find_named(text) for name, text in modules.items()})
    assert shared_class_names() == {"Line": ["query/a.py", "cli/b.py"]}


def test_a_package_with_tests_is_not_counted():
    assert "registry/columns" not in packages_without_tests()


def test_private_attributes_of_others_are_counted(monkeypatch, tmp_path):
    text = (
        "def test(cache, row):\n    assert cache._entries == row._asdict()\n    cache.inner._size\n    self._own = 1\n"
    )
    (tmp_path / "test_cache.py").write_text(text)
    monkeypatch.setattr(house, "UNIT", tmp_path)
    assert private_accesses() == 2


def test_a_function_is_named_by_a_verb(monkeypatch):
    text = """
def read_size(): ...
def size(): ...
def _size(): ...
@register("rule")
def cpu_low(): ...
class Job:
    def end(self): ...
    def length(self): ...
    @property
    def name(self): ...
"""
    monkeypatch.setattr(house, "named_nodes", lambda: {"model/job.py": find_named(text)})
    assert names_without_verb() == ["model/job.py: size", "model/job.py: length"]


def test_every_listed_exception_is_a_function_without_a_verb():
    assert list_noun_names() - set(noun_names()) == set()


def test_a_listed_exception_is_not_counted(monkeypatch):
    modules = {"cli/main.py": "def main(): ...", "cli/other.py": "def main(): ..."}
    monkeypatch.setattr(house, "named_nodes", lambda: {name: find_named(text) for name, text in modules.items()})
    assert names_without_verb() == ["cli/other.py: main"]
