"""From a case to its findings."""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rank_findings import rank_findings
from jobmeter.diagnose.rule import THRESHOLDS, Rule, rules
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.finding import Finding


def examine(case: Case, thresholds: Thresholds, which: Sequence[Rule] | None = None) -> list[Finding]:
    """The findings of the rules (by default all), worst first, root causes before their consequences."""
    chosen = rules() if which is None else which
    causes: list[Finding] = []
    facts: list[Finding] = []
    for rule in chosen:
        found = causes if rule.cause is not None else facts
        found += rule.find(rule, case, thresholds[rule.thresholds])
        facts += _facts(rule, case, thresholds)
    ranked = rank_findings(case, causes, facts, {rule.name: rule for rule in chosen}, thresholds[THRESHOLDS])
    return [replace(one, sentence=one.sentence or _sentence(case, one)) for one in ranked]


def _facts(rule: Rule, case: Case, thresholds: Thresholds) -> Iterable[Finding]:
    return rule.find_facts(rule, case, thresholds[rule.name]) if rule.find_facts else ()


def _sentence(case: Case, one: Finding) -> str:
    """Return the first evidence as a sentence about the subject."""
    text = one.evidence[0].text if one.evidence else one.rule
    parts = re.split("[/:]", one.subject.name, maxsplit=1)
    if one.subject.kind == "job" or all(part in text for part in parts):
        return text
    return f"{case.name_of_subject(one.subject)}: {text}"
