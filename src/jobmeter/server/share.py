"""Share tokens: made for a job that the asker may read."""

from jobmeter.access.scope import Scope
from jobmeter.access.share import issue
from jobmeter.dialects.base import ShareQuestion, ShareToken
from jobmeter.server.services import Services


def share(services: Services, question: ShareQuestion, scope: Scope) -> ShareToken:
    """A token for the job. Raises NotFoundError when there is none that the asker may know of."""
    job = services.executor.head(question.ref, scope)
    return ShareToken(*issue(services.vault, job.project, job.id, services.clock.now_ms(), question.seconds))
