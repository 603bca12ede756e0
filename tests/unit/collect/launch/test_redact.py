"""Tests of the redaction of recorded command lines."""

import pytest

from jobmeter.collect.launch.records import redact_command


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        ("python train.py --epochs 3", "python train.py --epochs 3"),
        ("train --api-key abc --lr 1", "train --api-key *** --lr 1"),
        ("train --token=abc -password abc", "train --token=*** -password ***"),
        ("jobmeter run --key jm_x --server http://h -- x", "jobmeter run --key *** --server http://h -- x"),
        ("env DB_PASSWORD=a WANDB_API_KEY=b HOME=/root x", "env DB_PASSWORD=*** WANDB_API_KEY=*** HOME=/root x"),
        ("python x.py data.secret=abc", "python x.py data.secret=***"),
        ("load postgresql://lin:abc@db/x", "load postgresql://lin:***@db/x"),
        ("load redis://:abc@db", "load redis://:***@db"),
        ("curl https://h/x?a=1", "curl https://h/x?a=1"),
        ("curl -H jm_0123456789abcdefXYZ", "curl -H ***"),
        (
            "train --tokenizer gpt2 --max-tokens 512 --keyboard x",
            "train --tokenizer gpt2 --max-tokens 512 --keyboard x",
        ),
        ("train --key --other x", "train --key --other x"),
        ("train --token", "train --token"),
    ],
)
def test_a_credential_is_masked(command, recorded):
    assert " ".join(redact_command(command.split())) == recorded
