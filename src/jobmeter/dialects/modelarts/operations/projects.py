"""GET /v3/projects: called by the SDK for a program that names a region and no project."""

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Operation, Parameter, Steps, only
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.arguments import query_text
from jobmeter.model.series import DEFAULT_PROJECT

PROJECTS_PATH = "/v3/projects"


def list_projects(call: Call, context: Context) -> Steps:
    """Return exactly one project, for any requested name: the SDK rejects any other number."""
    project = context.project or DEFAULT_PROJECT
    one = {"id": project, "name": query_text(call, "name") or project, "enabled": True, "is_domain": False}
    return only(answer({"projects": [one]}, context))


OPERATIONS = (
    Operation(
        name="KeystoneListProjects",
        by_resource=True,
        action="jobs:read",
        method="GET",
        path=PROJECTS_PATH,
        answer=list_projects,
        parameters=(Parameter("name", "query", "A region; every region has the same project."),),
        text=(
            "`{projects: [{id, name}]}` with one project: that of the key, `default` for a key that sees all. It "
            "belongs to IAM; the SDK asks for it when it is given a region and no project."
        ),
    ),
)
