"""A required file does not exist."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="file_missing",
    title="File missing",
    sees="A file or a program was not found.",
    advice="Look at the path, at the working directory and at what is mounted on that node.",
    raised=(
        "FileNotFoundError",
        "NotADirectoryError",
        "No such file or directory",
        r"does not exist: \S+/",
        ": command not found",
        ": not found$",
    ),
    exits=frozenset({127}),
).rule
