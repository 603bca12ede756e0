"""Tests of training output: lines in the frameworks' forms give their numbers; other lines give none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.reports.loss_lines import FORMS, LineNumbers, parse_own_form, read_line


def numbers(line, own=None) -> LineNumbers:
    """Return the numbers of a line that has some."""
    found = read_line(line, own)
    assert found is not None
    return found


POSITIVE = st.floats(1e-6, 1e6)


@given(POSITIVE, POSITIVE, st.floats(0, 100))
def test_hugging_face(loss, rate, epoch):
    for values in (
        {"loss": loss, "learning_rate": rate, "epoch": epoch},
        {"loss": str(loss), "learning_rate": str(rate), "epoch": str(epoch)},
    ):
        found = numbers(f"  5%|▌         | 10/200 {values}")
        assert (found.step, dict(found.values)) == (None, {"loss": loss, "learning_rate": rate, "epoch": epoch})


def test_hugging_face_with_odd_numbers():
    found = numbers("{'loss': nan, 'grad_norm': inf, 'epoch': 0.5}")
    assert math.isnan(found.values["loss"])
    assert found.values["grad_norm"] == math.inf
    assert read_line("{'loss': 1.0}") is None, "a dictionary without an epoch is no line of the Trainer"


@given(st.integers(0, 10**6), POSITIVE, POSITIVE)
def test_megatron(step, milliseconds, loss):
    line = (
        f" [2025-01-01 00:00:00] iteration {step:8d}/{10**7:8d} | consumed samples: {8 * step:12d} | "
        f"elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 120.1 | "
        f"learning rate: 1.500000E-04 | global batch size: {8:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | "
        "grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    found = numbers(line)
    assert found.step == step
    assert found.values["lm_loss"] == found.values["loss"] == float(f"{loss:.6E}")
    assert found.values["step_time"] == float(f"{milliseconds:.1f}") / 1000
    assert found.values["grad_norm"] == 1.234


@given(st.integers(0, 10**6), POSITIVE)
def test_nanogpt_and_torchtitan(step, loss):
    found = numbers(f"iter {step}: loss {loss:.4f}, time 12.34ms, mfu 20.12%")
    assert (found.step, found.values["loss"]) == (step, float(f"{loss:.4f}"))
    found = numbers(f"step {step}: train loss {loss:.4f}, val loss 2.5000")
    assert (found.step, dict(found.values)) == (step, {"train_loss": float(f"{loss:.4f}"), "val_loss": 2.5})
    titan = (
        f"[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:7.4f}  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36mmemory:  5.10GiB(10.20%)  \x1b[34mtps: 12,345  "
        "\x1b[36mtflops: 1,100.20  \x1b[35mmfu: 30.10%\x1b[39m"
    )
    found = numbers(titan)
    assert found.step == step
    assert dict(found.values) == {
        "loss": float(f"{loss:.4f}"),
        "grad_norm": 1.2345,
        "tokens_per_second": 12_345.0,
        "tflops": 1_100.2,
    }


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        (
            "Epoch 3:  50%|#####     | 5/10 [00:01<00:01,  9.90it/s, v_num=3, train_loss=0.512, lr=1e-5]",
            None,
            {"epoch": 3, "train_loss": 0.512, "lr": 1e-5},
        ),
        ("10/10 - 1s - 12ms/step - accuracy: 0.9000 - loss: 0.1000", None, {"accuracy": 0.9, "loss": 0.1}),
        ("10/10 ━━━━━━━━━━ 1s 12ms/step - accuracy: 0.9 - loss: 0.1", None, {"accuracy": 0.9, "loss": 0.1}),
        ("10/10 [=======] - 1s 12ms/step - loss: 0.1 - val_loss: 0.2", None, {"loss": 0.1, "val_loss": 0.2}),
        (
            '2020-01-01 00:00:00 | INFO | train_inner | {"epoch": 1, "loss": "9.1", "num_updates": "100", "x": null}',
            100,
            {"epoch": 1, "loss": 9.1},
        ),
        ("epoch 001 | loss 9.1 | nll_loss 8.1 | num_updates 100", 100, {"loss": 9.1, "nll_loss": 8.1}),
        ("epoch 001:     10 / 100 loss=9.1, num_updates=10, lr=1e-05", 10, {"loss": 9.1, "lr": 1e-5}),
    ],
)
def test_other_frameworks(line, step, values):
    found = numbers(line)
    assert (found.step, dict(found.values)) == (step, values)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "the loss was 3 in epoch 4",
        "loss: 3",
        "iteration 5",
        "Epoch 1 begins: loss=3",
        "{'loss': __import__('os'), 'epoch': 1}",
        "step 5: train loss high, val loss low",
        "x" * 10_000 + "{'loss': 1, 'epoch': 1}",
    ],
)
def test_other_lines_give_nothing(line):
    assert read_line(line) is None


@given(
    st.text(max_size=200)
    | st.builds(lambda hint, rest: hint + rest, st.sampled_from([one.hint for one in FORMS]), st.text())
)
def test_no_line_makes_it_fail(line):
    read_line(line)
    read_line(f"{{'loss': {line}, 'epoch': 1}}")


def test_a_form_of_the_user_comes_first():
    own = parse_own_form(r"S=(?P<step>\d+) L=(?P<loss>\S+)")
    assert numbers("S=5 L=0.25", own).values == {"loss": 0.25}
    assert read_line("S=5 L=high", own) is None
    assert numbers("iter 1: loss 2.0, time 1.0ms", own).values["loss"] == 2.0


@pytest.mark.parametrize("pattern", ["(", "loss", r"(?P<step>\d+)"])
def test_a_form_without_a_value_is_refused(pattern):
    with pytest.raises(ValueError, match=r"regular expression|names no value"):
        parse_own_form(pattern)
