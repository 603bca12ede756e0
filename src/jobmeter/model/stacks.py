"""Evidence of one moment about the ranks of a job: stacks, states of processes, and reports of their libraries."""

import msgspec

MOST_RANKS = 64
"""Ranks of a job on one node whose evidence is collected; further ones are named as missing."""
MOST_THREADS, MOST_FRAMES, MOST_GROUPS, MOST_NOTES = 32, 64, 16, 32
LONGEST_TEXT = 512
MOST_BYTES = 2 * 1024 * 1024
"""Bytes of the evidence of one node, encoded."""

SELECT_OF_NOTHING = "select of no file"
"""The system call of a process that sleeps by select or poll, as Python did before 3.11."""

STACK_RULES = frozenset({"hang_hw", "hang_log", "rank_lost", "nccl_timeout"})
"""Rules about jobs that stand still: a finding of one requests evidence, and is explained by the evidence."""


class StackFrame(msgspec.Struct, frozen=True):
    """A call on a stack."""

    function: str
    file: str
    line: int

    @property
    def is_own(self) -> bool:
        """False for a file of Python's library, of an installed package, or of the interpreter itself."""
        return "/lib/python" not in self.file and "-packages/" not in self.file and not self.file.startswith("<")


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thread by its number in the kernel, with its calls, the innermost first."""

    id: int
    name: str
    frames: list[StackFrame]


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a rank in one process group: numbers of the last collectives, as PyTorch's flight recorder has them.

    ``operation`` is the last recorded collective. ``members`` is the number of ranks in the group, 0 if unknown.
    """

    group: str
    description: str = ""
    members: int = 0
    enqueued: int = -1
    completed: int = -1
    operation: str = ""


class RankEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Evidence about the process of a rank.

    ``state`` is the kernel's letter of the process (``X``: it has ended with ``exit_code``). ``wait`` is the kernel
    function in which the first thread sleeps, ``call`` its system call, ``target`` the file or socket of this call.
    ``moved`` is True if the first thread was in another call a moment later, None after a single observation.
    ``missing`` names evidence that could not be collected, and what to do.
    """

    replica: str
    attempt: int = 0
    rank: int | None = None
    pid: int = 0
    state: str = ""
    wait: str = ""
    call: str = ""
    target: str = ""
    kernel: list[str] = []
    threads: list[ThreadStack] = []
    moved: bool | None = None
    exit_code: int | None = None
    groups: list[GroupProgress] = []
    missing: list[str] = []

    @property
    def main(self) -> list[StackFrame]:
        """The calls of the first thread, the innermost first; empty if they are unknown."""
        return next((thread.frames for thread in self.threads if thread.id == self.pid), [])


class NodeEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Evidence of the ranks on one node: ``ras`` are problems of NCCL's RAS, ``missing`` is as in ``RankEvidence``."""

    ranks: list[RankEvidence]
    ras: list[str] = []
    missing: list[str] = []


def is_bounded(evidence: NodeEvidence) -> bool:
    """True if the evidence keeps every limit."""
    return (
        len(evidence.ranks) <= MOST_RANKS
        and len(msgspec.json.encode(evidence)) <= MOST_BYTES
        and _are_short([*evidence.ras, *evidence.missing], 2 * MOST_NOTES)
        and all(map(_is_rank_bounded, evidence.ranks))
    )


def _is_rank_bounded(rank: RankEvidence) -> bool:
    words = [rank.replica, rank.state, rank.wait, rank.call, rank.target, *rank.kernel, *rank.missing]
    words += [word for group in rank.groups for word in (group.group, group.description, group.operation)]
    frames = [frame for thread in rank.threads for frame in thread.frames]
    words += [thread.name for thread in rank.threads]
    return (
        len(rank.threads) <= MOST_THREADS
        and len(frames) <= MOST_THREADS * MOST_FRAMES
        and len(rank.groups) <= MOST_GROUPS
        and all(len(word) <= LONGEST_TEXT for frame in frames for word in (frame.function, frame.file))
        and _are_short(words, 8 * MOST_NOTES + 3 * MOST_GROUPS + MOST_THREADS)
    )


def _are_short(words: list[str], most: int) -> bool:
    return len(words) <= most and all(len(word) <= LONGEST_TEXT for word in words)
