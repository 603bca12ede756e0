"""NCCL exchanges data between nodes over TCP sockets instead of InfiniBand or RoCE."""

import re
from collections.abc import Iterable, Mapping

from jobmeter.diagnose.causes import make_line_evidence
from jobmeter.diagnose.rule import MOST_LINES, Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.model.log import LogLine

_LONGEST = 4_000
_CHOSEN = re.compile(r"(?:Using (?:internal )?network|Assigned NET plugin) (?P<net>[\w.-]+)", re.IGNORECASE)
"""NCCL 2.4 to 2.29, RCCL: https://github.com/NVIDIA/nccl/blob/master/src/plugin/net.cc."""
_PORTS = re.compile(r"NET/IB : Using \[0\]")
"""https://github.com/NVIDIA/nccl/issues/224. Without a device, 2.29 writes "NET/IB : Using [RO]; OOB" (issue 2057)."""
_SOCKETS = re.compile(r"NET/Socket : Using \[?0\]?|via NET/Socket/\d")
"""https://github.com/NVIDIA/nccl/issues/226 and 278: versions that do not say which network they chose."""
_NONE = re.compile(
    r"NET/IB : No (?:IP interface|device) found|Failed to initialize NET plugin IB|Failed to open libibverbs\.so"
)
"""https://github.com/NVIDIA/nccl/issues/952 and 2057."""
_ASKED = re.compile(r"NCCL_IB_DISABLE set (?:by environment )?to [1-9]|NCCL_NET set by environment to Socket")
_SPEED = "node.rdma.speed"


@Rule(
    title="RDMA fallback",
    advice="Give the job the devices (/dev/infiniband, rdma/hca resources, unlimited memlock); check NCCL_IB_HCA "
    "and NCCL_IB_DISABLE, and run ibv_devinfo inside the job. NCCL_DEBUG=INFO shows which network NCCL chose.",
    source="https://github.com/NVIDIA/nccl/issues/952",
    nodes=(_SPEED,),
    lines=(
        '("NET/IB" OR "NET/Socket" OR "NET plugin" OR "Using network" OR "internal network" OR NCCL_IB_DISABLE OR '
        'NCCL_NET OR "libibverbs") AND NCCL'
    ),
)
def rdma_fallback(rule: Rule, case: Case, _numbers: Numbers) -> Findings:
    """Find replicas on several nodes that use sockets while others use RDMA, or RDMA is possible or was not found.

    A replica whose settings demand sockets counts only if its node has a port.
    """
    nodes = {one.name: one.node for one in case.view.replicas if one.node}
    chosen = _networks(case.lines)
    sockets = {name: line for name, (is_socket, line) in chosen.items() if is_socket}
    if len(set(nodes.values())) < 2 or not sockets:
        return
    ports = {one.node: one.part for one in case.nodes.get(_SPEED, ()) if len(one)}
    missing = {line.replica: line for line in case.lines if _NONE.search(line.text[:_LONGEST])}
    asked = {line.replica: line for line in case.lines if _ASKED.search(line.text[:_LONGEST])}
    others = len(chosen) - len(sockets)
    sure = {name: line for name, line in sockets.items() if nodes.get(name) in ports or (others and name not in asked)}
    unsure = {name: line for name, line in sockets.items() if name in missing and name not in asked}
    start = min(line.time_ns // 1_000_000 for line in sockets.values())
    span = start, max(start, case.span.end_ms)
    for name, line in sure.items():
        why = f"{others} other ranks use InfiniBand or RoCE"
        evidence = [make_line_evidence(one) for one in (missing.get(name), asked.get(name), line) if one is not None]
        if nodes.get(name) in ports:
            why = f"its node has {ports[nodes[name]]}"
            text = f"{nodes[name]} has {ports[nodes[name]]}"
            evidence.append(Evidence(kind="metric", text=text, metric=_SPEED, replica=name))
        subject = Subject("replica", name)
        sentence = f"{case.name_subject(subject)} exchanges data over TCP sockets although {why}"
        yield rule.report(subject, Severity.WARNING, span, evidence, 0.95, sentence=sentence)
    if unsure and not sure:
        sentence = (
            f"{len(unsure)} ranks on {len(set(nodes.values()))} nodes exchange data over TCP sockets: NCCL found no "
            "InfiniBand or RoCE device"
        )
        shown: list[Evidence] = [make_line_evidence(line) for name in unsure for line in (missing[name], unsure[name])]
        yield rule.report(case.subject, Severity.INFO, span, shown[:MOST_LINES], 0.5, sentence=sentence)


def _networks(lines: Iterable[LogLine]) -> Mapping[str, tuple[bool, LogLine]]:
    """Return by replica if it uses sockets, and the log line about it.

    The network that NCCL chose counts more than those that it found: NCCL 2.4 lists sockets beside ports, because it
    connects over sockets.
    """
    found: dict[str, tuple[int, bool, LogLine]] = {}
    for line in lines:
        text = line.text[:_LONGEST]
        match = _CHOSEN.search(text)
        ranked = (
            (3, match["net"].lower() == "socket")
            if match
            else (2, False)
            if _PORTS.search(text)
            else (1, True)
            if _SOCKETS.search(text)
            else None
        )
        if ranked is not None and ranked[0] >= found.get(line.replica, (0,))[0]:
            found[line.replica] = (*ranked, line)
    return {name: (is_socket, line) for name, (_, is_socket, line) in found.items()}
