"""Hooks of the documentation's site: the start page is its table of contents.

https://www.mkdocs.org/user-guide/configuration/#hooks
"""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"^- \[([^\]]+)\]\(([^)#\s]+\.md)\)", re.MULTILINE)


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the groups of the start page with their links, as MkDocs takes them."""
    parts = re.split(r"^## (.+)$", index, flags=re.MULTILINE)
    groups = zip(parts[1::2], parts[2::2], strict=True)
    return [{name: [{" ".join(title.split()): page} for title, page in _LINK.findall(text)]} for name, text in groups]


def on_config(config: Any) -> Any:  # noqa: ANN401 - MkDocs is no dependency
    """Make the navigation from the start page."""
    index = (Path(config.docs_dir) / "index.md").read_text(encoding="utf-8")
    config.nav = [{"Documentation": "index.md"}, *navigation(index)]
    return config
