"""Slots as the routes see them: busy ones, files that outlive the server, what is read ahead."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.errors import BadRequest, NotImplementedHere, Unavailable
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.status import State, WorkerStats, WorkerStatus
from mlxcel.generation.identity import Identity, read_identity
from mlxcel.generation.slot_files import SlotFiles
from mlxcel.generation.slot_table import SlotTable
from mlxcel.generation.slots import Slots
from mlxcel.link.messages import RowStarted, RowTokens, Submit, Warm, pack_tokens
from mlxcel.text.tokenizer import byte_text_model
from tests.generation.scripted import INFO

pytestmark = pytest.mark.asyncio
TAG = CacheTag(session="me")


class Chat:
    def __init__(self) -> None:
        self.state = WorkerStatus(
            name="chat", state=State.OK, stats=WorkerStats(slots=2), model=INFO
        )
        self.warmed: list[Warm] = []

    def status(self) -> WorkerStatus:
        return self.state

    def warm(self, message: Warm, /) -> None:
        self.warmed.append(message)


class Bench:
    """One life of a server over a folder."""

    def __init__(self, folder: Path | None, *, name: str = "echo") -> None:
        self.chat = Chat()
        self.table = SlotTable(lambda: self.chat.state.stats.slots)
        self.slots = Slots.of(
            self.table,
            chat=self.chat,
            text=byte_text_model(),
            folder=None if folder is None else str(folder),
            model=None,
            name=name,
        )

    def serve(self, request: str, prompt: list[int], *said: int, **fields: Any) -> None:
        fields = {"cache": TAG} | fields
        submit = Submit(
            id=request,
            tokens=pack_tokens(prompt),
            sampling=SamplingParams(),
            max_tokens=9,
            eos_ids=(),
            **fields,
        )
        self.table.took(request, submit)
        self.table.heard(RowStarted(request, 0.0, 0.0))
        self.table.heard(RowTokens(id=request, ids=list(said)))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "slots")
    yield made
    made.slots.close()


async def test_what_a_slot_served_is_saved_erased_and_restored(bench: Bench) -> None:
    bench.serve("r1", [1, 2, 3], 4, 5)
    bench.table.left("r1")
    saved = await bench.slots.save(0, "a.bin")
    assert (saved.tokens, saved.took_ms > 0) == (5, True)
    assert bench.slots.erase(0) == 5
    assert bench.slots.erase(0) == 0
    restored = await bench.slots.restore(1, "a.bin")
    assert (restored.tokens, restored.size_bytes) == (5, saved.size_bytes)
    assert bench.table.stream(1).tokens == pack_tokens([1, 2, 3, 4, 5])
    assert bench.chat.warmed == [Warm(tokens=pack_tokens([1, 2, 3, 4, 5]), tag=TAG)]


async def test_a_file_outlives_the_server(bench: Bench, tmp_path: Path) -> None:
    bench.serve("r1", [1, 2, 3])
    bench.table.left("r1")
    await bench.slots.save(0, "a.bin")
    bench.slots.close()
    later = Bench(tmp_path / "slots")
    assert (await later.slots.restore(0, "a.bin")).tokens == 3
    assert later.table.stream(0) == bench.table.stream(0)
    again = await later.slots.save(0, "b.bin")
    later.slots.close()
    assert again.size_bytes == (tmp_path / "slots" / "a.bin").stat().st_size


async def test_a_file_of_another_model_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.serve("r1", [1, 2, 3])
    bench.table.left("r1")
    await bench.slots.save(0, "a.bin")
    other = Bench(tmp_path / "slots", name="another")
    with pytest.raises(BadRequest, match=r"^Unable to restore slot: .*another model"):
        await other.slots.restore(0, "a.bin")
    assert (other.table.stream(0).count, other.chat.warmed) == (0, [])
    other.slots.close()


async def test_a_prompt_beyond_the_window_is_refused(bench: Bench) -> None:
    bench.serve("r1", list(range(INFO.context_window)), 1)
    bench.table.left("r1")
    await bench.slots.save(0, "a.bin")
    with pytest.raises(BadRequest, match=r"^Unable to restore slot: .*65 tokens.*64 tokens"):
        await bench.slots.restore(1, "a.bin")


@pytest.mark.parametrize(
    ("prompt", "cache"), [([1], None), ([], TAG)], ids=["cold", "nothing-said"]
)
async def test_nothing_is_read_ahead_for_what_is_not_kept(
    bench: Bench, prompt: list[int], cache: CacheTag | None
) -> None:
    bench.serve("r1", prompt, cache=cache)
    bench.table.left("r1")
    await bench.slots.save(0, "a.bin")
    await bench.slots.restore(0, "a.bin")
    assert bench.chat.warmed == []


async def test_a_busy_slot_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    bench.serve("r1", [1, 2])
    await bench.slots.save(1, "empty.bin")
    for action in (bench.slots.save(0, "a.bin"), bench.slots.restore(0, "empty.bin")):
        with pytest.raises(Unavailable, match=r"^Requested slot is processing$"):
            await action
    with pytest.raises(Unavailable, match=r"^Requested slot is processing$"):
        bench.slots.erase(0)
    assert bench.table.stream(0).count == 2
    assert not (tmp_path / "slots" / "a.bin").exists()


async def test_a_slot_that_is_taken_while_its_file_is_read_keeps_its_request(
    bench: Bench, tmp_path: Path
) -> None:
    await bench.slots.save(0, "a.bin")
    reading, taken = threading.Event(), threading.Event()

    def slow_identity() -> Identity:
        reading.set()
        assert taken.wait(5)
        return read_identity(None, "echo")

    slow = Slots(
        bench.table,
        chat=bench.chat,
        text=byte_text_model(),
        files=SlotFiles(tmp_path / "slots", slow_identity),
    )
    restoring = asyncio.ensure_future(slow.restore(0, "a.bin"))
    await asyncio.to_thread(reading.wait, 5)
    bench.serve("r1", [7])
    taken.set()
    with pytest.raises(Unavailable, match="processing"):
        await restoring
    assert bench.table.stream(0).count == 1


async def test_a_bad_name_is_told_before_a_busy_slot(bench: Bench) -> None:
    bench.serve("r1", [1])
    with pytest.raises(BadRequest, match=r"^Invalid filename$"):
        await bench.slots.save(0, "../a.bin")


async def test_without_a_folder_nothing_is_kept() -> None:
    with pytest.raises(NotImplementedHere, match="--slot-save-path"):
        Bench(None).slots.check_kept()


async def test_before_the_model_is_there_nobody_knows_the_slots(bench: Bench) -> None:
    assert bench.slots.count == 2
    bench.chat.state = WorkerStatus(name="chat", state=State.LOADING)
    with pytest.raises(Unavailable, match="loading"):
        _ = bench.slots.count


async def test_there_are_states_once_the_model_was_there(bench: Bench) -> None:
    bench.serve("r1", [1, 2, 3], 4)
    assert [state.is_busy for state in bench.slots.states()] == [True, False]
    assert bench.slots.states()[0].prompt_tokens == 3
    known = bench.chat.state
    bench.chat.state = WorkerStatus(name="chat", state=State.LOADING)
    assert bench.slots.states() == ()
    bench.chat.state = known
    assert {state.window for state in bench.slots.states()} == {INFO.context_window}
