"""Question the vendor's own SDKs, each generation in an environment of its own (``make sdk``)."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conversation import converse

_ROOT = Path(__file__).parents[2]
_SDK = Path(__file__).parent / "sdk"
_SCRIPT = _SDK / "pai_dlc.py"
PAI_STUDIO, EAS = _SDK / "pai_studio.py", _SDK / "eas.py"
"""Scripts for further products, each with asks of its own form."""


def _python(*names: str) -> Path:
    found = [_ROOT / ".venvs" / name / "bin" / "python" for name in names]
    return next((python for python in found if python.exists()), found[0])


CURRENT = _python("alibaba", "sdk")
"""The newest packages, on tea-openapi 0.4."""
FORMER = _python("alibaba-old")
"""Packages on tea-openapi 0.3."""

needs_current = pytest.mark.skipif(not CURRENT.exists(), reason="no .venvs/alibaba (make sdk)")
needs_former = pytest.mark.skipif(not FORMER.exists(), reason="no .venvs/alibaba-old (make sdk)")


def ask(*asks: dict[str, Any], python: Path = CURRENT, script: Path = _SCRIPT) -> list[Any]:
    """The answers, in their order: see the script, by default ``sdk/pai_dlc.py``."""
    answers: list[Any] = converse(python, script, asks)
    return answers
