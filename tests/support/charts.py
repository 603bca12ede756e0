"""Renders the Helm chart.

Neither Debian nor PyPI packages Helm, so ``tests/helm`` replaces its engine. ``python -m tests.support.charts`` writes
``deploy/kubernetes/jobmeter.yaml``, which is the chart with its default values.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.programs import find
from tests.support.needs import needs

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/kubernetes/chart"
PLAIN = ROOT / "deploy/kubernetes/jobmeter.yaml"
NAMESPACE = "jobmeter"
_LIBRARIES = Path("/usr/share/gocode/src")
_HEAD = f"""\
# What `helm install jobmeter deploy/kubernetes/chart --namespace {NAMESPACE}` makes with the chart's own values.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""


def needs_charts() -> None:
    """Skip the calling test if charts cannot be rendered."""
    for name in ("go", "go-sprig", "go-yaml"):
        needs(name)


@cache
def _renderer() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="jobmeter-chart-"))
    (folder / "path").mkdir()
    (folder / "path/src").symlink_to(_LIBRARIES)
    words = {"GOPATH": str(folder / "path"), "GO111MODULE": "off", "GOCACHE": str(folder / "cache"), "GOFLAGS": ""}
    command = [str(find("go")), "build", "-o", str(folder / "render"), str(ROOT / "tests/helm/main.go")]
    subprocess.run(command, check=True, env={**os.environ, **words}, timeout=300)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return folder / "render"


def rendered(values: Mapping[str, Any] | None = None, release: str = "jobmeter") -> str:
    """Render the chart with these values in place of its own.

    Raises ValueError with the engine's message on an error.
    """
    done = subprocess.run(
        [str(_renderer()), str(CHART), release, NAMESPACE],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    """Parse the objects of a manifest."""
    found: Iterable[Any] = yaml.safe_load_all(text)
    return [one for one in found if one]


if __name__ == "__main__":
    PLAIN.write_text(_HEAD + rendered())
    sys.stdout.write(f"{PLAIN.relative_to(ROOT)}\n")
