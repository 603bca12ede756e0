"""Rules for the prose of docstrings."""

import ast
import re
from collections.abc import Iterator

# A docstring starts with a verb or with the noun that it describes, never with one of these words.
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
    forward freeze from fulfils gather get give go greet group grow guard handle has hash hear hide humanize
    identify import include includes index ingest insert interleave intern intersect invalidate is issue iterate
    join keep label lacks lay lead learn lease leave lift limit list load lock log look lose make map mark match
    matches may measure measures meets mend merge migrate mirror move must mute name names narrow normalize note
    notice notify number observe offer on open order overwrite owns pack parse passes pause peek perform pick
    ping plot point poll pop post predict prefetch prefix prepare price print probe process prove prune put
    quarantine query quote raise rank reach read recall receive record recover redact redeem reduce refresh
    refuse register regroup reject relabel release reload remap remember remove rename render renew renumber
    repeat replace reply report request require reserve reset resize resolve respond restart restore restrict
    resume retry return reverse revoke roll round route run runs save say scale scan seal search select send
    serve set share ship shorten show shows sign simplify skip slice smooth sort spend split spool spot spread
    stamp start step stop store stores stream strip submit subtract suggest sum summarize swap sweep tag take
    test throttle tick to train transform translate trim trust turn unblock unescape unload unmap unpack unseal
    unwrap update upgrade use verify view void wait wake was watch welcome widen with without work works wrap
    write writes
""",
    )
)

_BEGINNING = re.compile(rf"(?:{'|'.join(BEGINNINGS)})\b")
# Case counts: "is None" speaks of Python's value.
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def faults(source: str) -> list[tuple[int, str]]:
    """Return the line and the forbidden words of each docstring that starts with or contains any."""
    found = []
    for line, text in docstrings(source):
        flat = " ".join(text.split())
        matches = [_BEGINNING.match(flat), *_PHRASE.finditer(flat)]
        found += [(line, match.group()) for match in matches if match]
    return found
