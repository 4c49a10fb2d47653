"""The checker of histories: violations that are planted are found, and random linearizable
histories pass."""

import os
import random

import pytest
from histories import Entry, Operation, Violation, check, step

ROUNDS = int(os.environ.get("PELTON_ROUNDS", "200"))
SEED = int(os.environ.get("PELTON_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


def get(begin, end, outcome):
    return Operation(begin, end, ("get",), outcome)


def put(begin, end, value, version, **more):
    return Operation(begin, end, ("put", value), version, **more)


def increment(begin, end, number, version, **more):
    outcome = None if end is None else Entry(number, version)
    return Operation(begin, end, ("increment", 1), outcome, **more)


def violates(*operations):
    with pytest.raises(Violation):
        check(operations)


def test_a_read_of_what_was_replaced_before_it_began_is_a_violation():
    writes = [put(0, 1, "a", 1), put(2, 3, "b", 2)]
    check([*writes, get(2, 4, Entry("a", 1))])
    violates(*writes, get(4, 5, Entry("a", 1)))


def test_two_reads_that_see_writes_in_two_orders_are_a_violation():
    writes = [put(0, 9, "a", 1), put(0, 9, "b", 2)]
    check([*writes, get(1, 2, Entry("a", 1)), get(3, 4, Entry("b", 2))])
    violates(*writes, get(1, 2, Entry("a", 1)), get(3, 4, Entry("b", 2)), get(5, 6, Entry("a", 1)))


def test_an_acknowledged_write_that_is_not_there_is_a_violation():
    violates(put(0, 1, "a", 1), get(2, 3, None))
    violates(put(0, 1, "a", 1), put(2, 3, "b", 2), get(4, 5, Entry("a", 1)))


def test_a_write_that_was_refused_and_is_there_is_a_violation():
    violates(put(0, 1, "a", 1), get(2, 3, Entry("never written", 5)))


def test_a_write_of_unknown_outcome_happens_at_any_later_time_or_not_at_all():
    unknown = put(0, None, "a", None)
    for seen in (None, Entry("a", 7)):
        check([unknown, get(100, 101, seen)])
    check([unknown, get(1, 2, None), get(100, 101, Entry("a", 7))])


def test_a_write_of_unknown_outcome_does_not_happen_before_it_began():
    violates(get(0, 1, Entry("a", 7)), put(2, None, "a", None))


def test_a_write_of_unknown_outcome_that_happens_after_its_bound_is_a_violation():
    unknown = put(0, None, "a", None, latest=10)
    check([unknown, get(3, 4, None), get(9, 12, Entry("a", 7))])
    check([unknown, get(3, 4, Entry("a", 7)), get(11, 12, Entry("a", 7))])
    violates(unknown, get(11, 12, None), get(13, 14, Entry("a", 7)))


def test_a_write_of_unknown_outcome_that_happens_twice_is_a_violation():
    seen = [get(2, 3, Entry("a", 7)), put(4, 5, "b", 8)]
    check([put(0, None, "a", None), *seen, get(6, 7, Entry("b", 8))])
    violates(put(0, None, "a", None), *seen, get(6, 7, Entry("a", 7)))


def test_an_increment_that_counts_twice_is_a_violation():
    check([increment(0, 1, 1, 1), get(2, 3, Entry(1, 1))])
    violates(increment(0, 1, 1, 1), get(2, 3, Entry(2, 2)))
    violates(increment(0, 1, 1, 1), increment(2, 3, 3, 2))


def test_increments_of_unknown_outcome_count_once_each_at_most():
    unknown = [increment(0, None, None, None) for _ in range(20)]
    check([*unknown, increment(0, 1, 5, 1), get(2, 3, Entry(21, 2))])
    violates(*unknown, increment(0, 1, 5, 1), get(2, 3, Entry(22, 2)))


def test_a_conditional_put_applies_to_its_version_only():
    first, second = put(0, 1, "a", 1), put(2, 3, "b", 2)
    late = ("put_if_version", "c", 1)
    check([first, second, Operation(2, 5, late, (False, 2))])
    violates(first, second, Operation(4, 5, late, (True, 3)))
    violates(first, Operation(4, 5, late, (False, 1)))
    absent = ("put_if_version", "c", 0)
    check([Operation(0, 1, absent, (True, 3)), Operation(2, 3, absent, (False, 3))])
    violates(Operation(0, 1, absent, (True, 3)), Operation(2, 3, absent, (True, 4)))


def test_a_delete_that_found_nothing_of_what_was_there_is_a_violation():
    delete = ("delete",)
    check([put(0, 1, "a", 1), Operation(2, 3, delete, 1), get(4, 5, None)])
    violates(put(0, 1, "a", 1), Operation(2, 3, delete, 0))
    violates(put(0, 1, "a", 1), Operation(2, 3, delete, 1), get(4, 5, Entry("a", 1)))


def test_the_version_of_a_write_of_unknown_outcome_is_the_one_that_is_first_seen():
    unknown = put(0, None, "a", None)
    check([unknown, get(1, 2, Entry("a", 7)), get(3, 4, Entry("a", 7))])
    violates(unknown, get(1, 2, Entry("a", 7)), get(3, 4, Entry("a", 8)))


def test_two_writes_with_one_version_are_a_violation():
    violates(put(0, 1, "a", 1), put(2, 3, "b", 1))


# --------------------------------------------------------------------------------------------------
# Random histories


class Machine:
    """A register that is linearizable: each operation takes effect at a moment that is drawn
    between its begin and its end."""

    def __init__(self, seed, operations, clients, unknown=0.05):
        self.random = random.Random(seed)
        self.unknown = unknown
        self.versions = 0
        drawn = []
        for client in range(clients):
            now = self.random.random()
            for number in range(operations // clients):
                length = self.random.random() * 2
                takes_effect = now + self.random.random() * length
                drawn.append((takes_effect, now, now + length, f"{client}-{number}"))
                now += length + self.random.random() * 0.2
        self.entry, self.operations = None, []
        for _, begin, end, value in sorted(drawn):
            self.operations.append(self.operation(begin, end, value))

    def operation(self, begin, end, value):
        request = self.request(value)
        if self.random.random() >= self.unknown:
            operation = Operation(begin, end, request, self.outcome(request))
            self.entry = step(self.entry, operation)
            return operation
        if self.random.random() < 0.5:
            # It happens, and nobody is told.
            self.entry = step(self.entry, Operation(begin, end, request, self.outcome(request)))
        return Operation(begin, None, request, latest=end + 5)

    def request(self, value):
        kind = self.random.choice(["get", "get", "put", "put_if_version", "delete", "increment"])
        if kind == "increment" and self.entry and not isinstance(self.entry.value, int):
            kind = "put"
        number = self.random.randrange(100)
        version = self.entry.version if self.entry else 0
        if self.random.random() < 0.3:
            version = max(0, version - 1)
        return {
            "get": ("get",),
            "put": ("put", self.random.choice([value, number])),
            "put_if_version": ("put_if_version", value, version),
            "delete": ("delete",),
            "increment": ("increment", 1),
        }[kind]

    def outcome(self, request):
        kind = request[0]
        there = self.entry.version if self.entry else 0
        if kind == "get":
            return self.entry
        if kind == "delete":
            return there
        if kind == "put_if_version" and there != request[2]:
            return (False, there)
        self.versions += 1
        if kind == "increment":
            return Entry((self.entry.value if self.entry else 0) + request[1], self.versions)
        return (True, self.versions) if kind == "put_if_version" else self.versions


def test_random_linearizable_histories_pass():
    print(f"PELTON_SEED={SEED}")
    for number in range(ROUNDS):
        check(Machine(f"{SEED}/{number}", 60, 4).operations)


def test_a_read_of_another_time_in_a_random_history_is_found():
    print(f"PELTON_SEED={SEED}")
    planted = 0
    for number in range(ROUNDS):
        operations = Machine(f"{SEED}/{number}", 60, 4, unknown=0).operations
        over = max(operation.end for operation in operations)
        seen = {operation.outcome for operation in operations if operation.request == ("get",)}
        # Of writes that overlap at the end either may be the last, so another one follows.
        operations.append(put(over + 1, over + 2, "the last", 1 << 40))
        check([*operations, get(over + 3, over + 4, Entry("the last", 1 << 40))])
        for stale in seen:
            violates(*operations, get(over + 3, over + 4, stale))
            planted += 1
    assert planted > ROUNDS, planted


def test_ten_thousand_operations_over_many_keys_pass():
    """In some seconds; without merging configurations it would take for ever."""
    for number in range(50):
        check(Machine(f"{SEED}/many/{number}", 160, 6, unknown=0.02).operations)
    check(Machine(f"{SEED}/one", 2000, 6, unknown=0.01).operations)
