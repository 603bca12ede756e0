"""MLflow's tracking API for runs, in the form that ``mlflow`` 3.17 uses. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import BASIC, BEARER, TRACE
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import load_operations
from jobmeter.dialects.mlflow import errors
from jobmeter.dialects.mlflow.gaps import GAPS
from jobmeter.wire.mlflow.names import NAME, owns

MLFLOW = PathDialect(
    name=NAME,
    title="MLflow tracking API, 3.17",
    schemes=(TRACE, BEARER, BASIC),
    operations=load_operations(f"{__name__}.operations"),
    gaps=GAPS,
    render_error=errors.render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="Jobmeter has no {path}: it records runs, their parameters, tags and metrics.",
    owns=owns,
)
