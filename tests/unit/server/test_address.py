"""Tests of TLS files: an invalid file is named with its problem."""

import pytest
from tests.support import certificates

from jobmeter.errors import ConfigurationError
from jobmeter.server.address import find_tls_files
from jobmeter.settings import Settings


def problem(tmp_path, certificate, key):
    with pytest.raises(ConfigurationError) as caught:
        find_tls_files(Settings(data=tmp_path, tls_cert=str(certificate), tls_key=str(key)))
    return caught.value.message


def test_the_wrong_file_is_named_with_its_problem(tmp_path):
    made, text = certificates.make(tmp_path), tmp_path / "notes.txt"
    text.write_text("no certificate")
    (tmp_path / "other").mkdir()
    other = certificates.make(tmp_path / "other")
    assert (
        problem(tmp_path, tmp_path / "none.pem", made.key)
        == f"cannot use {tmp_path}/none.pem: No such file or directory"
    )
    assert problem(tmp_path, made.certificate, tmp_path) == f"cannot use {tmp_path}: Is a directory"
    assert problem(tmp_path, text, made.key) == f"cannot use {text}: it or {made.key} is not in PEM"
    belongs = f"the key in {other.key} does not belong to it"
    assert problem(tmp_path, made.certificate, other.key) == f"cannot use {made.certificate}: {belongs}"
    given = Settings(data=tmp_path, tls_cert=str(made.certificate), tls_key=str(made.key))
    assert find_tls_files(given) == (made.certificate, made.key)
