"""Logger for Lightning: ``Trainer(logger=jobmeter.lightning.Logger())``.

``lightning`` or ``pytorch_lightning`` is imported when the class is used first.
https://lightning.ai/docs/pytorch/stable/extensions/logging.html
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from jobmeter.program import log as reports


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class that another package defines
    if name != "Logger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return make_logger_class()


@cache
def make_logger_class() -> type:
    """Return the class, created on first use. Raises ImportError without Lightning."""
    try:
        loggers, zero = import_module("lightning.pytorch.loggers"), import_module("lightning.pytorch.utilities")
    except ImportError:
        loggers, zero = import_module("pytorch_lightning.loggers"), import_module("pytorch_lightning.utilities")
    base: Any = loggers.Logger
    only_first: Callable[[Callable[..., None]], Callable[..., None]] = zero.rank_zero_only

    class Logger(base):  # type: ignore[misc]
        """Reports what modules log, and the hyperparameters. Only the first process of the job reports."""

        @property
        def name(self) -> str:
            """Name of the logger."""
            return "jobmeter"

        @property
        def version(self) -> str:
            """Version of the experiment: none, because jobs have attempts."""
            return ""

        @only_first
        def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
            """Report numbers."""
            reports.log(dict(metrics), step=step)

        @only_first
        def log_hyperparams(self, params: Any, *args: Any, **more: Any) -> None:  # noqa: ANN401, ARG002
            """Report facts."""
            given = dict(params) if isinstance(params, Mapping) else vars(params)
            reports.meta(**{str(name): value for name, value in given.items()})

        @only_first
        def finalize(self, status: str) -> None:  # noqa: ARG002
            """Send the rest."""
            reports.flush()

    return Logger
