"""Names of operations in policies, such as ``paidlc:GetJobMetrics``.

A name is ``SERVICE:OPERATION``. Some operations have two names in their vendor's documents: a policy may use either.
Services of Alibaba Cloud: https://www.alibabacloud.com/help/en/ram/product-overview/services-that-work-with-ram.
"""

from collections.abc import Mapping

SERVICES: Mapping[str, tuple[str, ...]] = {
    "pai-dlc": ("paidlc", "pai"),
    "pai-studio": ("pai",),
    "eflo": ("eflo", "pai"),
    "eas": ("eas", "pai"),
    "pai-llm-trace": ("paillmtrace", "xtrace"),
    "native": ("jobmeter",),
}
"""Service names of each API's operations, by the API's name. The default is the API's own name."""


def list_services(api: str) -> tuple[str, ...]:
    """Return the service names of an API."""
    return SERVICES.get(api, (api,))


def list_action_names(api: str, operation: str) -> tuple[str, ...]:
    """Return every name of an operation; the first one is displayed."""
    return tuple(f"{service}:{operation}" for service in list_services(api))
