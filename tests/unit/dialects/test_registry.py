from pathlib import Path

import jobmeter.dialects
from jobmeter.dialects.registry import dialects


def test_every_dialect_folder_is_registered():
    folders = {folder.parent.name for folder in Path(jobmeter.dialects.__file__).parent.glob("*/__init__.py")}
    assert {type(dialect).__module__.rpartition(".")[2] for dialect in dialects()} == folders


def test_names_are_unique():
    names = [dialect.name for dialect in dialects()]
    assert len(set(names)) == len(names)


def test_every_dialect_has_the_same_files():
    files = {"routes.py", "request.py", "response.py", "errors.py", "names.py", "SPEC.md"}
    for dialect in dialects():
        folder = Path(jobmeter.dialects.__file__).parent / type(dialect).__module__.rpartition(".")[2]
        assert files <= {file.name for file in folder.iterdir()}
