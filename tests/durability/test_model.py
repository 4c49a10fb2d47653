"""The model of the kill rounds itself: it must accept what may be, and nothing else."""

import pytest
from model import SOME_TIME, Entry, Space, Wrong


def space_with(entries, *under_way):
    space = Space("", b"p/")
    for version, (key, value) in enumerate(entries.items(), 1):
        space.send({key: Entry(value)})
        space.acknowledge(version)
    for commit in under_way:
        space.send({key: value if value is None else Entry(value) for key, value in commit.items()})
    return space


def test_what_may_be_is_accepted():
    two_commits = [{b"a": b"2", b"b": b"2"}, {b"a": None, b"c": b"3"}]
    before = {b"a": Entry(b"1", 1), b"b": Entry(b"1", 2)}
    first = {b"a": Entry(b"2", 7), b"b": Entry(b"2", 7)}
    second = {b"b": Entry(b"2", 7), b"c": Entry(b"3", 9)}
    for found, versions in [(before, []), (first, [7]), (second, [7, 9])]:
        space = space_with({b"a": b"1", b"b": b"1"}, *two_commits)
        assert space.check(dict(found)) == versions
        # From now on it is what must be there.
        assert space.check(dict(found)) == []
        with pytest.raises(Wrong):
            space.check({})


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({b"b": Entry(b"1", 2)}, id="a key is gone"),
        pytest.param({b"a": Entry(b"0", 1), b"b": Entry(b"1", 2)}, id="an old value"),
        pytest.param({b"a": Entry(b"1", 3), b"b": Entry(b"1", 2)}, id="another version"),
        pytest.param({b"a": Entry(b"1", 1, 5), b"b": Entry(b"1", 2)}, id="it expires"),
        pytest.param(
            {b"a": Entry(b"1", 1), b"b": Entry(b"1", 2), b"x": Entry(b"", 3)}, id="a key of nobody"
        ),
        pytest.param({b"a": Entry(b"2", 7), b"b": Entry(b"1", 2)}, id="half a commit"),
        pytest.param({b"a": Entry(b"2", 7), b"b": Entry(b"2", 8)}, id="a commit with two versions"),
        pytest.param({b"a": Entry(b"2", 2), b"b": Entry(b"2", 2)}, id="a version given out before"),
        pytest.param(
            {b"b": Entry(b"1", 2), b"c": Entry(b"3", 9)}, id="the second commit without the first"
        ),
        pytest.param({b"b": Entry(b"2", 9), b"c": Entry(b"3", 7)}, id="commits out of order"),
    ],
)
def test_what_must_not_be_is_found(found):
    space = space_with({b"a": b"1", b"b": b"1"}, {b"a": b"2", b"b": b"2"}, {b"a": None, b"c": b"3"})
    with pytest.raises(Wrong):
        space.check(found)


def test_an_expiry_is_learnt_once():
    space = space_with({})
    space.send({b"a": Entry(b"1", 0, SOME_TIME)})
    space.acknowledge(1)
    with pytest.raises(Wrong):
        space.check({b"a": Entry(b"1", 1)})
    space.check({b"a": Entry(b"1", 1, 500)})
    with pytest.raises(Wrong):
        space.check({b"a": Entry(b"1", 1, 501)})


def test_versions_rise():
    space = space_with({b"a": b"1"})
    space.send({b"a": Entry(b"2")})
    with pytest.raises(Wrong):
        space.acknowledge(1)
