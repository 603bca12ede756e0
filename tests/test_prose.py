"""Tests of prose: docstrings and the page's comments and texts start with a verb or noun, without private phrases."""

from pathlib import Path

import pytest

import jobmeter
from tests.support.prose import BEGINNINGS, PHRASES, faults, page_faults

ROOT = Path(__file__).parent.parent
SOURCE = Path(jobmeter.__file__).parent
PAGE = ROOT / "web" / "src"


@pytest.mark.parametrize("folder", [SOURCE, ROOT / "tests", ROOT / "benchmarks"], ids=lambda folder: folder.name)
def test_docstrings_have_no_forbidden_words(folder):
    modules = sorted(folder.rglob("*.py"))
    assert len(modules) > 60
    found = {str(module.relative_to(folder)): faults(module.read_text()) for module in modules}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_page_has_no_forbidden_words():
    modules = sorted(
        path for end in ("ts", "tsx", "css") for path in PAGE.rglob(f"*.{end}") if path.name != "schema.d.ts"
    )
    assert len(modules) > 90
    found = {str(module.relative_to(PAGE)): page_faults(module.read_text()) for module in modules}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "source",
    [
        "// What is shown.\n",
        "/** What is shown. */\n",
        "/**\n * What is\n * shown.\n */\n",
        "a(); // What is shown.\n",
        "{/* What is shown. */}\n",
        'const text = "What is shown.";\n',
        "<p>\n  What is <b>shown</b>.\n</p>\n",
    ],
)
def test_a_forbidden_beginning_is_a_fault_of_comments_and_texts_of_the_page(source):
    assert [words for _, words in page_faults(source)] == ["What"]
    assert page_faults(source.replace("What is", "See")) == []


def test_only_the_first_of_adjacent_comments_begins_a_comment():
    assert page_faults('const url = "https://a.b/What is";\n\n// Show it, because\n// What follows needs it.\n') == []
    assert page_faults("go();\n\n// Show it. It is shown by itself.\n") == [(3, "by itself")]


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
