"""Messages on the troubleshooting page are those of the program, and numbers in the README those of the last run."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/troubleshooting.md"


def test_every_message_is_one_of_the_program():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src/jobmeter").rglob("*.py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    cells = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    messages = [part for cell in cells for part in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 20
    assert [message for message in messages if not any(message in text for text in texts)] == []


def test_the_numbers_of_the_readme_are_those_of_the_last_run():
    run = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (live,) = re.findall(r"^\| live, never repeated, its samples arriving, p50, ms \| ([\d.]+) ", run, re.MULTILINE)
    (cpu,) = re.findall(r"^\| jobmeter agent at 10 s: CPU, % of a core \| ([\d.]+) ", run, re.MULTILINE)
    assert f"{float(live):.2g} ms" in readme
    assert f"{float(cpu):g} % of a core" in readme
