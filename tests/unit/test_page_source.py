"""Tests of the page's source: its inputs are pinned and name no host, and it loads only from this server."""

import json
import re
from pathlib import Path

from tests.docs.test_reference import generator

from jobmeter.model.catalog import METRICS
from jobmeter.model.log_fields import FIELDS

WEB = Path(__file__).parents[2] / "web"


def test_the_lock_file_pins_every_package_by_its_digest_and_names_no_host():
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = lock["packages"]
    for package in packages.values():
        package.pop("funding", None)  # the recipient of donations, not the origin of the package
    assert "://" not in json.dumps(lock)
    assert len(packages) > 3
    for name, package in packages.items():
        if name:
            assert "resolved" not in package, name
            assert package["integrity"].startswith("sha512-"), name


def test_direct_dependencies_have_exact_versions():
    package = json.loads((WEB / "package.json").read_text())
    for version in (*package["dependencies"].values(), *package["devDependencies"].values()):
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_types_are_made_from_what_the_api_is():
    assert (WEB / "openapi.json").read_text() == generator().openapi(), "run `make docs`"


def test_titles_are_made_from_the_catalogue():
    assert (WEB / "catalog.json").read_text() == generator().page_catalog(), "run `make docs`"


def test_no_list_of_metrics_is_written_by_hand():
    """Several metrics in one file would duplicate the catalogue. A single metric may choose a branch."""
    for source in WEB.glob("src/**/*.ts*"):
        if source.name != "schema.d.ts":
            text = source.read_text()
            named = {metric.name for metric in METRICS if f'"{metric.name}"' in text}
            assert len(named) <= 3, (source, named)


def test_nothing_is_put_into_the_page_as_markup():
    for source in (*WEB.glob("src/**/*.ts*"), WEB / "index.html"):
        text = source.read_text()
        assert not re.search(r"innerHTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
            source
        )
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        hosts = {host for host in re.findall(r"https?://[\w.-]+", code) if "www.w3.org" not in host}
        assert not hosts, (source, hosts)


def test_the_search_box_knows_the_fields_of_the_language():
    source = (WEB / "src/parts/log-tools.tsx").read_text()
    (names,) = re.findall(r'const FIELDS = "([\w|]+)"', source)
    assert set(names.split("|")) == set(FIELDS)
