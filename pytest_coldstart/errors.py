"""What can end a boot: the engine's failure, which is data, and our own, which is an error."""

from __future__ import annotations


class BootFailed(RuntimeError):
    """The engine failed. ``kind``: exit, exec, timeout, deadline, hang, foreign_port; down where it is gone already."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class HarnessFault(RuntimeError):
    """A fault of this tool or of the host, not of the engine: no verdict on the cell."""
