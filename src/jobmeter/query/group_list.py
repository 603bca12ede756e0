"""List the resource groups that the records of nodes and jobs name."""

from collections.abc import Sequence

from jobmeter.access.principal import Scope
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobGroup, Node
from jobmeter.model.order import make_natural_key
from jobmeter.query.group import ResourceGroup, ResourceGroupsQuestion
from jobmeter.query.inventory import UNKNOWN, list_device_types
from jobmeter.registry.base import Registry


def list_resource_groups(registry: Registry, question: ResourceGroupsQuestion, scope: Scope) -> Sequence[ResourceGroup]:
    """Answer a ``ResourceGroupsQuestion``."""
    if scope.job is not None:
        return []
    projects = scope.intersect_projects(None)

    def selected(project: str, name: str) -> bool:
        return bool(name) and (not question.names or name in question.names) and scope.shows_group(project, name)

    nodes = group_pairs(
        (node.resource_group, node)
        for node in registry.list_nodes(projects)
        if selected(node.project, node.resource_group)
    )
    jobs = group_pairs((one.name, one) for one in registry.list_job_groups(projects) if selected(one.project, one.name))
    names = sorted({*nodes, *jobs}, key=lambda name: (make_natural_key(name), name))
    return [_group(name, nodes.get(name, []), jobs.get(name, [])) for name in names]


def _group(name: str, nodes: Sequence[Node], jobs: Sequence[JobGroup]) -> ResourceGroup:
    joined = [node.first_seen for node in nodes if node.first_seen is not None]
    return ResourceGroup(
        name=name,
        nodes=len({(node.cluster, node.name) for node in nodes}),
        clusters=tuple(sorted({node.cluster for node in nodes} - {""}, key=make_natural_key)),
        device_types=tuple(sorted({kind for node in nodes for kind in list_device_types(node.info)} - {UNKNOWN})),
        jobs=sum(one.jobs for one in jobs),
        workspaces=tuple(sorted({workspace for one in jobs for workspace in one.workspaces})),
        created=min([*joined, *(one.created for one in jobs)], default=None),
        updated=max([*joined, *(one.updated for one in jobs)], default=None),
    )
