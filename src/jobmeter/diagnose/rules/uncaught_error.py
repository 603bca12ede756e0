"""An error that a program in another language than Python did not catch ended a replica."""

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from jobmeter.diagnose.causes import describe_end, make_line_evidence, make_root_finding
from jobmeter.diagnose.failures import FailedReplica, list_failed_replicas, strip_rank
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Weight, quote_line
from jobmeter.model.log import LogLine

_ENDS = frozenset({None, 4, 5, 6})
"""Signals by which runtimes end a program after an uncaught error: no signal, SIGILL, SIGTRAP, SIGABRT."""
_NEAR = 40
"""Lines after an error in which its message or its stack begins."""
_SHOWN = 4
"""Lines of the stack in the evidence."""
_LONGEST = 4_000
"""Characters of a line that are searched: the text is untrusted."""

_ERRORS: tuple[tuple[str, str, str], ...] = (
    # C++: libstdc++ and libc++
    (r"terminate called (?:after throwing|without an active|recursively)", r"^\s*(what\(\): .*)", ""),
    (r"libc\+\+abi: terminating|^pure virtual method called", "", ""),
    # C: the checks of glibc, assert(), sanitizers
    (r"\*\*\* .{1,60} detected \*\*\*|^(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): ", "", ""),
    (r"^double free or corruption|^corrupted (?:size|double-linked)|^[^`']*: Assertion [`'].* failed\.$", "", ""),
    (r"==\d+==ERROR: \w+Sanitizer: |: runtime error: ", "", ""),
    # Go
    (r"^panic: |^fatal error: ", "", r"^goroutine \d+|^\[signal "),
    # Rust: the message follows since version 1.73
    (r"^thread '[^']*' (?:\(\d+\) )?panicked at .*:$", r"^(?!note: |stack backtrace:)(\S.*)", ""),
    (r"^thread '[^']*' (?:\(\d+\) )?panicked at ", "", ""),
    # the Java virtual machine
    (r"^Exception in thread \"|^Caused by: [\w.$]+|^(?:Terminating due to )?java\.lang\.\w+Error\b", "", ""),
    # JavaScript
    (r"^(?:Uncaught )?(?:[A-Z]\w*)?(?:Error|Exception)(?: \[\w+\])?(?:: |$)", "", r"^\s+at \S|^Node\.js v"),
    (r"^FATAL ERROR: .* JavaScript heap out of memory", "", ""),
    # .NET
    (r"^Unhandled exception[.:] ", "", ""),
    # Julia and R
    (r"^ERROR: \S", "", r"^Stacktrace:"),
    (r"^Error(?: in .*)? ?: ?", r"^  (\S.*)", r"^Execution halted|^Calls: "),
    # Ruby, Perl, PHP, Lua
    (r"^\S+\.rb:\d+:in ['`][^']*': .*\([A-Z][\w:]*\)$", "", ""),
    (r"\S at (?:-e|\S+\.(?:pl|pm|t)) line \d+(?:, <\w*> \w+ \d+)?\.$", "", ""),
    (r"^(?:PHP )?Fatal error: |^lua\S*: \S+:\d+: ", "", ""),
    # Fortran, Haskell
    (r"^forrtl: severe \(|^Fortran runtime error: |^ERROR STOP", "", ""),
    (r"^\S+: \S", "", r"^CallStack \(from HasCallStack\)"),
)
"""Expressions by language: the first line of an error, a later line with the message, and a line that must follow.

Lines are untrusted text. An expression repeats any character without limit at most once, behind an anchored begin.
Otherwise the time of a search grows with the square of the line's length.
"""
_COMPILED = tuple(tuple(re.compile(one) if one else None for one in row) for row in _ERRORS)


@Rule(
    title="Uncaught error",
    advice="Read the error and the lines below it from the top: they name the place in the program.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    cause=Weight.GENERIC,
)
def uncaught_error(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find the last uncaught error in the last lines of each failed replica."""
    for failure in list_failed_replicas(case, numbers):
        if failure.signal not in _ENDS or failure.raised is not None:
            continue
        at, text = _find_last_error(failure.lines)
        if at is not None:
            yield make_root_finding(rule, failure, _evidence(failure, at, text), Severity.CRITICAL, 0.8)


def _evidence(failure: FailedReplica, at: int, text: str) -> list[Evidence]:
    lines = failure.lines
    head = replace(make_line_evidence(lines[at]), text=quote_line(text))
    stack = (one for one in lines[at + 1 :] if one.stream == lines[at].stream and one.text.strip())
    return [head, *(make_line_evidence(one) for one in islice(stack, _SHOWN)), describe_end(failure)]


def _find_last_error(lines: Sequence[LogLine]) -> tuple[int | None, str]:
    """Return the index of the last line that begins an error, and the error with its message."""
    texts = [strip_rank(line.text[:_LONGEST]).rstrip() for line in lines]
    for at in range(len(lines) - 1, -1, -1):
        for header, message, follows in _COMPILED:
            if header is None or header.search(texts[at]) is None:
                continue
            near = zip(lines[at + 1 : at + 1 + _NEAR], texts[at + 1 : at + 1 + _NEAR], strict=True)
            after = [text for line, text in near if line.stream == lines[at].stream]
            if follows is not None and not any(map(follows.search, after)):
                continue
            found = next(filter(None, map(message.search, after)), None) if message is not None else None
            return at, texts[at].strip() if found is None else f"{texts[at].strip()} {found[1]}"
    return None, ""
