"""Baseten v1: its training API, in the form that ``truss`` and the ``baseten`` SDK use. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import BEARER
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.baseten import errors, names
from jobmeter.dialects.baseten.gaps import GAPS
from jobmeter.dialects.baseten.view import view_call

_OWN = frozenset({"training_projects", "training_jobs", "training"})


def _owns(path: str) -> bool:
    """Return True for paths of the training API. Other dialects also have paths below ``/v1/``."""
    parts = path.split("/", 5)
    if len(parts) < 3 or parts[:2] != ["", "v1"]:
        return False
    return parts[2] in _OWN or (parts[2] == "teams" and parts[4:5] == ["training_projects"])


BASETEN = PathDialect(
    name=names.NAME,
    title="Baseten training API, v1",
    schemes=(BEARER,),
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    view_call=view_call,
    render_error=errors.render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="There is nothing at {path}.",
    owns=_owns,
)
