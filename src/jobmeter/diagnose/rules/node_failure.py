"""A node failed or was lost."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="node_failure",
    sees="A node that the job was on does not answer any more.",
    advice="Start again from the last checkpoint; the operator looks at the node.",
    lines=("DUE TO NODE FAILURE", r"NODE_FAIL\b", r"Node \S+ (?:is )?not responding", "node lost"),
    reasons=("NODE_FAIL", "NodeLost", "NodeNotReady", "node.?failure", "NodeShutdown", r"^lost\b", r": lost\b"),
).rule
