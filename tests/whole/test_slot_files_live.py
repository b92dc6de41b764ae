"""Slots of a running server: saved, and restored by the next one."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.whole.program import Program, serve_checkpoint
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours
NAME = {"filename": "talk.bin"}


def act(program: Program, slot: int, action: str, body: object = None) -> tuple[int, Any]:
    return program.post(f"/slots/{slot}?action={action}", body)


def echo(folder: Path, **more: object) -> Program:
    changes = [f"{key}={value}" for key, value in more.items()]
    return Program("model=echo", f"cache.slot_save_path={folder}", *changes)


def await_entries(program: Program) -> None:
    """Until something is in the prompt cache."""
    deadline = time.monotonic() + 20
    while program.get("/v1/cache/stats")[1]["entries"] == 0:
        assert time.monotonic() < deadline, "nothing was read ahead"
        time.sleep(0.05)


def test_what_was_said_survives_a_restart_and_only_for_its_model(
    tmp_path: Path, tiny: Path
) -> None:
    folder = tmp_path / "slots"
    with echo(folder) as first:
        usage = first.chat("remember this")["usage"]
        status, saved = act(first, 0, "save", NAME)
        assert status == 200
        # The last token of all, which ended the answer, was never said.
        assert saved["n_saved"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert act(first, 1, "erase") == (200, {"id_slot": 1, "n_erased": 0})
    with echo(folder) as second:
        status, restored = act(second, 3, "restore", NAME)
        assert (status, restored["n_restored"]) == (200, saved["n_saved"])
        assert restored["n_read"] == saved["n_written"] == (folder / "talk.bin").stat().st_size
        assert second.chat("still there?")["choices"]
        assert act(second, 3, "erase")[1]["n_erased"] == saved["n_saved"]
    with Program(*serve_checkpoint(tiny), f"cache.slot_save_path={folder}") as other:
        status, refused = act(other, 0, "restore", NAME)
        assert status == 400
        assert refused["error"]["message"] == (
            "Unable to restore slot: talk.bin was saved with another model"
        )


def test_a_slot_is_busy_from_the_first_token_to_the_last(tmp_path: Path) -> None:
    with (
        echo(tmp_path / "slots", **{"engine.delay_ms": 50}) as program,
        Stream(program.url, "one two three four") as stream,
    ):
        stream.pieces(2)
        busy = act(program, 0, "save", NAME)
        assert (busy[0], busy[1]["error"]["message"]) == (503, "Requested slot is processing")
        assert act(program, 1, "save", NAME)[0] == 200
        assert stream.rest().is_done
        assert act(program, 0, "save", NAME)[0] == 200


def test_a_client_that_leaves_frees_its_slot(tmp_path: Path) -> None:
    with echo(tmp_path / "slots", **{"engine.delay_ms": 50}) as program:
        with Stream(program.url, "a long story, told slowly") as stream:
            stream.pieces(2)
        program.await_health(batch__active_sequences=0)
        status, erased = act(program, 0, "erase")
        assert (status, erased["n_erased"] > 2) == (200, True)


def test_without_a_folder_and_without_a_cache(tmp_path: Path) -> None:
    with Program("model=echo") as program:
        assert act(program, 0, "save", NAME)[0] == 501
        assert program.get("/v1/cache/stats")[1]["enabled"] is False
        assert program.post("/v1/cache/reset", {})[1] == {
            "cleared": True,
            "freed_bytes": 0,
            "freed_entries": 0,
        }


def test_the_real_engine_reads_a_restored_prompt_ahead(tmp_path: Path, tiny: Path) -> None:
    words = (*serve_checkpoint(tiny), f"cache.slot_save_path={tmp_path / 'slots'}")
    text = "a story that is worth more than a block of tokens. " * 4
    with Program(*words) as first:
        first.chat(text, max_tokens=4)
        assert act(first, 0, "save", NAME)[0] == 200
    with Program(*words) as second:
        assert second.get("/v1/cache/stats")[1]["entries"] == 0
        assert act(second, 0, "restore", NAME)[0] == 200
        await_entries(second)
        answer = second.chat(text, max_tokens=4)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
