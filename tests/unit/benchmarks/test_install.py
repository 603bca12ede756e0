"""Tests of the installation of peers: the output names the measured peers, whether downloads succeed or not."""

import subprocess

import pytest
from benchmarks import install


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Simulate a machine without downloads, without apt's network, and without installed peers."""
    monkeypatch.setattr(install, "CACHE", tmp_path)
    monkeypatch.setattr("benchmarks.install.shutil.which", lambda name: None)
    monkeypatch.setattr(install, "_mirror", lambda: "file:/nowhere")
    install.version.cache_clear()
    commands = list[tuple[str, ...]]()

    def run(*command: str) -> str:
        commands.append(command)
        if command[0] == "apt-get" and command[-1] == "update":
            raise subprocess.CalledProcessError(100, command, stderr="E: one\nE: the mirror does not answer\n")
        return "2:1.79.5+ds1-3" if command[0] == "dpkg-query" else ""

    monkeypatch.setattr(install, "_run", run)
    yield commands
    install.version.cache_clear()


def test_what_is_installed_is_measured_when_nothing_can_be_fetched(machine, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.install.shutil.which", lambda name: f"/usr/bin/{name}")
    install.prepare()
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "victoria-metrics: version 1.79.5 is measured, the installed one "
        "(Debian sid could not be fetched: E: the mirror does not answer)"
    )
    assert second.startswith("prometheus: version 1.79.5 is measured, the installed one")


def test_a_peer_that_is_nowhere_is_left_out(machine, capsys):
    install.prepare()
    assert "prometheus: not measured, it is neither fetched nor installed" in capsys.readouterr().out
    assert install.program("prometheus") is None
    assert install.version("prometheus") == ""


def test_what_was_fetched_is_not_fetched_again(machine, tmp_path, capsys):
    for folder in ("root/usr/bin", "versions"):
        (tmp_path / folder).mkdir(parents=True)
    for name in install.PROGRAMS:
        (tmp_path / "root" / "usr" / "bin" / name).touch()
        (tmp_path / "versions" / name).write_text("1.145.0+ds1-2\n")
    install.prepare()
    assert machine == []
    assert "victoria-metrics: version 1.145.0 is measured, from Debian sid" in capsys.readouterr().out


def test_apt_keeps_to_folders_of_its_own(machine, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        install.fetch()
    (update,) = machine
    assert f"Dir::State::lists={tmp_path / 'lists'}" in update
    assert f"Dir::Cache={tmp_path / 'apt'}" in update
    assert "Dir::Etc::sourceparts=/dev/null" in update
    assert (tmp_path / "peers.list").read_text().endswith("file:/nowhere sid main\n")
