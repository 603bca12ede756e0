"""Reads commands from the pages of the documentation, and runs them as a reader types them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = "print(sum(range(10**7)))\n"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:jobmeter|make|pip|python3?|curl|eval|export|zcat|install|systemctl|\.) \S|_JOBMETER"
)
_NO_COMMAND = re.compile(r"jobmeter: |jobmeter [\w-]+-\d{8}-\w{6} ")


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the contents of a page's code blocks in these languages.

    The empty name means blocks without a language.
    """
    return [text for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if language in languages]


def commands(page: Path) -> Iterator[str]:
    """Yield each command of a page's code blocks, as one line without its comment.

    Printed output is left out. An indented line belongs to the output.
    """
    for block in blocks(page, "", "sh", "fish"):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*", "", line).rstrip()
            if _TYPED.match(command) and not _NO_COMMAND.match(command):
                yield command


def environment(home: Path, programs: Path = Path(sys.executable).parent) -> dict[str, str]:
    """Return the environment of a reader with the home ``home`` and these programs first on the path."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JOBMETER_", "XDG_"))}
    return {**own, "HOME": str(home), "PATH": f"{programs}{os.pathsep}{own['PATH']}", "TERM": "dumb"}


def type_in(script: str, home: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run commands in one shell and return their output. The first command that fails ends the shell."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=home,
        env=variables or environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def end_server(home: Path) -> None:
    """Stop the server that commands started in the default data folder of ``home``."""
    note = home / ".local/share/jobmeter/server.json"
    with suppress(FileNotFoundError, ProcessLookupError):
        found = re.search(r'"pid": ?(\d+)', note.read_text(encoding="utf-8"))
        assert found
        os.kill(int(found[1]), signal.SIGTERM)
