"""Who has which slot, told by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.cache import CacheReport, CacheStatus, CacheTag
from mlxcel.core.events import FinishReason
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation.slot_table import Served, SlotTable, TokenStream
from mlxcel.link.messages import (
    RowAccepted,
    RowEnded,
    RowEvent,
    RowProgress,
    RowPrompt,
    RowStarted,
    RowTokens,
    Submit,
    pack_tokens,
)
from tests.generation.scripted import request

TAG = CacheTag(session="me", boundary=2)


class Table(SlotTable):
    def __init__(self, slots: int = 2) -> None:
        super().__init__(lambda: slots)

    def begin(self, name: str, prompt: Sequence[int] = (1, 2), **fields: Any) -> None:
        self.took(name, submit(name, prompt, **fields))
        self.heard(RowAccepted(name))
        self.heard(RowStarted(name, 0.0, 0.0))

    def say(self, name: str, *ids: int, choice: int = 0) -> None:
        self.heard(RowTokens(id=name, ids=list(ids), choice=choice))

    def busy(self) -> list[int]:
        return [slot for slot in range(self.count) if self.is_busy(slot)]


def submit(name: str, prompt: Sequence[int], tag: CacheTag | None = TAG) -> Submit:
    return Submit(
        id=name,
        tokens=pack_tokens(prompt),
        sampling=SamplingParams(),
        max_tokens=9,
        eos_ids=(),
        cache=tag,
    )


def held(*ids: int, tag: CacheTag | None = TAG) -> TokenStream:
    return TokenStream(tokens=pack_tokens(ids), tag=tag)


def test_a_slot_is_taken_when_the_first_token_is_there_and_not_before() -> None:
    table = Table()
    table.took("a", submit("a", [1]))
    table.heard(RowAccepted("a"))
    assert table.busy() == []
    table.heard(RowStarted("a", 0.0, 0.0))
    assert table.busy() == [0]


def test_the_lowest_free_slot_is_taken() -> None:
    table = Table(3)
    for name in "abc":
        table.begin(name)
    assert table.busy() == [0, 1, 2]
    table.left("b")
    table.left("a")
    assert table.busy() == [2]
    table.begin("d", [7])
    assert table.busy() == [0, 2]
    assert table.stream(0) == held(7)


def test_a_slot_keeps_prompt_and_first_answer_of_who_had_it_last() -> None:
    table = Table()
    table.begin("a", [1, 2, 3])
    table.say("a", 4)
    table.say("a", 50, choice=1)
    table.say("a", 5, 6)
    assert table.stream(0) == held(1, 2, 3, 4, 5, 6)
    table.left("a")
    table.say("a", 7)
    assert table.stream(0) == held(1, 2, 3, 4, 5, 6)
    table.begin("b", [9], tag=None)
    assert table.stream(0) == held(9, tag=None)
    assert table.stream(1) == TokenStream()


def test_who_begins_before_the_other_is_heard_to_end_waits_for_its_slot() -> None:
    table = Table(1)
    table.begin("a")
    table.begin("b", [3])
    table.begin("c", [5])
    table.say("b", 4)
    assert table.stream(0) == held(1, 2)
    table.left("a")
    assert table.stream(0) == held(3, 4)
    table.left("c")
    table.left("b")
    assert table.busy() == []
    assert table.stream(0) == held(3, 4)


def test_a_request_that_never_began_leaves_no_trace() -> None:
    table = Table()
    table.took("a", submit("a", [1]))
    table.left("a")
    table.left("a")
    table.left("nobody")
    table.heard(RowStarted("nobody", 0.0, 0.0))
    assert table.busy() == []
    assert table.stream(0) == TokenStream()


def test_what_is_put_is_there_and_what_is_erased_is_not() -> None:
    table = Table()
    table.put(1, held(4, 5))
    assert (table.stream(1), table.is_busy(1)) == (held(4, 5), False)
    assert table.erase(1) == 2
    assert table.erase(1) == 0
    assert table.stream(1) == TokenStream()


@given(st.lists(st.tuples(st.sampled_from(["begin", "left"]), st.integers(0, 5))), st.data())
def test_each_running_request_has_one_slot_while_there_are_enough(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    slots = data.draw(st.integers(1, 6))
    table, running = Table(slots), set()
    for step, number in steps:
        name = str(number)
        if step == "begin" and name not in running:
            table.begin(name, [number])
            running.add(name)
        elif step == "left":
            table.left(name)
            running.discard(name)
        assert len(table.busy()) == min(len(running), slots)
        holders = [table.stream(slot).tokens for slot in table.busy()]
        assert len(set(holders)) == len(holders)


@pytest.mark.parametrize("tag", [TAG, None], ids=["kept", "cold"])
def test_the_tag_is_that_of_the_request(tag: CacheTag | None) -> None:
    table = Table()
    table.begin("a", tag=tag)
    assert table.stream(0).tag == tag


@pytest.mark.parametrize(
    "sign",
    [
        RowProgress(id="a", total=9, cached=4, processed=4, took_ms=0.0),
        RowPrompt(id="a", scores=[]),
        RowStarted("a", 0.0, 0.0),
    ],
    ids=lambda sign: type(sign).__name__,
)
def test_the_first_sign_of_a_row_takes_the_slot_and_the_next_takes_no_other(sign: RowEvent) -> None:
    table = Table(2)
    table.took("a", submit("a", [1]))
    assert table.slot_of("a") == -1
    table.heard(sign)
    assert (table.busy(), table.slot_of("a")) == ([0], 0)
    table.heard(RowStarted("a", 0.0, 0.0))
    assert table.busy() == [0]
    table.left("a")
    assert table.slot_of("a") == -1


def test_one_that_stands_is_not_counted_twice() -> None:
    table = Table(1)
    table.begin("a")
    table.took("b", submit("b", [3]))
    table.heard(RowProgress(id="b", total=1, cached=0, processed=0, took_ms=0.0))
    table.heard(RowStarted("b", 0.0, 0.0))
    table.left("a")
    table.left("b")
    assert table.busy() == []


def test_tasks_are_counted_as_they_are_seated() -> None:
    table = Table(1)
    table.begin("a")
    table.begin("b")
    assert served(table).task == 0
    table.left("a")
    assert served(table).task == 1
    table.left("b")
    table.put(0, held(4))
    assert served(table).task is None
    table.begin("c")
    assert served(table).task == 2


def test_a_slot_knows_what_was_cached_and_whether_more_will_come() -> None:
    table = Table()
    report = CacheReport(status=CacheStatus.HIT, reused=1)
    table.took("a", submit("a", [1, 2]))
    table.heard(RowStarted("a", 0.0, 0.0, report))
    assert (served(table).cached, served(table).is_over) == (1, False)
    table.heard(RowEnded(id="a", reason=FinishReason.LENGTH, choice=1))
    assert not served(table).is_over
    table.heard(RowEnded(id="a", reason=FinishReason.LENGTH))
    assert served(table).is_over
    assert table.is_busy(0)


def test_who_left_says_no_more() -> None:
    table = Table()
    table.begin("a")
    table.left("a")
    assert served(table).is_over


def test_what_was_asked_for_is_kept_without_the_conversation() -> None:
    table, asked = Table(), request("x" * 100)
    table.took("a", submit("a", [1]), asked)
    table.heard(RowStarted("a", 0.0, 0.0))
    kept = served(table).request
    assert kept is not None
    assert (kept.chat.messages, kept.max_tokens) == ((), asked.max_tokens)


def served(table: SlotTable) -> Served:
    found = table.served(0)
    assert found is not None
    return found
