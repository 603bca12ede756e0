"""Compares the ranks of a job at one moment: which one is not where the others wait.

The comparison is among the ranks themselves: their stacks form a tree of calls, and the ranks part at one place of the
tree. Names of functions and system calls help to decide which side waits. They decide alone only between two ranks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from jobmeter.diagnose.places import PlaceKind, classify_place, describe_place, is_collective, join_first, may_work
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobState, JobView, Replica
from jobmeter.model.stacks import RankEvidence, StackFrame
from jobmeter.model.task import NodeAnswer

MOST_EVIDENCE = 16
"""Ranks, and notes about missing evidence, that one comparison lists."""
_STOPPED = frozenset("Tt")
_GONE = frozenset("XZ")
Path = tuple[tuple[str, str, int], ...]


class ComparedRank(msgspec.Struct, frozen=True, eq=False):
    """A rank with its displayed name. ``calls`` are the calls of its first thread, the outermost first."""

    name: str
    node: str
    evidence: RankEvidence
    calls: tuple[StackFrame, ...]


class NamedRank(msgspec.Struct, frozen=True):
    """A rank that the others wait for, and a sentence about its place. ``may_work``: it may be slow, not stuck."""

    replica: str
    node: str
    attempt: int
    text: str
    may_work: bool = False


class StackComparison(msgspec.Struct, frozen=True):
    """The result: one sentence, the ranks that others wait for, and notes about missing evidence."""

    sentence: str
    named: list[NamedRank] = []
    notes: list[str] = []


def compare(view: JobView, answers: Sequence[NodeAnswer]) -> StackComparison:
    """Compare the ranks of a job by the evidence of its nodes."""
    ranks = _ranks(view, answers)
    notes = _notes(ranks, answers)
    if not ranks:
        return StackComparison("no rank was found: no agent measures the job now", [], notes)
    stopped = [one for one in ranks if one.evidence.state in _STOPPED | _GONE]
    alive = [one for one in ranks if one not in stopped]
    if not alive:
        return StackComparison(_describe_all(ranks), [], notes)
    behind = _find_behind(alive)
    apart, waiting, collective = _part_ranks(alive, behind, explained=bool(stopped))
    odd = [*stopped, *apart]
    if not odd:
        return StackComparison(_describe_all(ranks) + _describe_movement(alive), [], notes)
    named = [
        NamedRank(
            one.evidence.replica,
            one.node,
            one.evidence.attempt,
            _text(one, behind, collective),
            may_work(one.evidence) and one not in stopped,
        )
        for one in odd
    ]
    sentence = join_first([one.text for one in named], 4, "; ") + _describe_others(ranks, odd, waiting, collective)
    return StackComparison(sentence + _describe_movement(alive), named, notes)


def _describe_movement(alive: Sequence[ComparedRank]) -> str:
    moves = all(one.evidence.moved for one in alive)
    return "; every rank moved within a second, so the job may be working" if moves else ""


def _ranks(view: JobView, answers: Sequence[NodeAnswer]) -> list[ComparedRank]:
    """Return the ranks in the answers, and recorded ranks of these nodes that nobody found there."""
    found = [(one.node, rank) for one in answers if one.stacks for rank in one.stacks.ranks]
    last = {replica.name: replica for replica in sorted(view.replicas, key=lambda one: one.attempt)}
    newest = {name: replica.attempt for name, replica in last.items()}
    found = [(node, rank) for node, rank in found if rank.attempt >= newest.get(rank.replica, 0)]
    there = {rank.replica for _, rank in found}
    answered = {one.node for one in answers if one.stacks}
    found += [
        (one.node, _make_gone_evidence(one))
        for one in last.values()
        if one.name not in there and (one.node in answered or one.state in {JobState.FAILED, JobState.STOPPED})
    ]
    counts = Counter(rank.replica for _, rank in found)
    found.sort(key=lambda one: (len(one[1].replica), one[1].replica, -1 if one[1].rank is None else one[1].rank))
    return [
        ComparedRank(_name(rank, node, several=counts[rank.replica] > 1), node, rank, tuple(reversed(rank.main)))
        for node, rank in found
    ]


def _make_gone_evidence(replica: Replica) -> RankEvidence:
    return RankEvidence(
        replica=replica.name, attempt=replica.attempt, rank=replica.rank, state="X", exit_code=replica.exit_code
    )


def _name(rank: RankEvidence, node: str, *, several: bool) -> str:
    name = f"{rank.replica} rank {rank.rank}" if several and rank.rank is not None else rank.replica
    place = ", ".join(filter(None, (node, f"pid {rank.pid}" if rank.pid else "")))
    return f"{name} ({place})" if place else name


def _find_behind(alive: Sequence[ComparedRank]) -> dict[str, str]:
    """Return ranks whose flight recorder has fewer collectives than that of others, each with a clause about it."""
    found: dict[str, str] = {}
    groups = {group.group for one in alive for group in one.evidence.groups}
    for name in sorted(groups):
        own = {one.name: group for one in alive for group in one.evidence.groups if group.group == name}
        most = max(own.values(), key=lambda group: group.enqueued)
        for rank, group in own.items():
            if group.enqueued < most.enqueued and group.enqueued == min(one.enqueued for one in own.values()):
                operation = f"{most.operation} " if most.operation else ""
                found.setdefault(rank, f"has not entered {operation}{most.enqueued} of group {name}")
    return found


def _part_ranks(
    alive: Sequence[ComparedRank], behind: Mapping[str, str], *, explained: bool
) -> tuple[list[ComparedRank], list[ComparedRank], str]:
    """Return the ranks that are elsewhere, the waiting ranks, and the name of the call in which they wait.

    ``explained``: a rank that is gone or stopped explains the waiting, whatever each rank does inside a collective.
    """
    groups = _groups(alive)
    if behind:
        apart = [one for one in alive if one.name in behind]
    elif len(groups) == 1 or (
        explained and (not _find_common_calls(alive) or any(map(is_collective, _find_common_calls(alive))))
    ):
        apart = []
    else:
        apart = _find_elsewhere(alive, groups)
    rest = [one for one in alive if one not in apart]
    waiting = max(_groups(rest), key=len) if apart and rest and len(_groups(rest)) > 1 else rest
    kinds = _kinds(rest)
    waiting = [one for one in rest if kinds[one.name] is PlaceKind.PEER] or waiting
    return apart, waiting, _name_shared_call(waiting, apart)


def _find_elsewhere(alive: Sequence[ComparedRank], groups: Sequence[Sequence[ComparedRank]]) -> list[ComparedRank]:
    kinds = _kinds(alive)
    peers = [one for one in alive if kinds[one.name] is PlaceKind.PEER]
    most = max(groups, key=lambda own: (sum(one in peers for one in own), len(own)))
    apart = [one for one in alive if kinds[one.name] is PlaceKind.OTHER and one not in most]
    if peers and apart:
        return apart
    largest = max(groups, key=len)
    inside = any(map(is_collective, _find_common_calls(alive)))
    return [] if inside or 2 * len(largest) <= len(alive) else [one for one in alive if one not in largest]


def _kinds(ranks: Sequence[ComparedRank]) -> dict[str, PlaceKind]:
    """Return the way in which each rank waits. Without a system call, the names of functions decide."""
    by_call = {one.name: classify_place(one.evidence) for one in ranks}
    by_name = {
        one.name: PlaceKind.UNKNOWN
        if not one.calls
        else PlaceKind.PEER
        if any(map(is_collective, one.calls))
        else PlaceKind.OTHER
        for one in ranks
    }
    if PlaceKind.PEER in by_call.values():
        return {name: kind if kind is not PlaceKind.UNKNOWN else by_name[name] for name, kind in by_call.items()}
    return by_name if PlaceKind.PEER in by_name.values() else dict.fromkeys(by_name, PlaceKind.UNKNOWN)


def _groups(ranks: Sequence[ComparedRank]) -> list[list[ComparedRank]]:
    """Group the ranks by the first difference of their calls: in functions, else lines, else kernel states."""
    for key in (_function, _line):
        depth = 0
        while True:
            found = group_pairs((key(one.calls[depth]) if depth < len(one.calls) else None, one) for one in ranks)
            if len(found) > 1:
                return list(found.values())
            if not found or None in found:
                break
            depth += 1
    states: dict[object, list[ComparedRank]] = {}
    for one in ranks:
        kind = classify_place(one.evidence)
        states.setdefault(kind if kind is PlaceKind.PEER else (one.evidence.call, one.evidence.wait), []).append(one)
    return list(states.values())


def _function(frame: StackFrame) -> object:
    return frame.function, frame.file


def _line(frame: StackFrame) -> object:
    return frame.function, frame.file, frame.line


def _find_common_calls(ranks: Sequence[ComparedRank]) -> list[StackFrame]:
    """Return the calls that all ranks share, from the outermost call on."""
    common: list[StackFrame] = []
    for frames in zip(*(one.calls for one in ranks), strict=False):
        if len({_function(frame) for frame in frames}) > 1:
            break
        common.append(frames[0])
    return common


def _name_shared_call(waiting: Sequence[ComparedRank], apart: Sequence[ComparedRank]) -> str:
    """Return the name of the call in which the ranks wait: a collective, else the first call that others lack."""
    common = _find_common_calls(waiting)
    before = len(_find_common_calls([*waiting, *apart]))
    own = [frame for frame in common[before:] if frame.is_own] or [frame for frame in common if frame.is_own][-1:]
    chosen = next((frame for frame in common if is_collective(frame)), None) or next(iter(own), None)
    return chosen.function if chosen else ""


def _text(one: ComparedRank, behind: Mapping[str, str], collective: str) -> str:
    place = describe_place(one.evidence)
    if one.evidence.state in _STOPPED | _GONE:
        return f"{one.name} {place}"
    if one.name in behind:
        return f"{one.name} {behind[one.name]}: it {place}"
    return f"{one.name} is not {'in the collective' if collective else 'where the others wait'}: it {place}"


def _describe_others(
    ranks: Sequence[ComparedRank], odd: Sequence[ComparedRank], waiting: Sequence[ComparedRank], collective: str
) -> str:
    rest = [one for one in ranks if one not in odd and one not in waiting]
    text = ""
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        inside = f" in `{collective}`" if collective else " for it"
        text += f"; {join_first([_shorten_name(one) for one in waiting], MOST_EVIDENCE)} {verb}{inside}"
    if rest:
        text += f"; {join_first([f'{_shorten_name(one)} {describe_place(one.evidence)}' for one in rest], 4, '; ')}"
    return text


def _shorten_name(one: ComparedRank) -> str:
    return one.name.partition(" (")[0]


def _describe_all(ranks: Sequence[ComparedRank]) -> str:
    """Make a sentence about ranks if none stands apart."""
    places = {describe_place(one.evidence) for one in ranks}
    if len(ranks) == 1:
        return f"{ranks[0].name} {places.pop()}"
    if len(places) == 1:
        return f"all {len(ranks)} ranks are at the same place: each {places.pop()}"
    listed = join_first([f"{_shorten_name(one)} {describe_place(one.evidence)}" for one in ranks], 8, "; ")
    return f"no rank stands apart from the others: {listed}"


def _notes(ranks: Sequence[ComparedRank], answers: Sequence[NodeAnswer]) -> list[str]:
    """Return NCCL's reports and the missing evidence, each once with the ranks that lack it."""
    found = [f"NCCL's RAS: {text}" for one in answers if one.stacks for text in one.stacks.ras]
    found += [f"{one.node}: no answer from its agent" for one in answers if one.stacks is None]
    found += [f"{one.node}: {text}" for one in answers if one.stacks for text in one.stacks.missing]
    by_text = group_pairs((text, _shorten_name(one)) for one in ranks for text in one.evidence.missing)
    found += [f"{join_first(names, 4)}: {text}" for text, names in by_text.items()]
    return list(dict.fromkeys(found))[:MOST_EVIDENCE]
