"""Vendors of accelerators: only this module names them."""

import re
from functools import cache
from typing import Any

from jobmeter.collect.accelerators.amd.vendor import VENDOR as AMD
from jobmeter.collect.accelerators.ascend.vendor import VENDOR as ASCEND
from jobmeter.collect.accelerators.neuron.vendor import VENDOR as NEURON
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR as NVIDIA
from jobmeter.collect.accelerators.vendor import Vendor
from jobmeter.collect.accelerators.visible import SCHEDULER_VARIABLES
from jobmeter.model.catalog import find
from jobmeter.plugins import PluginKind, load_plugins, report_failure, select_working

VENDORS: tuple[Vendor[Any], ...] = (NVIDIA, AMD, ASCEND, NEURON)
"""Vendors of this package."""


def list_vendors() -> tuple[Vendor[Any], ...]:
    """Return the vendors of this package and of plug-ins. The first vendor of a prefix has plain names: ``gpu0``."""
    return *VENDORS, *_plugin_vendors()


@cache
def _plugin_vendors() -> tuple[Vendor[Any], ...]:
    """Return the vendors of plug-ins. A vendor with an unknown metric is logged and left out."""
    found: list[Vendor[Any]] = []
    for plugin in select_working(load_plugins(PluginKind.VENDORS, {vendor.name for vendor in VENDORS})):
        vendor: Vendor[Any] = plugin.part
        unknown = [name for name in (f"{vendor.prefix}.state", *vendor.metrics) if find(name) is None]
        if unknown:
            report_failure(plugin, f"unknown metric {unknown[0]!r}; use the prefix gpu or npu, and the catalogue")
        else:
            found.append(vendor)
    return tuple(found)


def list_device_variables() -> list[str]:
    """Return the variables that name devices of a process, schedulers' first, each vendor's most specific first."""
    own = (variable.name for vendor in list_vendors() for variable in vendor.variables)
    return list(dict.fromkeys((*SCHEDULER_VARIABLES, *own)))


def is_device_resource(name: str) -> bool:
    """Return True if a resource of Kubernetes is an accelerator: ``nvidia.com/gpu``, ``huawei.com/Ascend910``."""
    kinds = [kind for vendor in list_vendors() for kind in vendor.resource_kinds]
    pattern = "|".join(("gpu", r"gpu\.shared", "npu", *kinds))
    return re.fullmatch(rf"[a-z0-9.-]+/(?:{pattern})", name, re.IGNORECASE) is not None


def find_resource_vendor(name: str) -> Vendor[Any] | None:
    """Return the vendor of a resource of Kubernetes or of the driver of a claim; None if it is of no vendor here."""
    domain = name.partition("/")[0]
    return next((vendor for vendor in list_vendors() if f".{domain}".endswith(f".{vendor.domain}")), None)
