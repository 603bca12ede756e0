"""Tags and notes that people put on a job."""

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import parse_time

MOST_TAGS, MOST_NOTES = 50, 200
"""Most tags, and most notes, of a job."""
LONGEST_TAG, LONGEST_NOTE, LONGEST_AUTHOR = 64, 4_000, 100
"""Most characters of a tag, a note, and the name of an author."""


class JobTag(msgspec.Struct, frozen=True, kw_only=True):
    """Short label of a job. ``author`` is the given name, ``by`` the name of the key, ``created`` in epoch ms."""

    tag: str
    author: str = ""
    by: str = ""
    created: int = 0


class JobNote(msgspec.Struct, frozen=True, kw_only=True):
    """Text about a job, or about a moment of the job. ``id`` never changes.

    ``time`` is the moment in epoch milliseconds, None for a note about the whole job. ``author`` is the given name,
    ``by`` the name of the key that wrote the note, ``created`` the time of writing.
    """

    id: str
    text: str
    time: int | None = None
    author: str = ""
    by: str = ""
    created: int = 0


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """Tags of a job in order of their text, and its notes, the oldest first."""

    tags: list[JobTag] = []
    notes: list[JobNote] = []


class TagChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tags to add to a job and to remove. Adding an existing tag or removing a missing one changes nothing."""

    add: list[str] = []
    remove: list[str] = []
    author: str = ""


class NewNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Note to write: ``time`` is ISO 8601 or epoch milliseconds, None for a note about the whole job."""

    text: str
    time: int | str | None = None
    author: str = ""


def check_tag(tag: str, field: str = "tag") -> str:
    """Return a tag without surrounding spaces. Raises InvalidRequestError for an invalid tag.

    A tag is printable text of 1 to 64 characters without a comma, and begins with neither ``+`` nor ``-``.
    """
    text = tag.strip()
    if not 1 <= len(text) <= LONGEST_TAG:
        raise InvalidRequestError(f"a tag has 1 to {LONGEST_TAG} characters, this one has {len(text)}", field)
    if not text.isprintable() or "," in text or text[0] in "+-":
        message = f"tag {text!r}: use printable characters without commas, and begin with neither + nor -"
        raise InvalidRequestError(message, field)
    return text


def check_author(author: str) -> str:
    """Return the name of an author without surrounding spaces. Raises InvalidRequestError."""
    text = author.strip()
    if len(text) > LONGEST_AUTHOR or not text.isprintable():
        raise InvalidRequestError(f"an author is printable text of at most {LONGEST_AUTHOR} characters", "author")
    return text


def check_note(note: NewNote) -> tuple[str, int | None]:
    """Return the text of a note without surrounding spaces, and its time. Raises InvalidRequestError."""
    text = note.text.strip()
    if not 1 <= len(text) <= LONGEST_NOTE:
        raise InvalidRequestError(f"a note has 1 to {LONGEST_NOTE} characters, this one has {len(text)}", "text")
    return text, None if note.time is None else parse_time(note.time, "time")
