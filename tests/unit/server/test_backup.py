"""Tests of backups: the permitted locations, and the refusal of a damaged backup before the restore begins."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples
from tests.support.memory_store import MemoryStore
from tests.support.serving import Serving

from jobmeter.errors import ConfigurationError, ConflictError
from jobmeter.model.job import JobFilter
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.open import open_registry
from jobmeter.server.backup import MANIFEST, bring_back, move_registry
from jobmeter.server.folder import claim
from jobmeter.settings import Settings

_CPU = {"metric": "cpu.usage", "job": "j1", "replica": "worker-0", "node": "n1"}


def backed_up(server: Serving, target: Path) -> list[Path]:
    """Make a backup with data in it; return its files."""
    server.ingest(samples([(_CPU, [(NOW - 1000, 1.0)])]))
    assert server.call("POST", "/backup", {"directory": str(target)}).status == 200
    return sorted(path for path in target.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "directory", ["{tmp}/data/backup", "{tmp}/data", "{tmp}", "/", "{tmp}/link/backup", "{tmp}/loop/x", "{tmp}/a\0b"]
)
def test_a_backup_lies_apart_from_the_data_folder(server: Serving, tmp_path: Path, directory: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data", target_is_directory=True)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = sorted(tmp_path.rglob("*"))
    reply = server.call("POST", "/backup", {"directory": directory.format(tmp=tmp_path)})
    assert (reply.status, reply.json()["error"]["field"]) == (400, "directory")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_manifest_names_every_file(server: Serving, tmp_path: Path) -> None:
    files = {str(path.relative_to(tmp_path / "backup")) for path in backed_up(server, tmp_path / "backup")}
    text = (tmp_path / "backup" / MANIFEST).read_text()
    assert files > {MANIFEST, "secret.key"}
    assert all(f'"{name}"' in text for name in files - {MANIFEST})


def test_a_registry_moves_once_to_an_empty_database(tmp_path: Path) -> None:
    data, other = tmp_path / "data", f"sqlite:///{tmp_path}/other.db"
    data.mkdir()
    with closing(open_registry(f"sqlite:///{data}/registry.db", Retention())) as registry:
        registry.record("p", Records(jobs=[JobRecord(job_id="j")]), NOW)
    with claim(data), pytest.raises(ConfigurationError, match="another server uses"):
        move_registry(data, other, Retention())
    move_registry(data, other, Retention())
    assert sorted(path.name for path in data.iterdir()) == ["registry.db.moved", "server.lock"]
    with closing(open_registry(other, Retention())) as registry:
        assert [job.id for job in registry.list_jobs(JobFilter(), NOW).jobs] == ["j"]
    with pytest.raises(ConfigurationError, match="moved before"):
        move_registry(data, other, Retention())
    (data / "registry.db.moved").rename(data / "registry.db")
    with pytest.raises(ConflictError):
        move_registry(data, other, Retention())
    assert (data / "registry.db").exists()


def test_a_damaged_backup_is_not_restored(server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobmeter.server.backup.open_store", lambda *_: MemoryStore())  # a process opens one engine
    files = backed_up(server, tmp_path / "backup")
    settings = Settings(data=tmp_path / "new")
    for path in files:
        content = path.read_bytes()
        for broken in (content[:-1], content[: len(content) // 2] + b"\xff" + content[len(content) // 2 + 1 :], None):
            if broken is None:
                path.unlink()
            else:
                path.write_bytes(broken)
            # A backup without its manifest is taken for an earlier program's.
            if broken is not None or path.name != MANIFEST:
                with pytest.raises(ConfigurationError, match=path.name):
                    bring_back(settings, tmp_path / "backup")
                assert not (tmp_path / "new").exists()
            path.write_bytes(content)
    bring_back(settings, tmp_path / "backup")
    assert (tmp_path / "new" / "registry.db").exists()
