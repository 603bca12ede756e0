"""The kernel of a node reports errors of a filesystem, of its disk, or of its server."""

import re

from jobmeter.diagnose.causes import make_line_evidence
from jobmeter.diagnose.incidents import IncidentReport, describe_incidents, group_incidents
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.wording import format_count

_WORSE = re.compile(
    r"EXT[234]-fs error|Remounting filesystem read-only|Aborting journal|BTRFS:? (?:error|critical)"
    r"|XFS \([^)]*\):.*(?:[Cc]orruption|Internal error|[Ss]hutting down)|xfs_do_force_shutdown",
    re.ASCII,
)
_ERROR = re.compile(r"I/O error|JBD2: .*IO error|nfs: server \S+ not responding", re.ASCII | re.IGNORECASE)
_DEVICE = re.compile(
    r"\(device:? (?P<a>[\w.-]+)\)|(?:fs|XFS|BTRFS) \((?P<b>[\w.-]+)\)|\bdev(?:ice)? (?P<c>[\w.-]+)|server (?P<d>\S+)",
    re.ASCII,
)


@Rule(
    title="File system error",
    advice="Drain the node; check the disk (smartctl, nvme smart-log) or the storage server, then run fsck.",
    source="https://docs.kernel.org/filesystems/ext4/index.html",
    kernel=(
        '"EXT4 fs error" OR "EXT3 fs error" OR "EXT2 fs error" OR "Remounting filesystem" OR "Aborting journal" '
        'OR "BTRFS error" OR "BTRFS critical" OR (XFS AND (corruption OR "internal error" OR "shutting down")) '
        'OR "force shutdown" OR "I O error" OR "JBD2 detected" OR (nfs AND "not responding")'
    ),
    of_nodes=True,
)
def fs_error(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Report each device with errors once; critical if the filesystem gave up."""
    by_device: dict[tuple[str, str], list[IncidentReport]] = {}
    worse: set[tuple[str, str]] = set()
    for line in case.kernel:
        text = line.text[:4_000]
        gave_up = _WORSE.search(text)
        if gave_up or _ERROR.search(text):
            place = line.node, _device(text)
            by_device.setdefault(place, []).append(IncidentReport.from_line(line, make_line_evidence(line)))
            worse.update([place] if gave_up else [])
    for (node, device), reports in by_device.items():
        happened = group_incidents(reports)
        if len(happened) >= numbers["lines"]:
            text = f"the kernel reported {format_count(len(happened), 'error')}{'' if device else ' of a device'}"
            head = Evidence(kind="status", text=text, value=float(len(happened)), unit="{error}")
            severity = Severity.CRITICAL if (node, device) in worse else Severity.WARNING
            subject = Subject("filesystem", f"{node}:{device}")
            yield rule.make_collected(case, subject, severity, head, describe_incidents(happened), 0.9)


def _device(text: str) -> str:
    named = _DEVICE.search(text)
    return next((name for name in named.groups() if name), "") if named else ""
