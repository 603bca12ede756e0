"""Callback for the Trainer of Hugging Face: ``Trainer(..., callbacks=[jobmeter.hf.Callback()])``.

``transformers`` is imported when the class is used first. https://huggingface.co/docs/transformers/main_classes/callback
"""

from functools import cache
from importlib import import_module
from typing import Any

from jobmeter.program import log as reports

_FACTS = (
    "num_train_epochs",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "max_steps",
)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class that another package defines
    if name != "Callback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return make_callback_class()


@cache
def make_callback_class() -> type:
    """Return the class, created on first use. Raises ImportError without ``transformers``."""
    base: Any = import_module("transformers").TrainerCallback

    class Callback(base):  # type: ignore[misc]
        """Reports what the Trainer logs, its facts, and its checkpoints. Only the first process of the job reports."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002, ANN401
            """Report facts about the training."""
            if state.is_world_process_zero:
                name = getattr(getattr(more.get("model"), "config", None), "_name_or_path", "")
                facts = {fact: getattr(args, fact) for fact in _FACTS if hasattr(args, fact)}
                reports.meta(**facts, **({"model": name} if name else {}))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:  # noqa: ARG002, ANN401
            """Report the logged numbers."""
            if state.is_world_process_zero and logs:
                reports.log({name: value for name, value in logs.items() if _is_number(value)}, step=state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002, ANN401
            """Report a checkpoint."""
            if state.is_world_process_zero:
                reports.event("CheckpointSaved", "The Trainer saved a checkpoint", step=state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002, ANN401
            """Send the rest."""
            reports.flush()

    return Callback


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, str)
