"""Tests of the reference pages: they match the program exactly."""

import importlib.util
import re
import runpy
from pathlib import Path

import msgspec
import pytest

from jobmeter.access.limit import Per
from jobmeter.cli.registry import VERBS
from jobmeter.dialects.registry import list_dialects
from jobmeter.model import record
from jobmeter.model.job import InstanceType
from jobmeter.model.record import check_record, decode_record
from jobmeter.model.retention import Retention
from jobmeter.settings import Limits, Settings

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    specification = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["cli.md", "catalog.md", "dialects.md", "http-api.md", "rules.md", "settings.md"])
def test_a_generated_page_is_current(page):
    written = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert written == generator().PAGES[page](), "run `make docs`"


def test_every_verb_has_its_section():
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"\n## jobmeter {verb}\n" in text


def test_every_setting_has_its_row():
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    for shape in (Settings, Limits, Retention):
        for name in shape.__struct_fields__:
            if name not in {"retention", "limits"}:
                row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
                assert f"JOBMETER_{'' if shape is Settings else shape.__name__.upper().rstrip('S') + '_'}" in row
                assert name.upper() in row


def test_the_settings_page_names_every_operation_that_is_limited():
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| `(\S+)` \| (\d+) \| (\d+) \| (key|account) \|$", text, re.MULTILINE)
    limited = [
        (one.name, one.rate) for dialect in list_dialects() for one in dialect.operations if one.rate is not None
    ]
    assert "GetUserViewMetrics" in dict(limited)
    assert rows == [(name, f"{rate.per_second:g}", str(rate.burst), rate.per or Per.KEY) for name, rate in limited]
    assert "by default none is limited" not in text


def test_no_page_names_a_folder_of_the_machine_that_made_it():
    for page in DOCS.rglob("*.md"):
        assert str(Path.home()) not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "shape"),
    [
        ("Job", record.JobRecord),
        ("Replica", record.ReplicaRecord),
        ("Allocation", record.AllocationRecord),
        ("Checkpoint", record.CheckpointRecord),
        ("Instance type", InstanceType),
        ("Node", record.NodeRecord),
        ("Event", record.EventRecord),
    ],
)
def test_job_records_name_every_field_in_order(section, shape):
    text = (DOCS / "reference" / "job-records.md").read_text(encoding="utf-8")
    body = re.search(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert body
    assert re.findall(r"^\| `(\w+)` \|", body[1], re.MULTILINE) == list(shape.__struct_fields__)


def test_the_example_of_a_job_record_is_one():
    text = (DOCS / "reference" / "job-records.md").read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert example
    assert check_record(decode_record(example[1].encode())).job_id == "train-7"
    assert msgspec.json.decode(example[1])


def links():
    """Yield (page, file, heading) of each link within the tree. A link without a file refers to its own page."""
    pages = [*DOCS.rglob("*.md"), *(DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md"))]
    for page in pages:
        for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                yield page, target or page.name, heading


def headings(page):
    """Yield the anchors of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def test_every_link_leads_somewhere():
    broken = [f"{page.name}: {target}" for page, target, _ in links() if not (page.parent / target).exists()]
    assert broken == []


def test_every_link_to_a_heading_finds_it():
    named = [(page, page.parent / target, heading) for page, target, heading in links() if heading]
    known = {target: set(headings(target)) for _, target, _ in named}
    broken = [f"{page.name}: {file.name}#{heading}" for page, file, heading in named if heading not in known[file]]
    assert broken == []


def test_every_page_is_linked():
    linked = {(page.parent / target).resolve() for page, target, _ in links()}
    pages = {page for page in DOCS.rglob("*.md") if page.name != "index.md" and not page.name.startswith("0000")}
    assert {str(page.relative_to(DOCS)) for page in pages if page.resolve() not in linked} == set()


def test_the_navigation_of_the_site_has_every_page():
    groups = runpy.run_path(str(DOCS / "site.py"))["navigation"]((DOCS / "index.md").read_text(encoding="utf-8"))
    pages = [page for group in groups for entries in group.values() for entry in entries for page in entry.values()]
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert there - set(pages) == {"index.md", "decisions/0000-template.md"}
    assert len(pages) == len(set(pages))
