"""Docstrings start with a verb or a noun, and use no private phrases."""

from pathlib import Path

import pytest

import jobmeter
from tests.support.prose import BEGINNINGS, PHRASES, faults

SOURCE = Path(jobmeter.__file__).parent


def test_docstrings_have_no_forbidden_words():
    modules = sorted(SOURCE.rglob("*.py"))
    assert len(modules) > 500
    found = {str(module.relative_to(SOURCE)): faults(module.read_text()) for module in modules}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("beginning", [words for words in BEGINNINGS if words.lower() not in PHRASES])
def test_a_forbidden_beginning_is_a_fault(beginning):
    assert faults(f'def read():\n    """{beginning} this call returns."""\n') == [(2, beginning)]
    assert faults(f'def read():\n    """{beginning}like this."""\n') == []
    assert faults(f'def read():\n    """Return it. {beginning} is elsewhere."""\n') == []


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_forbidden_phrase_is_a_fault_of_any_docstring(phrase):
    text = f"Return a number,\n    {phrase.replace(' ', chr(10) + '    ')} here."
    assert faults(f'"""{text}"""\n') == [(1, phrase)]
    assert faults(f'class Size:\n    bound = 1\n    """{text}"""\n') == [(3, phrase)]
    assert faults(f'bound = "{phrase}"\n') == []
