"""What proves who this side is, and who the server is: objects of grpcio, and our own of the same
form."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple, Optional

from ._ended import failed_call
from ._names import HAS_GRPCIO, StatusCode
from ._plugins import Answer, Plugin, Question


class SslChannelCredentials(NamedTuple):
    """Certificates in PEM: whom to believe, and what this side shows."""

    root_certificates: Optional[bytes] = None
    private_key: Optional[bytes] = None
    certificate_chain: Optional[bytes] = None


def ssl_channel_credentials(
    root_certificates: Optional[bytes] = None,
    private_key: Optional[bytes] = None,
    certificate_chain: Optional[bytes] = None,
) -> Any:
    """Credentials for a channel with TLS, as `grpc.ssl_channel_credentials`; an object of grpcio
    where that is installed.

    Raises `ValueError` for a key without certificates, and for certificates without a key.
    """
    if (private_key is None) != (certificate_chain is None):
        raise ValueError("a private key and a chain of certificates go together: give both")
    if HAS_GRPCIO:
        import grpc

        return grpc.ssl_channel_credentials(root_certificates, private_key, certificate_chain)
    return SslChannelCredentials(root_certificates, private_key, certificate_chain)


def default_roots() -> Optional[bytes]:
    """Returns whom to believe where nobody is named; `None`: whom the system believes."""
    path = os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def unpack(credentials: Any) -> tuple[SslChannelCredentials, list[Plugin]]:
    """Returns what the credentials of a channel consist of."""
    if isinstance(credentials, SslChannelCredentials):
        return credentials, []
    inner = getattr(credentials, "_credentials", credentials)
    plugins: list[Plugin] = []
    # Those of a channel, with those of its calls around them.
    while hasattr(inner, "_channel_credentials"):
        for each in inner._call_credentialses:
            plugins += plugins_of(each)
        inner = inner._channel_credentials
    if not hasattr(inner, "_pem_root_certificates"):
        raise ValueError(
            f"pelton_grpc has TLS with certificates only, and {type(inner).__name__} is something "
            "else: use grpc.ssl_channel_credentials or pelton_grpc.ssl_channel_credentials"
        )
    if getattr(inner, "_private_key_signer", None) is not None:
        raise ValueError("pelton_grpc signs with a private key in PEM only, not by a function")
    # grpcio has the key and the chain in an object of its own in some versions.
    chain = inner._certificate_chain
    return SslChannelCredentials(inner._pem_root_certificates, inner._private_key, chain), plugins


def plugins_of(credentials: Any) -> list[Plugin]:
    """Returns what is asked for the metadata of each call."""
    inner = getattr(credentials, "_credentials", credentials)
    if hasattr(inner, "_call_credentialses"):
        return [plugin for each in inner._call_credentialses for plugin in plugins_of(each)]
    if hasattr(inner, "_metadata_plugin"):
        return [inner._metadata_plugin]
    raise ValueError(f"pelton_grpc cannot use {type(inner).__name__} as credentials of a call")


class CallAuthority:
    """What a channel asks for the metadata of each call."""

    def __init__(self, host: str, is_secure: bool, plugins: list[Plugin]) -> None:
        self._host = host
        self.is_secure = is_secure
        self.plugins = plugins

    def question(self, path: str, credentials: Any) -> Question:
        """Returns what is asked for a call, and whom.

        Raises the error of a call over a channel without TLS.
        """
        if not self.is_secure:
            raise failed_call(
                StatusCode.UNAUTHENTICATED,
                "credentials of a call are sent over TLS only: use a secure channel",
            )
        plugins = self.plugins
        if credentials is not None:
            plugins = plugins + plugins_of(credentials)
        service, _, method = path.rpartition("/")
        return Question(f"https://{self._host}{service}", method, plugins)

    def metadata(
        self, path: str, metadata: Any, credentials: Any, timeout: Optional[float]
    ) -> tuple[list[Any], Optional[float]]:
        """Returns the metadata of a call, with those of the credentials, and what is left of its
        timeout. Waits for the plugins."""
        question = self.question(path, credentials)
        left = TimeLeft(timeout)
        all_metadata = list(metadata or ())
        for plugin in question.plugins:
            answer = Answer()
            question.ask(plugin, answer.callback)
            all_metadata += answer.wait(left.seconds())
        return all_metadata, left.seconds()


class TimeLeft:
    """What is left of the timeout of a call, for all that it does."""

    __slots__ = ("_deadline",)

    def __init__(self, timeout: Optional[float]) -> None:
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def seconds(self) -> Optional[float]:
        if self._deadline is None:
            return None
        return max(self._deadline - time.monotonic(), 0.0)
