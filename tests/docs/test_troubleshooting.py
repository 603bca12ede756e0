"""Tests of the troubleshooting page: its messages occur in the program."""

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
