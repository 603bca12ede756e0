"""Tests of SM2 keys with a coordinate that begins with a zero byte, which happens in one of 128 key pairs."""

import pytest

from jobmeter.access.signatures.sdk_keys import verify_sm2

MADE_BY_THE_SDK = [
    (
        "ef1980aaaa67c3d6",
        "eedb9a26cc70e23823d76db37ede1bc8",
        "b86e6555f039f81366f1360f5bd47b34900b871e",
        (
            "30460221008fc22de499995dc98fb9b0770caedd438a3bd4b6e18bf701e2c912bc2560cfbf"
            "022100fb820fdc0200c72a0e5f9533c0c8a272a13801bb25a24fcdd55bb835038599d4"
        ),
    ),
    (
        "e362aafe33589efd",
        "1b7681e4f8c63e7481f46e1e09e57d37",
        "51c33cc4dfd9188304cc60696b1760d33b6005c0",
        (
            "3045022032f9a7188dc75a9986310b6cac3bfa0790557bf125bb3d843dd3f661b82e3d15"
            "022100c96e21b71cd421731f045326464bab751059d59c5f70bae4a6c90124f7f151d6"
        ),
    ),
]


@pytest.mark.parametrize(("key", "secret", "text", "signature"), MADE_BY_THE_SDK, ids=["short y", "short x"])
def test_a_signature_of_the_sdk_holds_where_a_coordinate_is_short(key, secret, text, signature):
    assert verify_sm2(key, secret, signature, text.encode())
    assert not verify_sm2(key, secret, signature, text.encode() + b".")
    assert not verify_sm2(key, secret + "0", signature, text.encode())
