"""The phases of a job, and the causes by which the run times of two jobs differ. Times in epoch milliseconds."""

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """A part of a job's life, in the order in which a job goes through them."""

    QUEUED = "queued"
    """From its submission until a scheduler allocates resources."""
    PREPARE = "prepare"
    """From the allocation until its first process runs: image pull, volumes, prolog, boot of a node."""
    START = "start"
    """From its first process until its devices work for longer than a moment."""
    FIRST_STEP = "first_step"
    """From the first work of its devices until the program reports its first step: compilation, warm-up."""
    TRAINING = "training"
    """Its work, without checkpoints."""
    CHECKPOINT = "checkpoint"
    """Devices wait while the program writes a checkpoint."""
    RESTART = "restart"
    """From the last work of an attempt until the next attempt runs."""
    REPEAT = "repeat"
    """Work after a restart that repeats the steps since the last checkpoint."""
    END = "end"
    """From its last work until its end."""
    UNATTRIBUTED = "unattributed"
    """Time that no measurement assigns to a phase."""

    @property
    def label(self) -> str:
        """Name of the phase for people."""
        return _PHASES.get(self.value) or self.value.replace("_", " ")


_PHASES = {"prepare": "image pull or prolog", "repeat": "repeated steps"}


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """``[start, end)`` in one phase; ``attempt`` counts the restarts of the job before it."""

    phase: Phase
    start: int
    end: int
    attempt: int = 0

    @property
    def length(self) -> int:
        """Length in ms."""
        return self.end - self.start


class JobPhases(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of a job over ``[start, end)``: from its submission, else its start, to its end, or until now.

    ``spans`` are in order of time and fill the range without a gap, none of them empty. ``totals`` are milliseconds by
    phase; their sum is the length of the range. Both omit a phase that took no time. ``unknown`` has each phase that
    cannot be separated from the others, with the reason.
    """

    job: str = ""
    project: str = ""
    start: int = 0
    end: int = 0
    spans: list[PhaseSpan] = []
    totals: dict[str, int] = {}
    unknown: dict[str, str] = {}

    def select(self, *phases: Phase) -> list[PhaseSpan]:
        """Return the spans of some phases."""
        return [span for span in self.spans if span.phase in phases]


class PhaseCause(StrEnum):
    """A part of a job's run time by which it may differ from another job's."""

    QUEUE = "queue"
    PREPARE = "prepare"
    START = "start"
    FIRST_STEP = "first_step"
    INPUT = "input"
    """Devices wait while CPU or storage is busy for them."""
    COMMUNICATION = "communication"
    """Devices run kernels on few multiprocessors while links between devices or nodes carry data."""
    COMPUTE = "compute"
    """Devices compute, at the clock of the faster job."""
    CLOCK = "clock"
    """Extra time that computing takes at a lower clock."""
    CHECKPOINT = "checkpoint"
    RESTART = "restart"
    """Time between attempts, and the start and repeated steps of each attempt after the first."""
    END = "end"
    UNATTRIBUTED = "unattributed"

    @property
    def label(self) -> str:
        """Name of the cause for people."""
        return _TITLES.get(self.value) or Phase(self.value).label


_TITLES = {
    "queue": "queue",
    "input": "input",
    "communication": "communication",
    "compute": "compute",
    "clock": "lower clock",
    "checkpoint": "checkpoints",
    "restart": "restarts",
}


class CausePart(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a cause in job A and in job B, in milliseconds. ``text`` has the figures behind it, if known."""

    cause: PhaseCause
    a: int
    b: int
    text: str = ""

    @property
    def difference(self) -> int:
        """Extra milliseconds of B by this cause; negative if A took longer."""
        return self.b - self.a


class PhaseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Causes by which the run times of jobs A and B differ.

    ``a_ms`` and ``b_ms`` are the compared lengths: from submission to end, or from the first start if one submission
    time is unknown. The parts of a job sum to its length, and the differences of parts to ``difference_ms``. ``parts``
    are sorted by the size of their difference. ``unknown`` has the causes that were not measured in both jobs, with the
    reason; their time is in other parts. Texts call the jobs by ``labels``.
    """

    a: str
    b: str
    a_project: str = ""
    b_project: str = ""
    labels: tuple[str, str] = ("A", "B")
    a_ms: int = 0
    b_ms: int = 0
    difference_ms: int = 0
    sentence: str = ""
    parts: list[CausePart] = []
    unknown: dict[str, str] = {}
