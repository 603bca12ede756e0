"""Separates root causes from their consequences, and orders the report."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule, Weight
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity, Subject, extend_sentence, rank_severity
from jobmeter.model.grouping import group_pairs

MOST = 16
"""Findings of one rule, at most; beyond that one stands for all."""
_NAMED = 8
"""Findings whose sentences are the evidence of the one that stands for all."""
_MOSTLY = 0.5
"""Least share of a finding's time that another finding must cover to hide it."""
_BARE = frozenset({Weight.SIGNAL, Weight.FALLBACK})
"""Weights of causes that state only the end of a replica."""


def rank_findings(
    case: Case, causes: Sequence[Finding], facts: Sequence[Finding], by_name: Mapping[str, Rule], numbers: Numbers
) -> list[Finding]:
    """Return the findings with their roles, worst first, root causes before their consequences.

    ``causes`` are about the ends of replicas, ``facts`` about anything else. ``numbers`` are the thresholds of causes.
    """
    facts = _leave_out_hidden(case, facts, by_name)
    ranked = _causes(case, causes, by_name, numbers)
    explained = _explain_by_device_fault(ranked, facts, by_name, numbers)
    folded = _fold_repeated(case, [*explained, *_order_after_ends(case, facts, ranked, by_name, numbers)])
    return sorted(folded, key=lambda one: rank_severity(one.severity, one.role, start=one.start, rule=one.rule))


def _leave_out_hidden(case: Case, found: Sequence[Finding], by_name: Mapping[str, Rule]) -> list[Finding]:
    """Leave out findings that another finding explains: its rule hides theirs, and the times mostly overlap.

    A finding about the job explains findings about its members. A finding about a node explains findings about the
    members there. Any other finding explains findings about the same subject.
    """
    hiding = [one for one in found if by_name[one.rule].hides]
    nodes = {one.name: one.node for one in case.view.replicas}

    def places(subject: Subject) -> set[Subject]:
        """Subjects whose findings may explain a finding about this subject."""
        node = subject.name.partition("/")[0] if subject.kind == "device" else nodes.get(subject.name, "")
        return {subject, case.subject, Subject("node", node)}

    return [
        one
        for one in found
        if not any(
            one.rule in by_name[other.rule].hides
            and other.subject in places(one.subject)
            and _measure_overlap(one, other) >= _MOSTLY
            for other in hiding
        )
    ]


def _measure_overlap(one: Finding, other: Finding) -> float:
    """Return the share of a finding's time that lies in the time of another one."""
    both = min(one.end, other.end) - max(one.start, other.start)
    return both / max(one.end - one.start, 1)


def _causes(case: Case, found: Sequence[Finding], by_name: Mapping[str, Rule], numbers: Numbers) -> list[Finding]:
    """Find the causes of each replica's end. The best cause of the first failed replica is the root cause."""
    by_subject = group_pairs((one.subject, one) for one in found)
    if len(by_subject) > 1 and len({one.end for one in by_subject.get(case.subject, ())}) <= 1:
        # A finding of the job as a whole explains its only replica's end, too.
        whole = [one for one in by_subject.pop(case.subject, []) if by_name[one.rule].cause is Weight.SPECIFIC]
        first = min(by_subject, key=lambda subject: min(one.end for one in by_subject[subject]))
        by_subject[first] += whole
    ends = [_rank_explanations(own, by_name) for own in by_subject.values()]
    ends.sort(key=lambda own: (_weight(own[0], by_name) is Weight.CONSEQUENCE, _moment(own[0]), own[0].start))
    _put_first(ends, by_name, numbers)
    ranked: list[Finding] = []
    for at, own in enumerate(ends):
        ranked += own if at == 0 else [_relate_to_root(one, ends[0][0]) for one in own]
    return ranked


def _put_first(ends: list[list[Finding]], by_name: Mapping[str, Rule], numbers: Numbers) -> None:
    """Put an end with its own cause before a first end without one, if the cause began before that end was over.

    If two ends are closer than ``together``, their order is unknown.
    """
    if not ends or _weight(ends[0][0], by_name) not in _BARE:
        return
    latest = _moment(ends[0][0]) + numbers["together"]
    better = [own for own in ends if _weight(own[0], by_name) is Weight.SPECIFIC and own[0].start <= latest]
    if better:
        first = min(better, key=lambda own: own[0].start)
        ends.remove(first)
        ends.insert(0, first)


def _explain_by_device_fault(
    ranked: list[Finding], others: Sequence[Finding], by_name: Mapping[str, Rule], numbers: Numbers
) -> list[Finding]:
    """Turn causes into consequences if the root is unexplained and a device had a critical fault before it.

    So a device's fault comes before the collectives that time out because of it.
    """
    if not ranked or _weight(ranked[0], by_name) not in {*_BARE, Weight.CONSEQUENCE}:
        return ranked
    moment = _moment(ranked[0])
    faults = [
        one
        for one in others
        if by_name[one.rule].explains
        and one.severity is Severity.CRITICAL
        and moment - numbers["window"] <= one.end
        and one.start <= moment + numbers["together"]
    ]
    return [_relate_to_root(one, faults[0]) for one in ranked] if faults else ranked


def _order_after_ends(
    case: Case, facts: Sequence[Finding], ranked: Sequence[Finding], by_name: Mapping[str, Rule], numbers: Numbers
) -> list[Finding]:
    """Turn facts into consequences if they follow from the first rank that ended or was lost: others wait for it.

    A rank that ended later may have been ended because the job hung.
    """
    root = ranked[0] if ranked else None
    if root is None or root.subject == case.subject or _weight(root, by_name) is Weight.CONSEQUENCE:
        return list(facts)
    latest = _moment(root) - numbers["vanished"]
    return [_relate_to_root(one, root) if by_name[one.rule].waits and one.start >= latest else one for one in facts]


def _moment(one: Finding) -> int:
    """Return the replica's end; for one that vanished, its last sample."""
    return one.start if one.rule == "rank_lost" else one.end


def _rank_explanations(found: Sequence[Finding], by_name: Mapping[str, Rule]) -> list[Finding]:
    """Rank the explanations of one end, the best one first as the root cause; less specific ones are left out."""
    ordered = sorted(_leave_out_vague(found, by_name), key=lambda one: (_weight(one, by_name), one.start))
    best = ordered[0]
    ranked = [replace(best, role=FindingRole.ROOT)]
    for one in ordered[1:]:
        weight = _weight(one, by_name)
        if weight is Weight.CONSEQUENCE:
            ranked.append(replace(one, role=FindingRole.CASCADE))
        elif weight is Weight.SPECIFIC or one.rule == "rank_lost":
            ranked.append(replace(one, role=FindingRole.CONFIRMATION))
    return ranked


def _leave_out_vague(found: Sequence[Finding], by_name: Mapping[str, Rule]) -> list[Finding]:
    """Leave out findings that only restate a consequence: an exception about it, a signal, a bare exit status."""
    waits = [one for one in found if _weight(one, by_name) is Weight.CONSEQUENCE]
    texts = {evidence.text for one in waits for evidence in one.evidence if evidence.kind == "log"}
    if not waits:
        return list(found)
    return [
        one
        for one in found
        if one in waits
        or _weight(one, by_name) is Weight.SPECIFIC
        or (one.rule == "python_exception" and one.evidence[0].text not in texts)
    ]


def _relate_to_root(one: Finding, root: Finding) -> Finding:
    """Relate a cause of another replica's end to the root: the same rule confirms it, any other is a consequence."""
    role = FindingRole.CONFIRMATION if one.rule == root.rule else FindingRole.CASCADE
    severity = Severity.WARNING if one.severity is Severity.CRITICAL else one.severity
    return replace(one, role=role, severity=severity)


def _weight(one: Finding, by_name: Mapping[str, Rule]) -> Weight:
    return by_name[one.rule].cause or Weight.SPECIFIC


def _fold_repeated(case: Case, found: Sequence[Finding]) -> list[Finding]:
    """Merge many findings of one rule and role into one, which names the first ones."""
    folded: list[Finding] = []
    for own in group_pairs(((one.rule, one.role), one) for one in found).values():
        if len(own) <= MOST:
            folded += own
            continue
        worst = min(own, key=lambda one: rank_severity(one.severity, start=one.start))
        sentence = extend_sentence(worst.sentence, len(own) - 1, worst.subject.kind)
        parts = [Evidence(kind="status", text=one.sentence, time=one.start) for one in own[:_NAMED]]
        folded.append(
            replace(
                worst,
                subject=case.subject,
                start=min(one.start for one in own),
                end=max(one.end for one in own),
                evidence=parts,
                sentence=sentence,
                replicas=list(dict.fromkeys(name for one in own for name in one.replicas)),
            )
        )
    return folded
