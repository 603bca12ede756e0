"""Huawei Cloud ModelArts v2: training jobs. Sources and readings: SPEC.md."""

from jobmeter.access.signatures import HUAWEI
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.modelarts import errors, names
from jobmeter.dialects.modelarts.gaps import GAPS
from jobmeter.dialects.modelarts.operations.projects import PROJECTS_PATH
from jobmeter.dialects.modelarts.view import view_call

_SEGMENTS = 4
"""Fewest segments of a path: ``/v2/{project_id}/...``."""


def _owns(path: str) -> bool:
    """Return True for paths of ModelArts: everything below ``/v2/{project_id}/``."""
    return path == PROJECTS_PATH or (path.startswith("/v2/") and len(path.split("/")) >= _SEGMENTS)


MODELARTS = PathDialect(
    name=names.NAME,
    title="Huawei Cloud ModelArts, API v2",
    schemes=HUAWEI,
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    view_call=view_call,
    render_error=errors.render,
    wrong_method="The method {method} is not allowed here: {allowed}.",
    wrong_path="The path {path} is not found.",
    owns=_owns,
)
