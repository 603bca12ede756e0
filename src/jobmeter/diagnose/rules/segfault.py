"""A process accessed memory outside its address space."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="segfault",
    title="Segfault",
    sees="A replica ended by SIGSEGV or SIGBUS.",
    advice="Run it with PYTHONFAULTHANDLER=1; a native library or too small a /dev/shm is the usual cause.",
    lines=(
        "Segmentation fault",
        "Fatal Python error: (?:Segmentation fault|Bus error)",
        r"\bSIGSEGV\b",
        "Bus error",
        r"signal (?:11|7)\b",
        r"\bSIGBUS\b",
        r"exitcode\s*: -(?:11|7)\b",
        r"segfault at [0-9a-f]+ ip",
        "invalid memory reference",
    ),
    reasons=(r"\bSIGSEGV\b", r"\bSIGBUS\b"),
    exits=frozenset({128 + 11, 128 + 7}),
).rule
