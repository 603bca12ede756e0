"""Built-in policies that a key can have by name: the names in the vendor's documents, and their permissions."""

from collections.abc import Mapping
from typing import Any

_PAI = ("pai", "paidlc", "eas", "eflo")
_ARMS = ("arms", "xtrace", "paillmtrace")
_EVERYTHING = ("*",)
_READS = ("Get*", "List*", "Describe*")


def _allow(services: tuple[str, ...], operations: tuple[str, ...]) -> Mapping[str, Any]:
    actions = [f"{service}:{operation}" for service in services for operation in operations]
    return {"Version": "1", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}


SYSTEM_POLICIES: Mapping[str, Mapping[str, Any]] = {
    "AliyunPAIFullAccess": _allow(_PAI, _EVERYTHING),
    "AliyunPAIReadOnlyAccess": _allow(_PAI, _READS),
    "AliyunARMSFullAccess": _allow(_ARMS, _EVERYTHING),
    "AliyunARMSReadOnlyAccess": _allow(_ARMS, _READS),
    "JobmeterFullAccess": _allow(_EVERYTHING, _EVERYTHING),
}
"""Documents of the built-in policies by name."""
