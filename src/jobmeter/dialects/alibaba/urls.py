"""The URL form ``/api/{Product}/{version}/{Action}``, which plain HTTP clients use beside the paths of the SDKs.

All parameters, those of the path included, are in the query (GET, DELETE) or in a JSON body (POST).
"""

import re
from dataclasses import dataclass

_FORM = re.compile(r"/api/(?P<product>[A-Za-z][A-Za-z-]*)/(?P<version>\d{4}-\d{2}-\d{2})/(?P<action>[A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class UrlForm:
    """What such a path names."""

    product: str
    version: str
    action: str


def url_form(raw_path: str) -> UrlForm | None:
    """What the path names; None when it is not of this form."""
    found = _FORM.fullmatch(raw_path)
    return UrlForm(found["product"], found["version"], found["action"]) if found else None


def is_url_form(raw_path: str) -> bool:
    """True for a path of this form."""
    return _FORM.fullmatch(raw_path) is not None
