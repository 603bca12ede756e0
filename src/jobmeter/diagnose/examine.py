"""Runs the rules on a case, and joins the findings of ranks that one cause explains."""

from collections.abc import Sequence

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.failures import strip_rank
from jobmeter.diagnose.rank_findings import rank_findings
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import THRESHOLDS, Rule
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.finding import Finding, Subject


def examine(case: Case, thresholds: Thresholds, which: Sequence[Rule] | None = None) -> list[Finding]:
    """Return the findings of the rules (by default all), worst first, root causes before their consequences."""
    chosen = list_rules() if which is None else which
    causes: list[Finding] = []
    facts: list[Finding] = []
    for rule in chosen:
        found = causes if rule.cause is not None else facts
        found += rule.evaluate(case, thresholds[rule.thresholds])
        facts += rule.find_facts(rule, case, thresholds[rule.name]) if rule.find_facts else ()
    by_name = {rule.name: rule for rule in chosen}
    causes = [_add_sentence(case, one, _speaker(one)) for one in causes]
    facts = [_add_sentence(case, one) for one in facts]
    return rank_findings(case, causes, facts, by_name, thresholds[THRESHOLDS])


def _speaker(one: Finding) -> Subject:
    """Return the replica whose line explains the job's end, if the record names no failed replica; else the subject."""
    first = one.evidence[0] if one.subject.kind == "job" and one.evidence else None
    return Subject("replica", first.replica) if first and first.kind == "log" and first.replica else one.subject


def _add_sentence(case: Case, one: Finding, about: Subject | None = None) -> Finding:
    """Add the sentence to a finding, and the replicas in it (None: of its subject)."""
    about = about or one.subject
    replicas = one.replicas or case.list_replicas(about, one.start)
    return replace(one, sentence=one.sentence or _sentence(case, one, about), replicas=replicas)


def _sentence(case: Case, one: Finding, about: Subject) -> str:
    """Return the first evidence as a sentence about a subject."""
    text = strip_rank(one.evidence[0].text) if one.evidence else one.rule
    name, short = case.name_subject(about, one.start), about.name
    if not name or text.startswith(name):
        return text
    return f"{name}{text.removeprefix(short)}" if text.startswith(f"{short} ") else f"{name}: {text}"
