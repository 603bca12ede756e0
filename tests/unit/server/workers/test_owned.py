"""Tests of modules that a worker replaces: they exist, a worker would import them, and heavy libraries stay out."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from jobmeter.server.workers.owned import OWNED_MODULES

REPLACE = """
from jobmeter.server.workers.owned import OwnerNeededError, replace_modules
replace_modules()
"""
LOAD = """
import sys
import jobmeter.server.workers.http_worker
from jobmeter.dialects.registry import list_dialects
list_dialects()
"""


def load(code, before=REPLACE):
    command = [sys.executable, "-P", "-W", "error", "-c", before + LOAD + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_a_worker_does_not_load_the_libraries_of_the_storage_process():
    loaded = set(load("print(*sys.modules)"))
    libraries = {"sqlalchemy", "sqlite3", "yaml", "prometheus_client", "pyarrow", "chdb", "http.client"}
    assert not loaded & libraries, "import it where only the storage process needs it, or replace the module that does"
    loaded = set(load("print(*sys.modules)", before=""))
    assert loaded >= OWNED_MODULES, "a worker does not import this module: take it off the list"


@pytest.mark.parametrize("name", sorted(OWNED_MODULES))
def test_replaced_modules_exist(name):
    assert find_spec(name) is not None


@pytest.mark.parametrize("use", ["Registry(1)", "Registry.open()", "list(Registry)", "1 in Registry"])
def test_each_use_of_a_replaced_name_needs_the_storage_process(use):
    code = f"""
from jobmeter.registry.base import Registry
def annotated(one: Registry | None) -> list[Registry]: ...
try:
    {use}
except OwnerNeededError as error:
    print(error)
"""
    assert load(code)[0].startswith("Registry")
