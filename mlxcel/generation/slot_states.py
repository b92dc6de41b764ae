"""What clients are shown of the slots."""

from collections.abc import Iterator
from dataclasses import replace

from mlxcel.core.ports import SlotState
from mlxcel.generation.slot_table import Served, SlotTable
from mlxcel.link.messages import unpack_tokens
from mlxcel.text.tokenizer import TextModel


def slot_states(
    table: SlotTable, *, window: int, text: TextModel, with_text: bool
) -> Iterator[SlotState]:
    """In order of their ids."""
    for slot in range(table.count):
        state = SlotState(id=slot, is_busy=table.is_busy(slot), window=window)
        served = table.served(slot)
        if served is None or served.task is None:
            yield state
            continue
        state = _of_task(state, served, text)
        yield _with_text(state, served, text) if with_text else state


def _of_task(state: SlotState, served: Served, text: TextModel) -> SlotState:
    return replace(
        state,
        task=served.task,
        request=served.request,
        prompt_tokens=len(served.prompt) // 4,
        cached_tokens=served.cached,
        decoded=len(served.output),
        has_next_token=not served.is_over,
        has_new_line=any(b"\n" in text.vocabulary.bytes_of(token) for token in set(served.output)),
    )


def _with_text(state: SlotState, served: Served, text: TextModel) -> SlotState:
    return replace(
        state,
        prompt=text.decode(unpack_tokens(served.prompt)),
        generated=text.decode(served.output),
    )
