"""A filesystem cannot be written to."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="fs_readonly",
    title="File system readonly",
    sees="A filesystem that the job writes to is read-only.",
    advice="Look at the mount's options, and at the kernel's log: a filesystem with errors is mounted read-only.",
    raised=("Read-only file ?system", r"\bEROFS\b", r"\[Errno 30\]", r"\bos error 30\b"),
    reasons=("Read-only file ?system",),
    source="https://man7.org/linux/man-pages/man3/errno.3.html",
).rule
