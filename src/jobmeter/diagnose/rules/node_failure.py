"""A node failed or was lost."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="node_failure",
    title="Node failure",
    sees="A node that the job was on does not answer any more.",
    advice="Start again from the last checkpoint; the operator looks at the node.",
    lines=(
        "DUE TO NODE FAILURE",
        r"NODE_FAIL\b",
        r"Nodes? \S+ (?:is |are )?not responding",
        "node lost",
        "Node failure on",
        "SEE SLURMCTLD LOG FOR DETAILS",
        r"launch failed: \S+ .{0,40}Zero Bytes were transmitted",
        r"(?:A node|the node).{0,40}(?:has failed|failed|died|was lost|went down)",
        "ActorDiedError.{0,120}node (?:has )?(?:died|failed)|NodeDiedError",
    ),
    reasons=(
        "NODE_FAIL",
        "NodeHasFailed",
        "BOOT_FAIL",
        r"node .{0,60}(?:unreachable|not ready)",
        "PodGC",
        "NodeLost",
        "NodeNotReady",
        "node.?failure",
        "NodeShutdown",
        r"^lost\b",
        r": lost\b",
    ),
).rule
