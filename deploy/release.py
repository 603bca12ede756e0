"""Makes a release in ``dist/``: ``make release VERSION=1.2.3``. Nothing is uploaded, committed or tagged.

``python deploy/release.py version 1.2.3`` writes the version where it stands and joins the change fragments;
``python deploy/release.py pack``, after ``make wheel``, adds the image, the chart and the checksums.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
PLACES = {
    "pyproject.toml": r'^version = "({})"$',
    "src/jobmeter/__init__.py": r'^__version__ = "({})"$',
    "deploy/kubernetes/chart/Chart.yaml": r'^(?:version: |appVersion: ")({})"?$',
    "deploy/kubernetes/jobmeter.yaml": r'image: "jobmeter:({})"$',
    "deploy/Containerfile": r"-t jobmeter:({}) ",
}
"""Files that state the version, with the pattern of the line."""
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be made; the text says why and what to do."""


def current(root: Path = ROOT) -> str:
    """Return the version that all places state. Raises ReleaseError where they differ."""
    stated = {place: set(_pattern(form).findall((root / place).read_text())) for place, form in PLACES.items()}
    versions = set().union(*stated.values())
    if len(versions) != 1 or not all(stated.values()):
        raise ReleaseError(f"the places of the version differ: {stated}. Make them equal by hand")
    return versions.pop()


def write_version(version: str, root: Path = ROOT) -> None:
    """Write the version to every place. Raises ReleaseError for an invalid version or a lower one."""
    if not re.fullmatch(VERSION, version):
        raise ReleaseError(f"{version!r} is no version: write 1.2.3, or 1.2.3rc1 for a candidate")
    before = current(root)
    if _order(version) < _order(before):
        raise ReleaseError(f"{version} is lower than {before}, the version of this tree")
    for place, form in PLACES.items():
        path = root / place
        path.write_text(_pattern(form).sub(lambda found: found[0].replace(found[1], version), path.read_text()))


def write_changes(version: str, root: Path = ROOT) -> str:
    """Join the fragments into CHANGELOG.md and remove them. Returns a sentence for the terminal."""
    waiting = list((root / "changes").glob("*.*.md"))
    if re.search(rf"^## {re.escape(version)} ", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        return f"CHANGELOG.md has {version} already; {len(waiting)} change fragments wait for a later version"
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"towncrier failed: {(done.stdout + done.stderr).strip()[-2000:]}")
    return f"CHANGELOG.md has {version}, made of {len(waiting)} change fragments"


def pack(root: Path = ROOT) -> list[str]:
    """Add the image, the chart and SHA256SUMS to the wheels in dist/. Returns sentences for the terminal."""
    version, dist = current(root), root / "dist"
    if not list(dist.glob(f"jobmeter-{version}-*.whl")):
        raise ReleaseError(f"dist/ has no wheel of {version}. Run `make wheel` first")
    return [_image(root, version), _chart(root, version), write_sums(dist)]


def write_sums(dist: Path) -> str:
    """Write SHA256SUMS of the files in a folder, as `sha256sum --check` reads it."""
    files = sorted(path for path in dist.iterdir() if path.is_file() and path.name != SUMS and path.name[0] != ".")
    lines = [f"{_digest(path)}  {path.name}\n" for path in files]
    (dist / SUMS).write_text("".join(lines))
    return f"{SUMS} has {len(lines)} files; check them with `sha256sum --check {SUMS}`"


def _image(root: Path, version: str) -> str:
    found = [tool for tool in ("podman", "docker") if shutil.which(tool)]
    working = [
        tool for tool in found if not subprocess.run([tool, "info"], capture_output=True, check=False).returncode
    ]
    if not working:
        reason = f"{found[0]} is installed but does not answer" if found else "neither podman nor docker is installed"
        return f"no image: {reason}. Build it with `podman build -f deploy/Containerfile -t jobmeter:{version} .`"
    tag, archive = f"jobmeter:{version}", root / "dist" / f"jobmeter-{version}-image.tar"
    _run([working[0], "build", "--file", "deploy/Containerfile", "--tag", tag, "."], root)
    _run([working[0], "save", "--output", str(archive), tag], root)
    return f"{archive.name}: the image {tag}"


def _answers(tool: str) -> bool:
    return subprocess.run([tool, "info"], capture_output=True, check=False).returncode == 0


def _chart(root: Path, version: str) -> str:
    dist = root / "dist"
    if shutil.which("helm"):
        _run(["helm", "package", "deploy/kubernetes/chart", "--destination", str(dist)], root)
        return f"jobmeter-{version}.tgz: the Helm chart"
    archive = dist / f"jobmeter-{version}-deploy.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(root / "deploy", f"jobmeter-{version}-deploy", filter=_source)
    return f"{archive.name}: chart, manifests and units of systemd. Helm is not installed, so the chart is no package"


def _source(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Drop compiled Python and the name of the builder."""
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _pattern(form: str) -> re.Pattern[str]:
    return re.compile(form.format(VERSION), re.MULTILINE)


def _order(version: str) -> tuple[tuple[int, ...], bool, str, int]:
    """A key that sorts versions; a candidate comes before its release."""
    numbers, stage, count = re.fullmatch(r"([\d.]+?)(?:(a|b|rc)(\d+))?", version).groups()  # type: ignore[union-attr]
    return tuple(map(int, numbers.split("."))), stage is None, stage or "", int(count or 0)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(command: list[str], root: Path) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed: {(done.stdout + done.stderr).strip()[-2000:]}")


def main(arguments: list[str]) -> int:
    """Run a step; 1 and a line on standard error where it fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("version").add_argument("version")
    steps.add_parser("pack")
    given = parser.parse_args(arguments)
    try:
        if given.step == "version":
            write_version(given.version)
            lines = [write_changes(given.version)]
        else:
            lines = [*pack(), f"Next: commit, and tag the commit v{current()}"]
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
