"""Split the bytes of a file into lines of limited size."""

from dataclasses import dataclass

from jobmeter.model.log import MAX_TEXT_BYTES, cut_bytes


@dataclass(frozen=True, slots=True)
class LinePiece:
    """Text of a line, and its length in the file with its end."""

    text: str
    length: int


class LineCutter:
    """Cuts its input into lines. Buffers at most the first ``most_bytes`` of an unfinished line."""

    def __init__(self, most_bytes: int = MAX_TEXT_BYTES) -> None:
        self._most = most_bytes
        self._begun = bytearray()
        self.pending = 0
        """Bytes of the line that has no end yet."""

    def feed(self, data: bytes) -> list[LinePiece]:
        """Return the lines that end in these bytes."""
        *whole, rest = data.split(b"\n")
        found = []
        for part in whole:
            self._add(part)
            found.append(self._take(1))
        self._add(rest)
        return found

    def finish(self) -> LinePiece | None:
        """Return the unfinished line of a file that no longer grows; None without one."""
        return self._take(0) if self.pending else None

    def _add(self, part: bytes) -> None:
        self.pending += len(part)
        self._begun += part[: max(0, self._most + 1 - len(self._begun))]

    def _take(self, end: int) -> LinePiece:
        begun, length = bytes(self._begun), self.pending
        self._begun.clear()
        self.pending = 0
        if length > self._most:
            return LinePiece(cut_bytes(begun, length), length + end)
        return LinePiece(begun.removesuffix(b"\r").decode(errors="replace"), length + end)
