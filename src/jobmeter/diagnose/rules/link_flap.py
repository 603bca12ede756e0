"""A network link of a node went down."""

import re

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import line_evidence
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Evidence, Severity, Subject

_DOWN = re.compile(
    r"\b(?P<link>[a-z][\w.@-]*\d[\w.@-]*):? (?:NIC )?[Ll]ink (?:is )?[Dd]own\b|\b(?P<lost>[a-z][\w.@-]*): Lost carrier",
    re.ASCII,
)
_FABRIC = re.compile(r"(?:ib|mlx[45]_|hfi|bond-ib)", re.ASCII)


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Each link that went down as often as the threshold says; one of the fabric is worse than one of Ethernet."""
    downs: dict[tuple[str, str], list[Evidence]] = {}
    for line in case.kernel:
        match = _DOWN.search(line.text[:4_000])
        if match:
            downs.setdefault((line.node, match["link"] or match["lost"]), []).append(line_evidence(line))
    for (node, link), evidence in downs.items():
        if len(evidence) < numbers["downs"]:
            continue
        text = f"{link} of {node} went down, {len(evidence)} times in the lines that were read"
        head = Evidence(kind="status", text=text, value=float(len(evidence)), limit=numbers["downs"])
        severity = Severity.CRITICAL if _FABRIC.match(link) else Severity.WARNING
        subject = Subject("link", f"{node}/{link}")
        yield rule.collected(case, subject, severity, head, evidence, 0.85)


RULE = Rule(
    name="link_flap",
    sees="The kernel of a node reported that a network link went down.",
    advice="Look at the cable, the transceiver and the switch port; ethtool -S and ibstat show the link's errors.",
    source="https://github.com/facebookresearch/gcm",
    find=find,
    kernel='"link down" OR "link is down" OR "lost carrier"',
    of_nodes=True,
)
