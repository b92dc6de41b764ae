"""Where a prompt parts from what was kept: named by token and by key, within a session only."""

import pytest

from mlxcel.core.cache import Divergence
from mlxcel.engine.cache.explain import EXCERPT
from tests.engine.cache.told_payload import Shelf, key

ENTRY = tuple(range(100))


def parted_at(at: int, length: int = 100) -> list[int]:
    """Like the entry, but for one token and those after it."""
    return [*ENTRY[:at], *range(900, 900 + length - at)]


@pytest.mark.parametrize(
    ("at", "start"), [(0, 0), (3, 0), (4, 0), (5, 1), (20, 16), (31, 27)], ids=str
)
def test_miss_names_the_first_token_that_differs(at: int, start: int) -> None:
    shelf = Shelf()
    shelf.insert(ENTRY)
    prompt = parted_at(at)
    found = shelf.find(prompt)
    assert (found.length, found.entry_length) == (0, 100 if at else 0)
    assert found.diverged == Divergence(
        at=at,
        start=start,
        prompt_ids=tuple(prompt[start : start + EXCERPT]),
        entry_ids=ENTRY[start : start + EXCERPT],
    )


def test_short_hit_names_the_place_and_what_was_cut_off() -> None:
    shelf = Shelf()
    shelf.insert(ENTRY)
    found = shelf.find(parted_at(70))
    assert (found.length, found.reason) == (64, "block_boundary_floor")
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.start) == (70, 66)
    assert found.diverged.prompt_ids == (66, 67, 68, 69, *range(900, 908))
    assert found.diverged.entry_ids == tuple(range(66, 78))
    assert shelf.find(parted_at(64)).reason is None  # nothing that agrees was left


def test_short_hit_without_apc_names_the_longer_entry() -> None:
    shelf = Shelf(is_apc=False)
    shelf.insert(ENTRY[:50])
    shelf.insert(ENTRY)
    found = shelf.find(parted_at(70))
    assert (found.length, found.reason) == (50, "layout_constraints")
    assert found.diverged is not None
    assert found.diverged.at == 70


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param([*ENTRY, 5, 6, 7], id="goes-on"),
        pytest.param(list(ENTRY), id="the-same"),
        pytest.param(list(ENTRY[:80]), id="ends-within"),
    ],
)
def test_prompt_that_does_not_part_has_nothing_to_explain(prompt: list[int]) -> None:
    shelf = Shelf()
    shelf.insert(ENTRY)
    found = shelf.find(prompt)
    assert found.length > 0
    assert (found.diverged, found.reason) == (None, None)


def test_prompt_too_short_to_part_ends_where_it_ends() -> None:
    shelf = Shelf()
    shelf.insert(ENTRY)
    found = shelf.find(ENTRY[:10])
    assert found.reason == "prefix_too_short"
    assert found.diverged == Divergence(
        at=10, start=6, prompt_ids=ENTRY[6:10], entry_ids=ENTRY[6:18]
    )


def test_nearest_is_the_entry_used_last_of_those_that_agree() -> None:
    shelf = Shelf()
    shelf.insert([*range(20), *range(200, 260)])
    shelf.insert([*range(20), *range(300, 380)])
    prompt = [*range(20), *range(400, 450)]
    newer = shelf.find(prompt)
    assert newer.entry_length == 100
    assert newer.diverged is not None
    assert newer.diverged.entry_ids == (16, 17, 18, 19, *range(300, 308))
    shelf.adopt([*range(20), *range(200, 300)])
    older = shelf.find(prompt)
    assert older.entry_length == 80
    assert older.diverged is not None
    assert older.diverged.entry_ids == (16, 17, 18, 19, *range(200, 208))


def test_excerpt_reaches_over_several_runs() -> None:
    shelf = Shelf()
    for stop in (10, 12, 14, 16, 60):
        shelf.insert(ENTRY[:stop])
    found = shelf.find([*ENTRY[:13], 7, 7, 7])
    assert found.diverged is not None
    assert found.diverged.entry_ids == ENTRY[9:21]


# By key.


def test_key_with_the_most_tokens_in_common_is_the_nearest() -> None:
    shelf = Shelf()
    shelf.insert(parted_at(40), key(tools=b"\x01" * 32))
    shelf.insert(parted_at(80), key(template=b"\x02" * 32, tools=b"\x01" * 32))
    found = shelf.find(ENTRY)
    assert found.reason == "empty_set"
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.differs) == (80, ("template", "tools"))


def test_of_equally_near_keys_the_one_that_differs_least_is_named() -> None:
    shelf = Shelf()
    shelf.insert(ENTRY, key(tools=b"\x01" * 32))
    shelf.insert(ENTRY, key(tools=b"\x01" * 32, lora=(1.0,)))
    found = shelf.find(ENTRY)
    assert found.diverged is not None
    assert found.diverged.differs == ("tools",)
    assert found.diverged.at == 100


def test_same_key_is_named_first_where_it_is_near() -> None:
    shelf = Shelf()
    shelf.insert(parted_at(50), key())
    shelf.insert(ENTRY, key(tools=b"\x01" * 32))
    found = shelf.find(ENTRY)
    assert found.length == 32
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.differs) == (50, ())


def test_other_key_is_named_where_the_same_one_has_nothing_like_it() -> None:
    shelf = Shelf()
    shelf.insert(parted_at(5), key())
    shelf.insert(ENTRY, key(tools=b"\x01" * 32))
    found = shelf.find(ENTRY)
    assert found.reason == "prefix_too_short"
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.differs) == (100, ("tools",))


def test_same_key_is_named_where_another_is_no_nearer() -> None:
    shelf = Shelf()
    shelf.insert(parted_at(5), key())
    shelf.insert(parted_at(5), key(tools=b"\x01" * 32))
    found = shelf.find(ENTRY)
    assert found.diverged is not None
    assert (found.diverged.at, found.diverged.differs) == (5, ())


def test_other_sessions_are_not_seen() -> None:
    shelf = Shelf()
    empty = shelf.find(ENTRY, key("anna"))
    shelf.insert(ENTRY, key("bert"))
    shelf.insert(ENTRY, key())
    assert shelf.find(ENTRY, key("anna")) == empty
    shelf.insert(parted_at(5), key("anna", tools=b"\x01" * 32))
    found = shelf.find(ENTRY, key("anna"))
    assert found.diverged is not None
    assert found.diverged.differs == ("tools",)
    assert found.diverged.entry_ids == (1, 2, 3, 4, *range(900, 908))


def test_what_is_gone_explains_nothing() -> None:
    shelf = Shelf()
    shelf.insert(ENTRY, key("anna"))
    shelf.store.fit(0)
    found = shelf.find(ENTRY, key("anna"))
    assert (found.reason, found.diverged) == ("empty_set", None)


@pytest.mark.parametrize(
    ("prompt", "tools"),
    [
        pytest.param(parted_at(5), 0, id="too-short"),
        pytest.param(parted_at(70), 0, id="short-hit"),
        pytest.param(list(ENTRY), 1, id="another-key"),
    ],
)
def test_look_that_nobody_is_told_of_finds_the_same(prompt: list[int], tools: int) -> None:
    shelf = Shelf()
    shelf.insert(ENTRY)
    one = key(tools=bytes([tools]) * 32)
    told, untold = (shelf.store.find(one, prompt, explains=it) for it in (True, False))
    assert told.diverged is not None
    assert untold.diverged is None
    assert (untold.length, untold.reach, untold.pieces) == (told.length, told.reach, told.pieces)
