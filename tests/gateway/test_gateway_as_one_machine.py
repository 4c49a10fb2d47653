"""What a gateway shares with a server of one machine, proved by the same tests: the default
database has one bucket here, so that all its keys can change at once."""

from test_compat_kvstore import (  # noqa: F401
    client,
    test_answers_are_of_no_bytes_at_all,
    test_every_method_and_every_status,
    test_many_clients_at_once,
    test_of_many_creates_one_succeeds,
    test_the_keys_are_those_of_the_default_database,
    test_values_come_back_whole,
    test_what_only_this_server_refuses_has_words,
)
from test_framed_protocols import (  # noqa: F401
    connection,
    test_srpc_serves_the_api,
    test_the_whole_key_value_api_is_served_by_long_and_short_names,
)
from test_keyvalue import (  # noqa: F401
    test_a_batch_that_holds_what_is_never_allowed_does_nothing,
    test_a_batch_whose_answer_would_be_too_large_does_nothing,
    test_a_malformed_message_is_refused,
    test_a_missing_key_is_an_answer,
    test_a_wrong_field_is_named,
    test_an_atomic_batch_does_all_or_nothing,
    test_an_empty_batch_is_answered,
    test_an_expiry_is_kept_or_cleared,
    test_an_increment_of_what_is_no_number_changes_nothing,
    test_an_increment_that_overflows_changes_nothing,
    test_an_overwrite_has_a_higher_version_and_returns_what_was_there,
    test_an_unknown_database_is_not_found,
    test_append,
    test_append_up_to_the_largest_value,
    test_delete,
    test_delete_on_a_condition,
    test_empty_key_and_empty_value,
    test_increment,
    test_operations_of_an_independent_batch_fail_alone,
    test_put_and_get,
    test_put_if_the_key_exists_or_not,
    test_put_on_a_value,
    test_put_on_a_version,
    test_time_to_live,
    test_unknown_fields_are_skipped,
    test_what_there_is_not_says_so,
)
from test_pipe import (  # noqa: F401
    test_a_cancelled_pipe_leaves_a_server_that_goes_on,
    test_a_caller_that_does_not_read_is_slowed_down_and_loses_nothing,
    test_a_message_that_breaks_the_rules_ends_the_call,
    test_a_refused_batch_keeps_its_place_and_hinders_nobody,
    test_a_transaction_takes_the_list_that_its_comparisons_choose,
    test_a_transfer_between_two_keys_is_never_half_done,
    test_a_wrong_transaction_says_what_is_wrong,
    test_an_idle_pipe_says_soon_what_is_done,
)
from test_standard_services import (  # noqa: F401
    health,
    test_check,
    test_check_of_an_unknown_service,
    test_many_watches_at_once,
    test_watch,
)
