"""From a case to its findings."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.lives import plain
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
    by_name = {rule.name: rule for rule in chosen}
    causes, facts = ([_worded(case, one) for one in found] for found in (causes, facts))
    return rank_findings(case, causes, facts, by_name, thresholds[THRESHOLDS])


def _facts(rule: Rule, case: Case, thresholds: Thresholds) -> Iterable[Finding]:
    return rule.find_facts(rule, case, thresholds[rule.name]) if rule.find_facts else ()


def _worded(case: Case, one: Finding) -> Finding:
    """Return a finding with its sentence and the replicas that it is about."""
    replicas = one.replicas or case.replicas_of(one.subject, one.start)
    return replace(one, sentence=one.sentence or _sentence(case, one), replicas=replicas)


def _sentence(case: Case, one: Finding) -> str:
    """Return the first evidence as a sentence about the subject."""
    text = plain(one.evidence[0].text) if one.evidence else one.rule
    name, short = case.name_of_subject(one.subject, one.start), one.subject.name
    if not name or text.startswith(name):
        return text
    return f"{name}{text.removeprefix(short)}" if text.startswith(f"{short} ") else f"{name}: {text}"
