"""Read a dump of PyTorch's flight recorder from standard input, and print the progress of each process group.

``python -m jobmeter.collect.stacks.unpickle < DUMP`` runs in a process of its own, with limits of time and memory,
because the pickle is untrusted. It may contain only plain values.
"""

import io
import pickle
import resource
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from jobmeter.collect.stacks.python import clip
from jobmeter.model.stacks import MOST_GROUPS, GroupProgress

MOST_MEMORY = 1024 * 1024 * 1024
MOST_SECONDS = 5
MOST_BYTES = 64 * 1024 * 1024


class PlainUnpickler(pickle.Unpickler):
    """Reads lists, dictionaries, texts and numbers. Raises UnpicklingError for anything else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"it names {module}.{name}, and may hold plain values alone"[:200])

    def persistent_load(self, _pid: object) -> NoReturn:
        """Refuse references to objects outside of the pickle."""
        raise pickle.UnpicklingError("it refers to something outside of itself")


def list_progress(dump: object) -> list[GroupProgress]:
    """Return the progress in each process group of a dump of version 2; empty if the dump has none."""
    if not isinstance(dump, Mapping):
        return []
    configs = _mapping(dump.get("pg_config"))
    operations: dict[str, tuple[str, str]] = {}
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            operations[str(entry.get("pg_id"))] = _group_of(entry), str(entry.get("profiling_name") or "")
    found = []
    for key, status in list(_mapping(dump.get("pg_status")).items())[:MOST_GROUPS]:
        name, operation = operations.get(str(key), (str(key), ""))
        config = _mapping(configs.get(name))
        found.append(
            GroupProgress(
                group=clip(name),
                description=clip(str(config.get("desc") or "")),
                members=_members(config.get("ranks")),
                enqueued=_number(_mapping(status).get("last_enqueued_collective")),
                completed=_number(_mapping(status).get("last_completed_collective")),
                operation=clip(operation.removeprefix("nccl:")),
            )
        )
    return found


def _group_of(entry: Mapping[Any, Any]) -> str:
    group = entry.get("process_group")
    return str(group[0]) if isinstance(group, tuple | list) and group else str(entry.get("pg_id"))


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _members(ranks: object) -> int:
    """Return the number of ranks in a text such as ``[0, 1, 2]``."""
    return sum(word.strip().isdigit() for word in str(ranks or "").strip("[]").split(",")[:1_000_000])


def _number(value: object) -> int:
    try:
        return max(int(str(value)), -1)
    except ValueError:
        return -1


def main() -> None:
    """Print the progress in the dump. Exits with status 1 and a sentence if the input is no dump."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        sys.exit(f"it has more than {MOST_BYTES} bytes")
    try:
        found = list_progress(PlainUnpickler(io.BytesIO(data)).load())
    except MemoryError:
        sys.exit("it needs too much memory")
    except Exception as error:  # noqa: BLE001 - a hostile pickle may raise anything
        sys.exit(f"{type(error).__name__}: {error}"[:300])
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
