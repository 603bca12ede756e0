"""Label sets of series."""

from collections.abc import Collection, Iterable

from jobmeter.promql.nodes import NAME

Labels = tuple[tuple[str, str], ...]
"""The labels of a series with a value, sorted by their names."""


def make_labels(pairs: Iterable[tuple[str, str]]) -> Labels:
    """Return labels sorted by name, without empty values: an empty value means that the label is missing."""
    return tuple(sorted((name, value) for name, value in pairs if value))


def drop_labels(labels: Labels, names: Collection[str]) -> Labels:
    """Return the labels except these."""
    return tuple([one for one in labels if one[0] not in names])


def keep_labels(labels: Labels, names: Collection[str]) -> Labels:
    """Return the labels with these names."""
    return tuple([one for one in labels if one[0] in names])


def get_value(labels: Labels, name: str) -> str:
    """Return the value of a label; an empty text if it is missing."""
    for one, value in labels:
        if one == name:
            return value
    return ""


def set_label(labels: Labels, name: str, value: str) -> Labels:
    """Return the labels with this label set; an empty value removes it."""
    return make_labels([*drop_labels(labels, {name}), (name, value)])


def drop_name(labels: Labels) -> Labels:
    """Return the labels without the name of the metric."""
    if labels and labels[0][0] == NAME:  # nearly always: capital letters alone sort before the underscore
        return labels[1:]
    return drop_labels(labels, {NAME})


def format_labels(labels: Labels) -> str:
    """Return the labels in Prometheus' notation, for messages."""
    name = get_value(labels, NAME)
    inner = ", ".join(f'{one}="{value}"' for one, value in drop_name(labels))
    return f"{name}{{{inner}}}"
