"""What is shown of slots."""

from dataclasses import replace

from mlxcel.core.cache import CacheReport, CacheStatus
from mlxcel.core.ports import SlotState
from mlxcel.core.sampling import SamplingParams
from mlxcel.generation.slot_states import slot_states
from mlxcel.generation.slot_table import SlotTable
from mlxcel.link.messages import RowStarted, RowTokens, Submit, pack_tokens
from mlxcel.text.tokenizer import byte_text_model
from tests.generation.scripted import request

TEXT = byte_text_model()


def begun(prompt: bytes, *said: bytes) -> SlotTable:
    table = SlotTable(lambda: 2)
    submit = Submit(
        id="r1",
        tokens=pack_tokens(list(prompt)),
        sampling=SamplingParams(),
        max_tokens=9,
        eos_ids=(),
    )
    table.took("r1", submit, request())
    table.heard(RowStarted("r1", 0.0, 0.0, CacheReport(status=CacheStatus.HIT, reused=2)))
    for piece in said:
        table.heard(RowTokens(id="r1", ids=list(piece)))
    return table


def states(table: SlotTable, *, with_text: bool = False) -> list[SlotState]:
    return list(slot_states(table, window=64, text=TEXT, with_text=with_text))


def test_one_that_works_and_one_that_never_did() -> None:
    busy, idle = states(begun(b"abc", b"de", b"f"))
    assert replace(busy, request=None) == SlotState(
        id=0,
        is_busy=True,
        window=64,
        task=0,
        prompt_tokens=3,
        cached_tokens=2,
        decoded=3,
        has_next_token=True,
    )
    assert busy.request is not None
    assert idle == SlotState(id=1, is_busy=False, window=64)


def test_counters_stay_when_the_request_is_gone() -> None:
    table = begun(b"abc", b"de")
    table.left("r1")
    state = states(table)[0]
    assert (state.is_busy, state.has_next_token) == (False, False)
    assert (state.task, state.prompt_tokens, state.decoded) == (0, 3, 2)


def test_a_line_end_anywhere_in_the_answer_counts_and_one_in_the_prompt_does_not() -> None:
    assert not states(begun(b"a\nb", b"cd"))[0].has_new_line
    assert states(begun(b"ab", b"c\nd"))[0].has_new_line


def test_texts_are_told_to_who_asks() -> None:
    table = begun("hä".encode(), b"yes\xc3")
    state = states(table, with_text=True)[0]
    assert (state.prompt, state.generated) == ("hä", "yes\ufffd")
    assert (states(table)[0].prompt, states(table)[0].generated) == ("", "")


def test_what_came_from_a_file_was_no_task() -> None:
    table = begun(b"abc")
    table.put(1, table.stream(0))
    assert states(table, with_text=True)[1] == SlotState(id=1, is_busy=False, window=64)
