"""Ydb.Debug.V1.DebugService on a gateway: it needs no database, and is what it is elsewhere."""

from test_compat_ydb_ping import (  # noqa: F401
    stub,
    test_a_plain_ping_is_answered_with_nothing,
    test_a_stream_may_be_left,
    test_a_stream_tells_the_time_of_each_answer,
    test_a_stream_without_a_ping_ends_well,
    test_streams_and_calls_at_once,
    test_what_is_no_ping,
    test_write_then_read_on_one_stream,
)
