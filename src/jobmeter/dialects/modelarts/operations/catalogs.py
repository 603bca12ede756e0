"""ShowTrainingJobFlavors and ShowTrainingJobEngines: instance types and engines of the project's jobs.

Jobmeter offers no machines and no images, so both read the newest ``MOST_JOBS`` jobs.
"""

from typing import Annotated, Any

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.flavors import TYPES, choose_flavor_type, make_flavor_info
from jobmeter.dialects.modelarts.job_body import get_extra
from jobmeter.dialects.modelarts.requests import ModelArtsProjectRequest, operation
from jobmeter.model.instance_types import MOST_JOBS, collect_named_types, make_type_id
from jobmeter.model.job import InstanceType, JobFilter


@operation("GET /v2/{project_id}/training-job-flavors", "jobs:read", by_resource=True)
class ShowTrainingJobFlavors(ModelArtsProjectRequest, frozen=True, kw_only=True):
    """`{total_count, flavors}`: the instance types of the project's newest jobs (at most 1,000), each once.

    Sizes are in the largest unit (powers of 1024) in which they are a whole number.
    """

    flavor_type: Annotated[str, "Default: all.", Choice(TYPES)] = ""

    def _steps(self) -> Steps:
        page = yield from ask(JobFilter(projects=frozenset({self.project}), limit=MOST_JOBS))
        flavors = [
            _flavor(kind)
            for kind, _ in collect_named_types(page.jobs)
            if self.flavor_type in {"", choose_flavor_type(kind)}
        ]
        return answer({"total_count": len(flavors), "flavors": flavors}, self.context)


@operation("GET /v2/{project_id}/training-job-engines", "jobs:read", by_resource=True)
class ShowTrainingJobEngines(ModelArtsProjectRequest, frozen=True, kw_only=True):
    """`{total, items}`: the engines in the records of the project's newest jobs (at most 1,000), each once.

    An engine is a job's `extra["modelarts"]["algorithm"]["engine"]`.
    """

    def _steps(self) -> Steps:
        page = yield from ask(JobFilter(projects=frozenset({self.project}), limit=MOST_JOBS))
        engines: dict[str, dict[str, Any]] = {}
        for job in reversed(page.jobs):
            algorithm = get_extra(job).get("algorithm")
            engine = algorithm.get("engine") if isinstance(algorithm, dict) else None
            if isinstance(engine, dict) and engine:
                names = (str(engine.get(key, "")) for key in ("engine_id", "engine_name", "engine_version"))
                engines["\0".join(names)] = engine
        items = [engine for _, engine in sorted(engines.items())]
        return answer({"total": len(items), "items": items}, self.context)


def _flavor(kind: InstanceType) -> dict[str, Any]:
    return {
        "flavor_id": make_type_id(kind),
        "flavor_name": kind.name or kind.id,
        "flavor_type": choose_flavor_type(kind),
        "flavor_info": make_flavor_info(kind),
    }
