"""How calls have ended."""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, NamedTuple, NoReturn, Optional

from ._names import CODES, Call, Future, RpcError, StatusCode


class Metadatum(NamedTuple):
    """A key and a value of metadata."""

    key: str
    value: Any


def with_names(pairs: tuple[tuple[str, Any], ...]) -> tuple[Metadatum, ...]:
    return tuple(Metadatum(*pair) for pair in pairs)


class Ended:
    """The end of a call: a status, and what came with the answer."""

    __slots__ = ("code", "details", "is_cancelled", "_native")

    def __init__(self, native: Any) -> None:
        self.code: StatusCode = CODES[native.code]
        self.details: str = native.details
        # By the caller.
        self.is_cancelled = False
        self._native = native

    @classmethod
    def local(cls, code: StatusCode, details: str, is_cancelled: bool = False) -> Ended:
        """The end of a call that this side has ended."""
        ended = cls.__new__(cls)
        ended.code, ended.details, ended.is_cancelled = code, details, is_cancelled
        ended._native = None
        return ended

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        return () if self._native is None else with_names(self._native.initial_metadata())

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        return () if self._native is None else with_names(self._native.trailing_metadata())


class EndedCall(Call, Future):
    """A call that has ended, whether with OK or not."""

    def __init__(self, ended: Ended, response: Any = None) -> None:
        self._ended = ended
        self._response = response

    def code(self) -> StatusCode:
        return self._ended.code

    def details(self) -> str:
        return self._ended.details

    def debug_error_string(self) -> str:
        return f"{self._ended.code.name}: {self._ended.details}"

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        return self._ended.initial_metadata()

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        return self._ended.trailing_metadata()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> Optional[float]:
        return None

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        fn(self)

    def result(self, timeout: Optional[float] = None) -> Any:
        return self._response

    def exception(self, timeout: Optional[float] = None) -> Optional[Exception]:
        return None

    def traceback(self, timeout: Optional[float] = None) -> Optional[types.TracebackType]:
        return None

    def __repr__(self) -> str:
        # Programs look for parts of it: the lines are those of grpcio.
        lines = [
            f"<{type(self).__name__} of RPC that terminated with:",
            f"\tstatus = {self.code()}",
            f'\tdetails = "{self.details()}"',
        ]
        if self.code() is not StatusCode.OK:
            lines.append(f'\tdebug_error_string = "{self.debug_error_string()}"')
        return "\n".join([*lines, ">"])

    __str__ = __repr__


class FailedCall(RpcError, EndedCall):
    """A call that has ended with another status than OK, as an error."""

    def __init__(self, ended: Ended) -> None:
        RpcError.__init__(self, ended.code, ended.details)
        EndedCall.__init__(self, ended)

    def __reduce__(self) -> tuple[Any, ...]:
        return failed_call, (self.code(), self.details())

    # Not those of an exception.
    __repr__ = EndedCall.__repr__
    __str__ = EndedCall.__repr__

    def cancelled(self) -> bool:
        return self._ended.is_cancelled

    def result(self, timeout: Optional[float] = None) -> NoReturn:
        raise self

    def exception(self, timeout: Optional[float] = None) -> Exception:
        return self

    def traceback(self, timeout: Optional[float] = None) -> Optional[types.TracebackType]:
        try:
            raise self
        except RpcError:
            return sys.exc_info()[2]


def failed_call(code: StatusCode, details: str) -> FailedCall:
    """The error of a call that this side has ended."""
    return FailedCall(Ended.local(code, details))
