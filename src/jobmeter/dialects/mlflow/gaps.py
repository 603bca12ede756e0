"""Parts of MLflow's REST API that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Artifacts (`mlflow-artifacts`, `artifacts/list`)",
        "501 with a message: Jobmeter stores no files. With the token of `jobmeter run` the client writes them to "
        "`mlruns` in its folder.",
    ),
    Gap("`experiments/search`, `update`, `delete`, `restore`, tags of experiments", "An experiment is only a name."),
    Gap("`runs/restore`, `runs/delete-tag`", "A deleted run stays deleted; a tag can be replaced.", GapStatus.NOT_YET),
    Gap("`runs/log-inputs`, `runs/outputs`, data sets, logged models", "Jobmeter does not record data sets or models."),
    Gap("Model registry, prompts, gateway, webhooks", "Jobmeter measures jobs.", GapStatus.NEVER),
    Gap("Traces", "Send spans by OpenTelemetry's protocol."),
)
