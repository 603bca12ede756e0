"""Tests of the key file and of data sealed with it."""

import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.vault import Vault
from jobmeter.errors import ConfigurationError
from jobmeter.settings import Settings

VAULT = Vault(bytes(range(32)))


def _sealed(folder: str) -> bytes:
    return Vault.load(Settings(data=Path(folder))).sign(b"same")


@given(secret=st.text(max_size=100), owner=st.text(max_size=20))
def test_what_is_sealed_opens(secret: str, owner: str) -> None:
    try:
        sealed = VAULT.seal(secret, owner)
    except UnicodeEncodeError:
        return
    assert VAULT.open(sealed, owner) == secret
    assert secret.encode() not in sealed or len(secret) < 3


def test_the_same_secret_is_sealed_differently_each_time() -> None:
    assert VAULT.seal("s", "o") != VAULT.seal("s", "o")


@given(position=st.integers(0, 34), bit=st.integers(0, 7))
def test_any_change_is_noticed(position: int, bit: int) -> None:
    sealed = bytearray(VAULT.seal("secret", "owner"))
    sealed[position % len(sealed)] ^= 1 << bit
    with pytest.raises(ConfigurationError):
        VAULT.open(bytes(sealed), "owner")


def test_it_opens_for_its_owner_and_its_key_alone() -> None:
    sealed = VAULT.seal("secret", "owner")
    for vault, owner in ((VAULT, "other"), (Vault(bytes(32)), "owner")):
        with pytest.raises(ConfigurationError, match="another key file"):
            vault.open(sealed, owner)
    for broken in (b"", b"\x01", sealed[:12], sealed[:-1]):
        with pytest.raises(ConfigurationError):
            VAULT.open(broken, "owner")


def test_signatures_depend_on_the_key_and_the_data() -> None:
    assert VAULT.sign(b"a") == VAULT.sign(b"a") != VAULT.sign(b"b")
    assert VAULT.sign(b"a") != Vault(bytes(32)).sign(b"a")


def test_the_key_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "new" / "data")
    first = Vault.load(settings)
    [file] = (tmp_path / "new" / "data").iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("secret.key", 0o600)
    assert Vault.load(settings).open(first.seal("s", "o"), "o") == "s"


def test_programs_that_start_together_share_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(_sealed, [str(tmp_path)] * 8))) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["secret.key"]


def test_a_named_key_file_is_used_and_never_made(tmp_path: Path) -> None:
    file = tmp_path / "key"
    settings = Settings(data=tmp_path / "data", secret_key_file=str(file))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Vault.load(settings)
    file.write_text(bytes(range(32)).hex() + "\n")
    file.chmod(0o440)
    assert Vault.load(settings).sign(b"x") == VAULT.sign(b"x")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o666])
def test_a_key_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text("00" * 32)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Vault.load(Settings(data=tmp_path, secret_key_file=str(file)))


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, "ü" * 64])
def test_a_key_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        Vault.load(Settings(data=tmp_path, secret_key_file=str(file)))


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Vault(b"short")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match=r"secret\.key"):
        Vault.load(Settings(data=tmp_path / "file" / "data"))
