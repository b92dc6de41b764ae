"""States by their tokens: the longest that fits, and why none did."""

from dataclasses import replace

import pytest

from mlxcel.core.cache import Divergence, Reject
from mlxcel.engine.cache.snapshots import FoundState, Origin
from mlxcel.engine.cache.states import restored
from tests.engine.cache.snapshot_shop import Shop, key_for, run

# What is found.


@pytest.mark.parametrize(
    ("stored", "prompt", "length"),
    [
        pytest.param([5], 9, 5, id="beginning"),
        pytest.param([2, 5, 7], 9, 7, id="longest-beginning"),
        pytest.param([2, 5, 12], 9, 5, id="longer-than-the-prompt"),
        pytest.param([9], 9, 0, id="a-token-must-be-left"),
        pytest.param([8], 9, 8, id="one-token-left"),
        pytest.param([9, 3], 9, 3, id="shorter-one-when-none-is-left"),
    ],
)
def test_longest_state_that_the_prompt_begins_with(
    stored: list[int], prompt: int, length: int
) -> None:
    shop = Shop()
    states = {n: shop.put(run(0, n), origin=str(n)) for n in stored}
    found = shop.find(run(0, prompt))
    assert found.length == length
    assert found.state is states.get(length)


def test_beginnings_are_found_among_others_that_lie_between() -> None:
    shop = Shop()
    shop.put([1, 2], origin="a")
    shop.put([1, 2, 3, 4], origin="b")
    for last in range(5, 40):
        shop.put([1, 2, 3, last], origin=str(last))
        shop.put([1, 2, 3, 4, last, 0], origin=str(last))
    assert shop.length([1, 2, 3, 4, 100]) == 4
    assert shop.length([1, 2, 100]) == 2
    assert shop.length([1, 100, 2]) == 0


def test_state_that_can_be_cut_serves_a_prompt_that_parts_from_it() -> None:
    shop = Shop()
    shop.put([*run(0, 10), 77, 78], can_be_cut=True)
    shop.put(run(0, 4), origin="short")
    found = shop.find([*run(0, 10), 99, 98])
    assert (found.length, found.reason) == (10, None)
    assert found.state is not None
    (window,) = restored(found.state)
    assert window.keys.reshape(-1).tolist() == run(0, 10)
    assert found.diverged is not None
    assert found.diverged.at == 10


def test_state_of_the_whole_prompt_is_cut_to_leave_a_token() -> None:
    shop = Shop()
    shop.put(run(0, 12), can_be_cut=True)
    assert shop.length(run(0, 12)) == 11


def test_nearest_that_cannot_be_cut_gives_way_to_one_that_can() -> None:
    shop = Shop()
    shop.put([*run(0, 10), 77])
    shop.put([*run(0, 8), 66], can_be_cut=True)
    found = shop.find([*run(0, 10), 99])
    assert (found.length, found.reason) == (8, Reject.SNAPSHOT_DIVERGED)
    assert found.entry_length == 11


def test_nearest_is_found_beyond_many_on_its_other_side() -> None:
    shop = Shop()
    for n in range(40):
        shop.put([1, n, 0])
    shop.put([1, 100, 7, 9], can_be_cut=True)
    assert shop.length([1, 100, 7, 8, 8]) == 3


# Keys and sessions.


@pytest.mark.parametrize(
    "differing",
    [
        pytest.param({"session": "other"}, id="session"),
        pytest.param({"lora": (0.5,)}, id="lora"),
        pytest.param({"template": b"t" * 32}, id="template"),
        pytest.param({"tool_choice": "mode:auto"}, id="tool-choice"),
        pytest.param({"tools": b"t" * 32}, id="tools"),
        pytest.param({"media": b"m" * 32}, id="media"),
        pytest.param({"rope": "long"}, id="rope"),
    ],
)
def test_states_of_another_key_are_not_used(differing: dict[str, object]) -> None:
    shop = Shop()
    shop.put(run(0, 20))
    found = shop.find(run(0, 30), replace(key_for(), **differing))  # type: ignore[arg-type]
    assert found.state is None
    is_rope = "rope" in differing
    assert found.reason is (Reject.ROPE_REGIME_MISMATCH if is_rope else Reject.EMPTY_SET)
    names = () if found.diverged is None else found.diverged.differs
    assert names == (() if "session" in differing else tuple(differing))


def test_other_sessions_are_not_told_of() -> None:
    shop = Shop()
    shop.put(run(0, 20), key=key_for("hers"))
    assert shop.find(run(0, 30), key_for("his")) == FoundState(reason=Reject.EMPTY_SET)
    shop.put([*run(0, 5), 99], key=key_for("his"))
    found = shop.find(run(0, 30), key_for("his"))
    assert found.diverged is not None
    assert found.diverged.at == 5


# Explanations.


def test_diverged_prompt_is_told_where_and_what() -> None:
    """Up to 12 tokens of each side, of which 4 still agree."""
    shop = Shop()
    shop.put([*run(0, 20), *run(50, 30)])
    found = shop.find([*run(0, 20), *run(200, 5)])
    assert (found.length, found.reason, found.entry_length) == (0, Reject.SNAPSHOT_DIVERGED, 50)
    assert found.diverged == Divergence(
        at=20,
        start=16,
        prompt_ids=(16, 17, 18, 19, 200, 201, 202, 203, 204),
        entry_ids=(16, 17, 18, 19, *run(50, 8)),
    )


def test_state_ahead_of_the_prompt_is_no_divergence() -> None:
    shop = Shop()
    shop.put(run(0, 20))
    found = shop.find(run(0, 15))
    assert found.reason is Reject.LAYOUT_CONSTRAINTS
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.entry_ids) == (15, tuple(run(11, 9)))
    same = shop.find(run(0, 20))
    assert (same.reason, same.diverged) == (Reject.LAYOUT_CONSTRAINTS, None)


def test_whole_beginning_needs_no_explanation() -> None:
    shop = Shop()
    shop.put(run(0, 20))
    found = shop.find(run(0, 25))
    assert (found.length, found.reason, found.diverged) == (20, None, None)
    shop.put([*run(0, 20), 99], origin="y")
    found = shop.find(run(0, 25))
    assert (found.length, found.reason, found.diverged) == (20, None, None)


def test_prompt_that_was_asked_before_needs_no_explanation() -> None:
    """Its state is there but for the last token, and one that goes on with the answer."""
    shop = Shop()
    shop.put(run(0, 20), Origin.BOUNDARY)
    shop.put(run(0, 30), Origin.COMPLETION)
    found = shop.find(run(0, 21))
    assert (found.length, found.reason, found.diverged) == (20, None, None)


def test_short_hit_names_the_entry_that_shared_more() -> None:
    """Second turn of a model that thinks: what it thought is not sent again."""
    shop = Shop()
    shop.put(run(0, 10), Origin.BOUNDARY)
    shop.put([*run(0, 12), 500, 501], Origin.COMPLETION)
    found = shop.find([*run(0, 12), 700])
    assert (found.length, found.reason) == (10, Reject.SNAPSHOT_DIVERGED)
    assert found.diverged is not None
    assert found.diverged.at == 12


def test_changed_tools_are_named_where_the_own_key_shares_less() -> None:
    shop = Shop()
    tools = key_for(tools=b"t" * 32)
    shop.put(run(0, 30), key=tools)
    shop.put([*run(0, 2), 9], origin="y")
    found = shop.find(run(0, 40))
    assert found.reason is Reject.SNAPSHOT_DIVERGED
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.differs) == (30, ("tools",))


def test_nearest_key_is_the_one_that_differs_least() -> None:
    shop = Shop()
    shop.put(run(0, 9), key=key_for(tools=b"t" * 32, tool_choice="mode:auto"))
    shop.put(run(0, 9), key=key_for(tools=b"u" * 32))
    shop.put(run(0, 9), key=key_for(lora=(1.0,), tools=b"v" * 32))
    found = shop.find(run(0, 9))
    assert found.diverged is not None
    assert found.diverged.differs == ("tools",)
