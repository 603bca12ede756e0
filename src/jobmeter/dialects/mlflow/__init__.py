"""MLflow's tracking API for runs, in the form that ``mlflow`` 3.17 uses. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import BASIC, BEARER, TRACE
from jobmeter.dialects.base import Gap, GapStatus
from jobmeter.dialects.base.path_dialect import PathDialect
from jobmeter.dialects.base.request import operations_of
from jobmeter.dialects.mlflow import errors
from jobmeter.wire.mlflow.names import NAME, owns

GAPS = (
    Gap(
        "Artifacts (`mlflow-artifacts`, `artifacts/list`)",
        "501 with a message: Jobmeter stores no files. With the token of `jobmeter run` the client writes them to "
        "`mlruns` in its folder.",
    ),
    Gap("`experiments/search`, `update`, `delete`, `restore`, tags of experiments", "An experiment is only a name."),
    Gap("`runs/restore`, `runs/delete-tag`", "A deleted run stays deleted; a tag can be replaced.", GapStatus.NOT_YET),
    Gap("`runs/log-inputs`, `runs/outputs`, data sets, logged models", "Jobmeter records no data sets and models."),
    Gap("Model registry, prompts, gateway, webhooks", "Jobmeter measures jobs.", GapStatus.NEVER),
    Gap("Traces", "Send spans by OpenTelemetry's protocol."),
)


MLFLOW = PathDialect(
    name=NAME,
    title="MLflow tracking API, 3.17",
    schemes=(TRACE, BEARER, BASIC),
    operations=operations_of(f"{__name__}.operations"),
    gaps=GAPS,
    render=errors.render,
    wrong_method="This path takes {allowed}, not {method}.",
    wrong_path="Jobmeter has no {path}: it records runs, their parameters, tags and metrics.",
    owns=owns,
)
