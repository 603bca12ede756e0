"""The clock of a node differs from the server's, or jumped by seconds while the job ran."""

from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject


@Rule(
    title="Clock skew",
    advice="Synchronize the node's clock over the network (chrony, systemd-timesyncd).",
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
    nodes=("agent.clock.offset",),
)
def clock_skew(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a node whose agent saw its clock step forward or back, and times in the future on arrival at the server."""
    stepped = list(_find_steps(rule, case, numbers))
    yield from stepped
    skew, text, time = max(_find_clocks_ahead(case), default=(0, "", 0))
    if skew < numbers["skew"] or stepped:
        return
    evidence = Evidence(kind="status", text=text, time=time, value=skew / 1000, limit=numbers["skew"] / 1000, unit="s")
    nodes = sorted({replica.node for replica in case.view.replicas} - {""})
    subject = Subject("node", nodes[0]) if len(nodes) == 1 else case.subject
    yield rule.report(subject, Severity.WARNING, (time, time), [evidence], 0.9)


def _find_steps(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    limit = numbers["skew"] / 1000
    for signal in case.nodes.get(rule.nodes[0], ()):
        off = np.abs(signal.value) >= limit
        if off.any():
            at = int(np.abs(signal.value).argmax())
            skew = float(signal.value[at])
            text = f"its clock was {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the server's"
            evidence = signal.cite(text, skew, limit, "s", time=int(signal.time[at]))
            span = int(signal.time[off][0]), int(signal.until[off][-1])
            yield rule.report(Subject("node", signal.node), Severity.WARNING, span, [evidence], 0.9)


def _find_clocks_ahead(case: Case) -> Iterator[tuple[int, str, int]]:
    job = case.job
    if job.last_sample is not None:
        skew = job.last_sample - case.now_ms
        yield skew, f"the newest sample is {skew / 1000:.1f} s ahead of the server's clock", job.last_sample
    if job.recorded and job.end is not None and job.updated is not None:
        skew = job.end - job.updated
        yield skew, f"the job's end lies {skew / 1000:.1f} s after the time at which it was recorded", job.end
