"""Calls that the native half does not have: they have not begun yet, or never will."""

from __future__ import annotations

from typing import Any, Optional

from ._ended import FailedCall
from ._names import StatusCode


class LocalOutcome:
    """How such a call has ended, in the form of the native half's `CallOutcome`."""

    __slots__ = ("code", "details")

    response = None

    def __init__(self, code: StatusCode, details: str) -> None:
        self.code: int = code.value[0]
        self.details = details

    def initial_metadata(self) -> tuple[tuple[str, Any], ...]:
        return ()

    def trailing_metadata(self) -> tuple[tuple[str, Any], ...]:
        return ()


class UnbegunCall:
    """Takes the place of the native half's `UnaryCall` or `StreamCall`. Nothing can be sent or
    received, and nobody is told of anything: whoever puts the true one in its place does that."""

    def __init__(self, outcome: Optional[LocalOutcome] = None) -> None:
        self._outcome = outcome

    @classmethod
    def refused(cls, error: FailedCall) -> UnbegunCall:
        """A call that has failed before it could begin."""
        return cls(LocalOutcome(error.code(), error.details()))

    def is_done(self) -> bool:
        return self._outcome is not None

    def cancel(self) -> bool:
        if self._outcome is not None:
            return False
        self._outcome = LocalOutcome(StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def notify(self, queue: Any, name: int) -> None:
        pass

    def result(self, timeout_s: Optional[float] = None) -> Optional[LocalOutcome]:
        return self._outcome

    end = result

    def receive(self) -> Optional[LocalOutcome]:
        return self._outcome

    def initial_metadata(self) -> tuple[tuple[str, Any], ...]:
        return ()

    def send(self, message: bytes) -> Optional[str]:
        """As of a call that has ended."""
        return ""

    def finish(self) -> None:
        pass

    def poll_receive(self, queue: Any, name: int) -> Optional[LocalOutcome]:
        return self._outcome

    def poll_initial_metadata(self, queue: Any, name: int) -> Optional[tuple[Any, ...]]:
        return None if self._outcome is None else ()

    def poll_send(self, message: bytes, queue: Any, name: int) -> Optional[bool]:
        return None if self._outcome is None else False
