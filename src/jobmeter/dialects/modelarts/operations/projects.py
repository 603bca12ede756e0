"""GET /v3/projects: called by the SDK for a program that names a region and no project."""

from typing import Annotated

from jobmeter.dialects.base import Steps
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.requests import operation
from jobmeter.model.series import DEFAULT_PROJECT

PROJECTS_PATH = "/v3/projects"


@operation(f"GET {PROJECTS_PATH}", "jobs:read", by_resource=True)
class KeystoneListProjects(Request, frozen=True, kw_only=True):
    """`{projects: [{id, name}]}` with one project: the key's project, or `default` for a key of all projects.

    The call belongs to IAM. The SDK sends it if it has a region and no project, and requires exactly one project.
    """

    name: Annotated[str, "A region; every region has the same project."] = ""

    def _steps(self) -> Steps:
        yield from ()
        project = self.context.project or DEFAULT_PROJECT
        one = {"id": project, "name": self.name or project, "enabled": True, "is_domain": False}
        return answer({"projects": [one]}, self.context)
