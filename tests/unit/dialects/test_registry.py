from pathlib import Path

import jobmeter.dialects
from jobmeter.access.decide import ACTIONS
from jobmeter.dialects.registry import list_dialects


def test_every_dialect_folder_is_registered():
    root = Path(jobmeter.dialects.__file__).parent
    folders = {folder.parent.name.replace("_", "-") for folder in root.rglob("SPEC.md")}
    assert {dialect.name for dialect in list_dialects() if dialect.operations} == folders


def test_names_are_unique():
    names = [dialect.name for dialect in list_dialects()]
    assert len(set(names)) == len(names)


def test_operations_are_named_once_in_a_dialect():
    for dialect in list_dialects():
        names = [operation.name for operation in dialect.operations]
        assert len(set(names)) == len(names)


def test_every_action_exists():
    assert {operation.action for dialect in list_dialects() for operation in dialect.operations} <= ACTIONS.keys()
