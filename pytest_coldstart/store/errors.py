"""What can go wrong with the store. Every message says what to do about it."""

from __future__ import annotations


class StoreError(RuntimeError):
    """The store or one of its files cannot be used."""


class StoreLocked(StoreError):
    """Another process holds the database, and went on holding it for as long as we waited."""


class StoreNewer(StoreError):
    """A later version of this tool wrote the database or the file."""


def why(error: OSError) -> str:
    """The operating system's words for *error*."""
    return error.strerror or str(error)
