"""The pods with known jobs, stored across a restart of the agent, when the server may be unavailable."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile
from jobmeter.model.pod import PodReplica

_FILE = "pods.json"
_MOST = 2_000
"""Pods that are remembered; those that were learnt of longest ago are forgotten first."""


class PodDirectory:
    """Stores pods in a folder, None: in memory only. Not for concurrent changes."""

    def __init__(self, folder: Path | None) -> None:
        self._file = StateFile(
            folder / _FILE if folder else None,
            msgspec.json.Decoder(list[PodReplica]),
            "%s cannot be read (%s): all pods are requested from the server again",
            logging.WARNING,
        )
        self._pods = {one.uid: one for one in self._file.load() or ()}

    def __bool__(self) -> bool:
        return bool(self._pods)

    def get(self, uid: str) -> PodReplica | None:
        """The replica of the pod, None where unknown."""
        return self._pods.get(uid)

    def add(self, found: Iterable[PodReplica]) -> None:
        """Store these, replacing entries of the same pods."""
        fresh = {one.uid: one for one in found}
        if not fresh:
            return
        pods = {**{uid: one for uid, one in self._pods.items() if uid not in fresh}, **fresh}
        self._pods = dict(list(pods.items())[-_MOST:])
        self._file.save(list(self._pods.values()))
