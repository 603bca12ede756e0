"""Calls the vendor's own SDKs, each generation in its own environment (``make sdk``)."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conversation import converse

_ROOT = Path(__file__).parents[2]
_SDK = Path(__file__).parent / "sdk"
_SCRIPT = _SDK / "pai_dlc.py"
PAI_STUDIO, EAS = _SDK / "pai_studio.py", _SDK / "eas.py"
"""Scripts of further products, whose requests have a form of their own."""


def _python(*names: str) -> Path:
    found = [_ROOT / ".venvs" / name / "bin" / "python" for name in names]
    return next((python for python in found if python.exists()), found[0])


CURRENT = _python("alibaba", "sdk")
"""Newest packages, on tea-openapi 0.4."""
FORMER = _python("alibaba-old")
"""Packages on tea-openapi 0.3."""

needs_current = pytest.mark.skipif(not CURRENT.exists(), reason="no .venvs/alibaba (make sdk)")
needs_former = pytest.mark.skipif(not FORMER.exists(), reason="no .venvs/alibaba-old (make sdk)")


def ask(*asks: dict[str, Any], python: Path = CURRENT, script: Path = _SCRIPT) -> list[Any]:
    """Return the answers to requests, in order. The script, by default ``sdk/pai_dlc.py``, describes their form."""
    answers: list[Any] = converse(python, script, asks)
    return answers
