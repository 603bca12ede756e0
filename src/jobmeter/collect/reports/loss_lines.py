"""Numbers in lines that training programs print, in the known forms of their frameworks.

A line counts only if it has the whole form, so that prose with the word "loss" does not. Each form names the source
file that prints it.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
_LONGEST = 4_096
_MOST = 64
"""Most numbers of a line."""


class LineNumbers(NamedTuple):
    """Numbers of a line by name, and their step if the line has one."""

    step: float | None
    values: Mapping[str, float]


class LineForm(NamedTuple):
    """Form of a framework.

    ``hint`` is a text that each such line contains. It is searched first because that is cheap.
    """

    name: str
    hint: str
    read: Callable[[str], LineNumbers | None]
    source: str


def _make_pattern_reader(pattern: str) -> Callable[[str], LineNumbers | None]:
    """Return a reader by a pattern whose groups are names of values; ``step`` is the step."""
    compiled = re.compile(pattern)

    def read(line: str) -> LineNumbers | None:
        found = compiled.search(line)
        if found is None:
            return None
        numbers = {name: float(text.replace(",", "")) for name, text in found.groupdict().items() if text is not None}
        step = numbers.pop("step", None)
        return LineNumbers(step, numbers) if numbers else None

    return read


_DICT = re.compile(r"\{'[\w/.-]+': [^{}]*\}\s*$")


def _hugging_face(line: str) -> LineNumbers | None:
    """Read ``{'loss': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5}``; newer releases print the numbers as texts."""
    found = _DICT.search(line)
    if found is None:
        return None
    text = re.sub(r"(?<=: )(nan|-?inf)\b", r"'\1'", found[0])
    try:
        given = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if "epoch" not in given or not any("loss" in str(name) for name in given):
        return None
    values = _numbers(given)
    return LineNumbers(values.pop("step", None), values) if values else None


_MEGATRON = re.compile(r"iteration\s+(\d+)/\s*\d+ \|")
_MEGATRON_PART = re.compile(rf"([a-zA-Z][a-zA-Z0-9 _-]*?)(?: \([^)]*\))?:? ({_NUMBER})")


def _megatron(line: str) -> LineNumbers | None:
    """Read `` iteration 10/ 100 | elapsed time per iteration (ms): 12.3 | lm loss: 6.1E+00 |``."""
    found = _MEGATRON.search(line)
    if found is None:
        return None
    parts = (_MEGATRON_PART.fullmatch(part.strip()) for part in line[found.end() :].split("|"))
    values = {part[1].strip().replace(" ", "_"): float(part[2]) for part in list(parts)[:_MOST] if part}
    if "elapsed_time_per_iteration" in values:
        values["step_time"] = values.pop("elapsed_time_per_iteration") / 1000  # printed in milliseconds
    if "lm_loss" in values:
        values["loss"] = values["lm_loss"]
    return LineNumbers(float(found[1]), values) if values else None


_PAIR = re.compile(rf"([A-Za-z][\w/.]*)=({_NUMBER})")
_LIGHTNING = re.compile(r"^Epoch (\d+).*?(?:it/s|s/it).*?[\[,] ?(?=[A-Za-z])")


def _lightning(line: str) -> LineNumbers | None:
    """Read Lightning's bar: ``Epoch 0:  50%|###  | 5/10 [00:01<00:01, 9.9it/s, v_num=3, train_loss=0.5]``."""
    found = _LIGHTNING.search(line)
    values = {name: float(text) for name, text in _PAIR.findall(line)[:_MOST] if name != "v_num"} if found else {}
    return LineNumbers(None, {**values, "epoch": float(found[1])}) if found and values else None


_KERAS = re.compile(r"^\s*\d+/\d+ .*(?:\d+(?:us|ms|s)/(?:step|epoch)|ETA)[^-]*- (?=[A-Za-z]\w*: )")
_COLON = re.compile(rf"(?:- |\| )([A-Za-z]\w*)(?:: | )({_NUMBER})")


def _keras(line: str) -> LineNumbers | None:
    """Read ``10/10 - 1s 12ms/step - accuracy: 0.9 - loss: 0.1``."""
    found = _KERAS.search(line)
    values = {name: float(text) for name, text in _COLON.findall(line)[:_MOST]} if found else {}
    return LineNumbers(None, values) if "loss" in values else None


_FAIRSEQ = re.compile(r"\| (?:train|train_inner|valid) \| (\{.*\})\s*$")
_FAIRSEQ_BAR = re.compile(r"epoch \d+(?: \|[^:]*)?:\s+\d+ / \d+ (?=\w+=)")
_FAIRSEQ_TEXT = re.compile(r"epoch (\d+)(?: \|.*?)? \| (?=(?:valid on .*? )?loss )")


def _fairseq(line: str) -> LineNumbers | None:
    """Read ``train_inner | {"epoch": 1, "loss": "9.1", "num_updates": "100"}``, or ``epoch 001 | loss 9.1 | ...``."""
    found = _FAIRSEQ.search(line)
    if found is not None:
        try:
            values = _numbers(ast.literal_eval(found[1].replace("null", "None")))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        return LineNumbers(values.pop("num_updates", None), values) if values else None
    pairs = _PAIR if _FAIRSEQ_BAR.search(line) else _COLON if _FAIRSEQ_TEXT.search(line) else None
    if pairs is None:
        return None
    values = {name: float(text) for name, text in pairs.findall(line)[:_MOST]}
    return LineNumbers(values.pop("num_updates", None), values) if "loss" in values else None


def _numbers(given: object) -> dict[str, float]:
    """Return the entries of a dictionary that are numbers, or texts of numbers."""
    found: dict[str, float] = {}
    for name, value in list(given.items())[:_MOST] if isinstance(given, dict) else ():
        try:
            if not isinstance(value, bool | None):
                found[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return found


FORMS: tuple[LineForm, ...] = (
    LineForm(
        "Hugging Face Transformers",
        "loss",
        _hugging_face,
        "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer_callback.py",
    ),
    LineForm(
        "Megatron-LM",
        "iteration",
        _megatron,
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py",
    ),
    LineForm(
        "nanoGPT",
        "loss",
        _make_pattern_reader(rf"^iter (?P<step>\d+): loss (?P<loss>{_NUMBER}), time (?P<time_ms>{_NUMBER})ms"),
        "https://github.com/karpathy/nanoGPT/blob/master/train.py",
    ),
    LineForm(
        "nanoGPT evaluation",
        "val loss",
        _make_pattern_reader(
            rf"^step (?P<step>\d+): train loss (?P<train_loss>{_NUMBER}), val loss (?P<val_loss>{_NUMBER})"
        ),
        "https://github.com/karpathy/nanoGPT/blob/master/train.py",
    ),
    LineForm(
        "torchtitan",
        "loss:",
        _make_pattern_reader(
            rf"step:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>{_NUMBER})(?:\s+grad_norm:\s*(?P<grad_norm>{_NUMBER}))?"
            rf"(?:\s+memory:\s*{_NUMBER}GiB\({_NUMBER}%\))?(?:\s+tps:\s*(?P<tokens_per_second>[\d,.]+))?"
            rf"(?:\s+tflops:\s*(?P<tflops>[\d,.]+))?"
        ),
        "https://github.com/pytorch/torchtitan/blob/main/torchtitan/components/metrics.py",
    ),
    LineForm(
        "Lightning",
        "Epoch",
        _lightning,
        "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
    ),
    LineForm("Keras", "loss", _keras, "https://github.com/keras-team/keras/blob/master/keras/src/utils/progbar.py"),
    LineForm(
        "fairseq",
        "loss",
        _fairseq,
        "https://github.com/facebookresearch/fairseq/blob/main/fairseq/logging/progress_bar.py",
    ),
)
"""Forms, in the order in which they are tried."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read_line(line: str, own: Callable[[str], LineNumbers | None] | None = None) -> LineNumbers | None:
    """Return the numbers of a line, by the user's own form first; None for any other line."""
    if len(line) > _LONGEST:
        return None
    if own is not None and (found := own(line)) is not None:
        return found
    hinted = [form for form in FORMS if form.hint in line]
    plain = _COLOURS.sub("", line) if hinted and "\x1b" in line else line
    return next((found for form in hinted if (found := form.read(plain)) is not None), None)


def parse_own_form(pattern: str) -> Callable[[str], LineNumbers | None]:
    """Return the form of a user's pattern, whose groups are the names of values. Raises ValueError."""
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if not set(groups) - {"step"}:
        raise ValueError(f"{pattern!r} names no value: write (?P<loss>...), and (?P<step>...) for the step")
    read = _make_pattern_reader(pattern)

    def read_valid(line: str) -> LineNumbers | None:
        try:
            return read(line)
        except ValueError:  # a group has matched something else than a number
            return None

    return read_valid
