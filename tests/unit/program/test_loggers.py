"""Tests of callbacks of training frameworks, with stand-ins for the packages, and of the follower of event files."""

import os
import subprocess
import sys
import types
from typing import Any

import pytest
from tests.unit.wire.test_tfevents import START, event, record, simple

import jobmeter
from jobmeter.program import hf, lightning, tensorboard


@pytest.fixture
def reported(monkeypatch):
    found = []
    for name in ("log", "log_at", "meta", "event", "flush"):
        monkeypatch.setattr(
            f"jobmeter.program.log.{name}", lambda *given, _name=name, **named: found.append((_name, given, named))
        )
    return found


@pytest.fixture
def transformers(monkeypatch):
    package: Any = types.ModuleType("transformers")
    package.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", package)
    hf.make_callback_class.cache_clear()
    yield package
    hf.make_callback_class.cache_clear()


def test_the_callback_of_hugging_face_reports_what_the_first_process_logs(transformers, reported):
    callback = hf.Callback()
    assert isinstance(callback, transformers.TrainerCallback)
    arguments = types.SimpleNamespace(max_steps=10, per_device_train_batch_size=2)
    state = types.SimpleNamespace(is_world_process_zero=True, global_step=5)
    model = types.SimpleNamespace(config=types.SimpleNamespace(_name_or_path="gpt2"))
    callback.on_train_begin(arguments, state, None, model=model)
    callback.on_log(arguments, state, None, logs={"loss": 0.5, "note": "x"})
    callback.on_save(arguments, state, None)
    callback.on_train_end(arguments, state, None)
    assert reported[0] == ("meta", (), {"max_steps": 10, "per_device_train_batch_size": 2, "model": "gpt2"})
    assert reported[1] == ("log", ({"loss": 0.5},), {"step": 5})
    assert [name for name, _, _ in reported[2:]] == ["event", "flush"]
    state.is_world_process_zero = False
    callback.on_log(arguments, state, None, logs={"loss": 0.5})
    callback.on_save(arguments, state, None)
    assert len(reported) == 4


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_the_logger_of_lightning_reports_metrics_and_parameters(monkeypatch, reported, package):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in {package.split(".")[0], package}:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    loggers: Any = types.ModuleType("loggers")
    utilities: Any = types.ModuleType("utilities")
    loggers.Logger = type("Logger", (), {})
    utilities.rank_zero_only = lambda function: function
    monkeypatch.setitem(sys.modules, f"{package}.loggers", loggers)
    monkeypatch.setitem(sys.modules, f"{package}.utilities", utilities)
    lightning.make_logger_class.cache_clear()
    logger = lightning.Logger()
    assert isinstance(logger, loggers.Logger)
    logger.log_metrics({"train_loss": 0.5}, step=3)
    logger.log_hyperparams({"lr": 0.1})
    logger.log_hyperparams(types.SimpleNamespace(depth=4))
    logger.finalize("success")
    lightning.make_logger_class.cache_clear()
    assert (logger.name, logger.version) == ("jobmeter", "")
    assert reported == [
        ("log", ({"train_loss": 0.5},), {"step": 3}),
        ("meta", (), {"lr": 0.1}),
        ("meta", (), {"depth": 4}),
        ("flush", (), {}),
    ]


def test_an_absent_package_is_named_when_its_class_is_used():
    code = "import jobmeter\njobmeter.hf\njobmeter.lightning\njobmeter.hf.Callback"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "No module named 'transformers'" in done.stderr or done.returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = hf.Nothing
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = lightning.Nothing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(jobmeter, "nothing")  # noqa: B009 - mypy knows that there is none


def test_event_files_are_followed_from_now_on(tmp_path, reported):
    follower = tensorboard.Follower(tmp_path / "runs")
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    later = follower.began + 10
    data = START + record(event(later - 20, 1, simple("loss", 3.0))) + record(event(later, 2, simple("loss", 2.0)))
    (folder / "events.out.tfevents.1").write_bytes(data[:-5])
    follower.turn()
    assert reported == []
    (folder / "events.out.tfevents.1").write_bytes(data)
    follower.turn()
    follower.turn()
    assert reported == [("log_at", (later, {"loss": 2.0}, 2), {})]


def test_following_never_raises():
    code = "import jobmeter\njobmeter.tensorboard.follow('/no/such')\njobmeter.tensorboard.follow(3)"
    environment = {**os.environ, "JOBMETER_SOCKET": "@none"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
