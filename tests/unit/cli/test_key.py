"""Tests of ``jobmeter key``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobmeter.access.authenticate import Authenticator
from jobmeter.access.call import Call
from jobmeter.access.principal import Role
from jobmeter.access.signatures import TOKENS
from jobmeter.access.vault import Vault
from jobmeter.cli.key import command
from jobmeter.cli.main import cli
from jobmeter.errors import UnauthenticatedError
from jobmeter.model.retention import Retention
from jobmeter.model.time import SystemClock
from jobmeter.registry.open import open_registry
from jobmeter.settings import Settings


def jobmeter(data: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JOBMETER_")}
    return subprocess.run(
        [sys.executable, "-m", "jobmeter", "key", *arguments],
        env={**variables, "JOBMETER_DATA": str(data), "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_key_lives_from_creation_to_revocation(tmp_path: Path) -> None:
    empty = jobmeter(tmp_path, "list")
    assert (empty.returncode, json.loads(jobmeter(tmp_path, "list", "--json").stdout)) == (0, [])
    assert "jobmeter key create" in empty.stdout

    made = jobmeter(tmp_path, "create", "--name", "ci", "--role", "reader", "--project", "team-a", "--json")
    assert made.returncode == 0
    assert made.stdout.count("\n") == 1
    key = json.loads(made.stdout)
    assert list(key) == ["id", "token", "access_key_id", "access_key_secret", "role", "project"]
    assert (key["role"], key["project"]) == ("reader", "team-a")

    settings = Settings(data=tmp_path)
    registry = open_registry(settings.registry_url, Retention())
    authenticator = Authenticator(registry.keys, Vault.load(settings), SystemClock())
    call = Call("GET", "/", "", (("authorization", f"Bearer {key['token']}"),))
    principal = authenticator.authenticate(call, TOKENS)
    assert (principal.id, principal.role, principal.project) == (key["id"], Role.READER, "team-a")

    [listed] = json.loads(jobmeter(tmp_path, "list", "--json").stdout)
    assert (listed["id"], listed["name"], listed["revoked"]) == (key["id"], "ci", None)
    table = jobmeter(tmp_path, "list").stdout
    for shown in (key["id"], key["access_key_id"], "ci", "reader", "team-a", "active"):
        assert shown in table
    for secret in (key["token"], key["access_key_secret"]):
        assert secret not in table
        assert secret not in json.dumps(listed)

    assert jobmeter(tmp_path, "revoke", key["id"]).stdout == f"revoked {key['id']}\n"
    authenticator.forget()
    with pytest.raises(UnauthenticatedError):
        authenticator.authenticate(call, TOKENS)
    assert "revoked" in jobmeter(tmp_path, "list").stdout
    registry.close()


def test_a_key_of_all_projects_names_none(tmp_path: Path) -> None:
    key = json.loads(jobmeter(tmp_path, "create", "--name", "a", "--role", "admin", "--json").stdout)
    assert key["project"] is None
    shown = jobmeter(tmp_path, "create", "--name", "a", "--role", "admin")
    assert "every project" in shown.stdout
    assert "not shown again" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("create", "--name", "a b", "--role", "admin"), 1, "name 'a b' is not a name"),
        (("create", "--name", "a", "--role", "admin", "--project", "x_y"), 1, "project 'x_y' is not a project"),
        (("revoke", "key-none"), 1, "there is no valid key 'key-none'"),
        (("list", "--registry", "mysql://h/d"), 1, "sqlite or postgresql"),
        (("create", "--name", "a", "--role", "root"), 2, "root"),
        (("create", "--role", "admin"), 2, "--name"),
        (("revoke",), 2, "ID"),
    ],
)
def test_a_failure_is_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], status: int, message: str) -> None:
    failed = jobmeter(tmp_path, *arguments)
    assert failed.returncode == status
    assert failed.stdout == ""
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert status == 2 or failed.stderr.count("\n") == 1


def test_flags_come_before_the_environment(tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path / 'there.db'}"
    jobmeter(tmp_path / "a", "create", "--name", "here", "--role", "admin", "--data", str(tmp_path / "b"))
    assert not (tmp_path / "a").exists()
    jobmeter(tmp_path / "b", "create", "--name", "there", "--role", "admin", JOBMETER_REGISTRY=there)
    assert [key["name"] for key in json.loads(jobmeter(tmp_path / "b", "list", "--json").stdout)] == ["here"]
    listed = jobmeter(
        tmp_path / "b", "list", "--json", "--registry", there, JOBMETER_REGISTRY="sqlite:////none/none.db"
    )
    assert [key["name"] for key in json.loads(listed.stdout)] == ["there"]


def test_help_names_every_flag() -> None:
    runner = CliRunner()
    for verb in ("create", "list", "revoke"):
        shown = runner.invoke(command, [verb, "--help"]).output
        assert "--data" in shown
        assert "JOBMETER_REGISTRY" in shown
    assert "key" in runner.invoke(cli, ["--help"]).output


def test_a_key_with_policies_is_made_shown_and_listed(tmp_path: Path) -> None:
    document = {"Version": "1", "Statement": [{"Effect": "Allow", "Action": "paidlc:Get*", "Resource": "*"}]}
    file = tmp_path / "own.json"
    file.write_text(json.dumps(document))
    made = jobmeter(
        tmp_path, "create", "--name", "x", "--policy", "AliyunPAIFullAccess", "--policy", str(file), "--json"
    )
    assert made.returncode == 0, made.stderr
    key_id = json.loads(made.stdout)["id"]
    shown = json.loads(jobmeter(tmp_path, "show", key_id, "--json").stdout)
    assert [policy["name"] for policy in shown["policies"]] == ["AliyunPAIFullAccess", "own"]
    assert shown["policies"][1]["document"] == document
    assert "token" not in shown
    plain = jobmeter(tmp_path, "show", key_id).stdout
    assert "paidlc:Get*" in plain
    assert json.loads(jobmeter(tmp_path, "list", "--json").stdout)[-1]["policies"] == ["AliyunPAIFullAccess", "own"]


def test_a_key_needs_a_role_or_a_policy_that_is_one(tmp_path: Path) -> None:
    assert jobmeter(tmp_path, "create", "--name", "x").returncode == 2
    assert jobmeter(tmp_path, "create", "--name", "x", "--policy", "Nobody").returncode == 1
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    assert jobmeter(tmp_path, "create", "--name", "x", "--policy", str(wrong)).returncode == 1
    assert json.loads(jobmeter(tmp_path, "list", "--json").stdout) == []
    assert jobmeter(tmp_path, "show", "key-none").returncode == 1


def test_the_policies_of_a_key_are_replaced(tmp_path: Path) -> None:
    made = json.loads(jobmeter(tmp_path, "create", "--name", "x", "--policy", "AliyunPAIFullAccess", "--json").stdout)
    changed = jobmeter(tmp_path, "policies", made["id"], "--policy", "AliyunARMSFullAccess")
    assert changed.stdout == f"{made['id']} has the policies AliyunARMSFullAccess\n"
    shown = json.loads(jobmeter(tmp_path, "show", made["id"], "--json").stdout)
    assert [policy["name"] for policy in shown["policies"]] == ["AliyunARMSFullAccess"]
    assert jobmeter(tmp_path, "policies", made["id"]).returncode == 2
    assert "no valid key" in jobmeter(tmp_path, "policies", "key-none", "--policy", "AliyunPAIFullAccess").stderr
