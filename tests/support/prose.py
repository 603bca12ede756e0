"""Rules for the prose of docstrings, and of the comments and texts of the page."""

import ast
import re
from collections.abc import Iterable, Iterator

# A docstring or comment starts with a verb or with the noun that it describes, never with one of these words.
BEGINNINGS = (
    "What",
    "Those of",
    "Of",
    "As",
    "The same",
    "Whether",
    "Where",
    "Who",
    "How",
    "So that",
    "Until",
    "That",
    "One",
    "Nothing",
    "None",
)

# Phrases that a newcomer has to read twice.
PHRASES = (
    "what of",
    "those of",
    "is none",
    "so many",
    "is told",
    "are told",
    "in vain",
    "anew",
    "by itself",
)

# The name of a function begins with a verb or, as in Python's own libraries, with one of `for from on to with`.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
    abandon accept accepts add admit adopt advance aggregate align allocate allow allows alter announce answer
    appear append apply are ask assemble assign attach attempt attribute authenticate authorise authorize
    average await backup balance be become begin bill bind borrow bring bucket build call cancel ceil change
    charge check choose cite claim clamp classify clean clear climb clip close coalesce coarsen collect combine
    commit compare compile complete compose compute concatenate confirm connect contains continue convert copy
    count covers create cut decide decode decompress defer define delete deliver depart derive describe detach
    determine diagnose did digest discard disconnect disown divide do downsample drain draw drive drop dump emit
    encode end enter erase escape estimate evaluate examine exclude exit expand expects expel expire explain export
    expose extend fail feed fence fill filter finalize find finish fit fits floor flush follow for forget format
    fork forward freeze from fulfils gather get give go greet group grow guard handle has hash hear hide humanize
    identify import include includes index ingest insert interleave intern intersect invalidate is issue iterate
    join keep kill label lacks lay lead learn lease leave lift limit list load lock log look lose make map mark match
    matches may measure measures meets mend merge migrate mirror move must mute name names narrow normalize note
    notice notify number observe offer on open order overwrite owns pack parse passes pause peek perform pick
    ping plot point poll pop post predict prefetch prefix prepare price print probe process prove prune put
    quarantine query quote raise rank reach read recall receive record recover redact redeem reduce refresh
    refuse register regroup reject relabel release reload remap remember remove rename render renew renumber
    repeat replace reply report request require reserve reset resize resolve respond restart restore restrict
    resume retry return reverse revoke roll round route run runs save say scale scan seal search select send
    serve set share ship shorten show shows sign simplify skip slice smooth sort spend split spool spot spread
    stamp start step stop store stores stream strip submit subtract suggest sum summarize swap sweep tag take
    test throttle tick to train transform translate trim trust try turn unblock unescape unload unmap unpack unseal
    unwrap update upgrade use verify view void wait wake was watch welcome widen with without work works wrap
    write writes
""",
    )
)

_BEGINNING = re.compile(rf"(?:{'|'.join(BEGINNINGS)})\b")
# Case counts: "is None" speaks of Python's value.
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, including attribute docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


_COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*(?:\n[ \t]*//[^\n]*)*", re.DOTALL)
_COMMENT_MARK = re.compile(r"^\s*(?://|/?\*+/?)|\*/$", re.MULTILINE)
# A string or the content of an element that has words of prose: a capital letter and a space.
_TEXT = re.compile(r"""(["'`>])(\s*[A-Z][^"'`<>{}]* [^"'`<>{}]*)""")


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment of TypeScript or CSS. Adjacent line comments count as one."""
    for match in _COMMENT.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, _COMMENT_MARK.sub("", match.group())


def page_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each sentence that TypeScript shows to people."""
    code = _COMMENT.sub(lambda match: "\n" * match.group().count("\n"), source)
    for match in _TEXT.finditer(code):
        yield code.count("\n", 0, match.start(2)) + 1, match.group(2)


def faults(source: str) -> list[tuple[int, str]]:
    """Return the line and the forbidden words of each docstring of a Python module."""
    return find_faults(docstrings(source))


def page_faults(source: str) -> list[tuple[int, str]]:
    """Return the line and the forbidden words of each comment and text of a module of the page."""
    return find_faults([*comments(source), *page_texts(source)])


def find_faults(texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the line and the forbidden words of each text that starts with or contains any."""
    found = []
    for line, text in texts:
        flat = " ".join(text.split())
        matches = [_BEGINNING.match(flat), *_PHRASE.finditer(flat)]
        found += [(line, match.group()) for match in matches if match]
    return found
