"""Access to a file is denied."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="permission_denied",
    title="Permission denied",
    sees="A permission is missing.",
    advice="Look at owner and mode of the path, at the user that the job runs as, and at the mount's options.",
    raised=("PermissionError", "Permission denied", "Operation not permitted", "AccessDenied"),
    exits=frozenset({126}),
).rule
