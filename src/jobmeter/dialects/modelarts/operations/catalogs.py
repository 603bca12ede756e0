"""ShowTrainingJobFlavors and ShowTrainingJobEngines: instance types and engines of the project's jobs.

Jobmeter offers no machines and no images, so both read the newest ``MOST_JOBS`` jobs.
"""

from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Parameter, Steps, execute
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.arguments import project_of, query_choice
from jobmeter.dialects.modelarts.flavors import TYPES, flavor_info, flavor_type
from jobmeter.dialects.modelarts.job_body import extra_of
from jobmeter.dialects.modelarts.operations.common import operation
from jobmeter.model.instance_types import MOST_JOBS, named_types, type_id
from jobmeter.model.job import InstanceType, JobFilter


def show_training_job_flavors(call: Call, context: Context) -> Steps:
    """Return the instance types of the project's jobs, each once."""
    question = JobFilter(projects=frozenset({project_of(call, context)}), limit=MOST_JOBS)
    only = query_choice(call, "flavor_type", TYPES, "")
    page = yield from execute(question)
    flavors = [_flavor(kind) for kind, _ in named_types(page.jobs) if only in {"", flavor_type(kind)}]
    return answer({"total_count": len(flavors), "flavors": flavors}, context)


def show_training_job_engines(call: Call, context: Context) -> Steps:
    """Return the engines that the records of the project's jobs name, each once."""
    page = yield from execute(JobFilter(projects=frozenset({project_of(call, context)}), limit=MOST_JOBS))
    engines: dict[str, dict[str, Any]] = {}
    for job in reversed(page.jobs):
        algorithm = extra_of(job).get("algorithm")
        engine = algorithm.get("engine") if isinstance(algorithm, dict) else None
        if isinstance(engine, dict) and engine:
            engines["\0".join(str(engine.get(key, "")) for key in ("engine_id", "engine_name", "engine_version"))] = (
                engine
            )
    items = [engine for _, engine in sorted(engines.items())]
    return answer({"total": len(items), "items": items}, context)


def _flavor(kind: InstanceType) -> dict[str, Any]:
    return {
        "flavor_id": type_id(kind),
        "flavor_name": kind.name or kind.id,
        "flavor_type": flavor_type(kind),
        "flavor_info": flavor_info(kind),
    }


OPERATIONS = (
    operation(
        "ShowTrainingJobFlavors",
        "GET",
        "training-job-flavors",
        show_training_job_flavors,
        (
            f"`{{total_count, flavors}}`: the instance types of the project's newest {MOST_JOBS} jobs. Sizes are in "
            "the largest unit (powers of 1024) that leaves a whole number."
        ),
        Parameter("flavor_type", "query", "`CPU`, `GPU` or `Ascend`. Default: all."),
        by_resource=True,
    ),
    operation(
        "ShowTrainingJobEngines",
        "GET",
        "training-job-engines",
        show_training_job_engines,
        (
            f"`{{total, items}}`: what the newest {MOST_JOBS} jobs of the project keep as "
            '`extra["modelarts"]["algorithm"]["engine"]`, each once.'
        ),
        by_resource=True,
    ),
)
