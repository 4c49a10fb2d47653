"""Options of channels."""

import logging

import pelton_grpc
import pytest
from pelton_grpc import _options


@pytest.mark.parametrize(
    "option, is_named",
    [
        (("grpc.enable_http_proxy", 0), False),
        (("grpc.enable_http_proxy", 1), True),
        (("grpc.enable_retries", 0), False),
        (("grpc.enable_retries", 1), True),
        (("grpc.use_local_subchannel_pool", 1), False),
        (("grpc.use_local_subchannel_pool", 0), True),
        (("SingleThreadedUnaryStream", 1), True),
        (("grpc.keepalive_time_ms", 1000), True),
        (("grpc.max_receive_message_length", -1), False),
        (("grpc.default_authority", "name"), False),
    ],
)
def test_an_option_without_effect_is_named_once(option, is_named, caplog, monkeypatch):
    monkeypatch.setattr(_options, "_warned", set())
    with caplog.at_level(logging.WARNING, logger="pelton_grpc"):
        for _ in range(2):
            pelton_grpc.insecure_channel("127.0.0.1:1", options=[option]).close()
    named = [record.getMessage() for record in caplog.records]
    assert named == [f"pelton_grpc has no channel option {option[0]}: it is ignored"] * is_named
