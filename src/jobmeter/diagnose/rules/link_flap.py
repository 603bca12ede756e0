"""The kernel of a node reported that a network link went down."""

import re

from jobmeter.diagnose.causes import make_line_evidence
from jobmeter.diagnose.incidents import IncidentReport, describe_incidents, group_incidents
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.wording import format_times

_NAME = r"(?P<link>[a-z][\w.@-]*\d[\w.@-]*)"
_DOWN = re.compile(
    rf"\b{_NAME}\)?:?(?: port:? ?\d+:?)? (?:nic )?link (?:is |status (?:is )?(?:definitely )?|went )?down\b"
    rf"|\b{_NAME.replace('link', 'lost')}: (?:lost carrier|(?:nic )?(?:link )?carrier lost)\b",
    re.ASCII | re.IGNORECASE,
)
"""Reports of Ethernet drivers, mlx5, hfi1, bonding and systemd-networkd. Disks (ata1) and PCIe slots are no network."""
_CABLE = re.compile(r"\b(?P<port>mlx[45]\w* [0-9a-f:.]+): Port module event:.{0,40}[Cc]able unplugged", re.ASCII)
_NO_FABRIC = re.compile(
    r"(?:ata|sata|pcieport|slot|scsi|sd|usb|nvme"
    # Virtual interfaces go down whenever a container or a virtual machine ends.
    r"|veth|docker|br-|virbr|vnet|tap|tun|cali|cni|flannel|lxc|cilium|kube|dummy|ifb|lo)[\w.@-]*$",
    re.ASCII | re.IGNORECASE,
)
_VARYING = re.compile(r"[0-9a-f]*\d[0-9a-f:.]*", re.ASCII)
"""Numbers and addresses: without them, the words before a link's name identify the driver."""
_FABRIC = re.compile(r"(?:ib|mlx[45]_\d|hfi|opa|bond-ib)", re.ASCII)


@Rule(
    title="Link flapping",
    advice="Check the cable, the transceiver and the switch port; ethtool -S and ibstat show the link's errors.",
    source="https://github.com/facebookresearch/gcm",
    kernel=(
        '"link down" OR "link is down" OR "link went down" OR "definitely down" OR "lost carrier" OR "carrier lost" '
        'OR "cable unplugged"'
    ),
    of_nodes=True,
)
def link_flap(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find each link that went down at least as often as the threshold; a fabric link is worse than Ethernet."""
    downs: dict[tuple[str, str], list[IncidentReport]] = {}
    for line in case.kernel:
        text = line.text[:4_000]
        match = _DOWN.search(text) or _CABLE.search(text)
        link = next(name for name in match.groups() if name) if match else ""
        if match and not _NO_FABRIC.match(link):
            driver = _VARYING.sub("", text[: match.start()])
            downs.setdefault((line.node, link), []).append(
                IncidentReport.from_line(line, make_line_evidence(line), driver)
            )
    for (node, link), reports in downs.items():
        happened = group_incidents(reports)
        if len(happened) < numbers["downs"]:
            continue
        read = " in the lines that were read" if len(happened) > 1 else ""
        text = f"the link went down {format_times(len(happened))}{read}"
        head = Evidence(kind="status", text=text, value=float(len(happened)), limit=numbers["downs"], unit="{time}")
        severity = Severity.CRITICAL if _FABRIC.match(link) else Severity.WARNING
        subject = Subject("link", f"{node}/{link}")
        yield rule.make_collected(case, subject, severity, head, describe_incidents(happened), 0.85)
