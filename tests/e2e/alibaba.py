"""Question the vendor's own SDKs, each generation in an environment of its own (``make sdk``)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_SCRIPT = Path(__file__).parent / "sdk" / "pai_dlc.py"


def _python(*names: str) -> Path:
    found = [_ROOT / ".venvs" / name / "bin" / "python" for name in names]
    return next((python for python in found if python.exists()), found[0])


CURRENT = _python("alibaba", "sdk")
"""The newest packages, on tea-openapi 0.4."""
FORMER = _python("alibaba-old")
"""Packages on tea-openapi 0.3."""

needs_current = pytest.mark.skipif(not CURRENT.exists(), reason="no .venvs/alibaba (make sdk)")
needs_former = pytest.mark.skipif(not FORMER.exists(), reason="no .venvs/alibaba-old (make sdk)")


def ask(*asks: dict[str, Any], python: Path = CURRENT) -> list[Any]:
    """The answers, in their order: see ``sdk/pai_dlc.py``."""
    ran = subprocess.run(
        [python, _SCRIPT], input=json.dumps(asks), capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    answers: list[Any] = json.loads(ran.stdout)
    return answers
