"""What the worker answers between two steps: numbers, and conversations in files."""

from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.engine.cache import build
from mlxcel.link.messages import Ask, Question, Reply
from tests.engine.cache.warm_rows import BLOCK, PROMPT, assert_cold, no_memory, reused, until
from tests.engine.driver import Driver, submit
from tests.engine.families_driven import driven
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.tiny.families import GEMMA3

TAG = CacheTag(session="conv:trip", is_conversation=True)
CONVERSATIONS: dict[str, Any] = {"conversations": {"enabled": True}}


def answer(driver: Driver, question: Question, **options: Any) -> Reply:
    name = f"ask-{len(driver.frames)}"
    driver.run(Ask(id=name, question=question, options=options))
    (reply,) = [r for frame in driver.frames for r in frame.replies if r.id == name]
    return reply


def save(driver: Driver, path: Path, session: str = "conv:trip") -> Reply:
    return answer(driver, Question.CONVERSATION_SAVE, path=str(path), session=session)


def load(driver: Driver, path: Path, session: str = "conv:trip") -> Reply:
    return answer(driver, Question.CONVERSATION_LOAD, path=str(path), session=session)


@pytest.fixture
def driver(tiny: Path) -> Driver:
    return Driver(tiny, cache=CONVERSATIONS)


def code_of(reply: Reply) -> str | None:
    return None if reply.error is None else reply.error.code


@pytest.mark.parametrize("session", ["conv:trip", "conv:copy"], ids=["same", "other-name"])
def test_conversation_goes_on_in_another_server(
    tiny: Path, tmp_path: Path, driver: Driver, session: str
) -> None:
    path = tmp_path / "kv.safetensors"
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    said = driver.tokens("one")
    told = save(driver, path).value
    assert told == {"tokens": [*PROMPT, *said[:-1]], "bytes": path.stat().st_size}
    later = Driver(tiny, cache=CONVERSATIONS)
    assert load(later, path, session).value == {"tokens": 161}
    turn = [*PROMPT, *said, 3]
    later.run(submit("two", turn, 12, cache=CacheTag(session=session, is_conversation=True)))
    assert reused(later, "two") == 161  # to the token
    assert_cold(later, submit("two", []), turn)
    later.run(submit("other", turn, 2, cache=CacheTag()))
    assert reused(later, "other") == 0


def test_conversation_is_saved_while_rows_run(tiny: Path, tmp_path: Path, driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    driver.tick(submit("busy", PROMPT[:20], 60), submit("next", [*PROMPT, 3], 60, cache=TAG))
    until(driver, lambda: len(driver.tokens("busy")) > 5)
    told = save(driver, tmp_path / "kv").value
    assert told["tokens"] == [*PROMPT, *driver.tokens("one")[:-1]]  # the answer that has ended
    assert save(driver, tmp_path / "kv").value["tokens"][:151] == [*PROMPT, 3]
    for name, prompt in (("busy", PROMPT[:20]), ("next", [*PROMPT, 3])):
        assert_cold(driver, submit(name, []), prompt, length=60)


def test_what_is_loaded_takes_part_beside_what_is_there(tmp_path: Path, driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    save(driver, tmp_path / "kv")
    driver.run(submit("two", [*PROMPT[:70], 99, 98], 12, cache=TAG))
    load(driver, tmp_path / "kv")
    turn = [*PROMPT, *driver.tokens("one"), 3]
    driver.run(submit("three", turn, 12, cache=TAG))
    assert reused(driver, "three") == 161
    assert_cold(driver, submit("three", []), turn)


def test_session_that_has_nothing_is_not_saved(tmp_path: Path, driver: Driver) -> None:
    reply = save(driver, tmp_path / "kv")
    assert code_of(reply) == "conversation_not_found"
    assert not (tmp_path / "kv").exists()


def test_file_that_cannot_be_written_is_told(tmp_path: Path, driver: Driver) -> None:
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    (tmp_path / "file").write_text("")
    assert code_of(save(driver, tmp_path / "file" / "kv")) == "conversation_not_saved"


def test_file_that_is_not_there_is_told(tmp_path: Path, driver: Driver) -> None:
    assert code_of(load(driver, tmp_path / "kv")) == "conversation_unreadable"
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    assert reused(driver, "one") == 0


def test_file_of_another_model_is_refused(tmp_path: Path, driver: Driver) -> None:
    other = Driver(build_tiny_checkpoint(tmp_path / "other", seed=1), cache=CONVERSATIONS)
    other.run(submit("one", PROMPT, 4, cache=TAG))
    assert code_of(save(other, tmp_path / "kv")) is None
    reply = load(driver, tmp_path / "kv")
    assert code_of(reply) == "conversation_unreadable"
    assert reply.error is not None
    assert "another model" in reply.error.message


@pytest.mark.parametrize("question", [Question.CONVERSATION_SAVE, Question.CONVERSATION_LOAD])
def test_models_of_snapshots_keep_no_conversations(
    tiny: Path, tmp_path: Path, question: Question
) -> None:
    with driven(GEMMA3):
        driver = Driver(tiny, cache=CONVERSATIONS)
    reply = answer(driver, question, path=str(tmp_path / "kv"), session="conv:trip")
    assert reply.error is not None
    assert reply.error.status == 501


def test_memory_that_is_full_is_told_and_the_worker_goes_on(
    tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    assert code_of(save(driver, tmp_path / "kv")) is None
    with monkeypatch.context() as patch:
        patch.setattr("mlxcel.engine.answers.files.ready", no_memory)
        patch.setattr("mlxcel.engine.cache.run_file.ReadRun.segment", no_memory)
        assert code_of(save(driver, tmp_path / "kv2")) == "conversation_not_saved"
        assert code_of(load(driver, tmp_path / "kv")) == "conversation_unreadable"
    driver.run(submit("two", PROMPT, 12, cache=TAG))
    assert_cold(driver, submit("two", []), PROMPT)


def test_weights_are_summed_once(
    tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    real = build.fingerprint

    def counted(network: Any) -> str:
        calls.append(network)
        return real(network)

    monkeypatch.setattr(build, "fingerprint", counted)
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    for _ in range(2):
        save(driver, tmp_path / "kv")
        load(driver, tmp_path / "kv")
    assert len(calls) == 1


def test_blocks_of_rows_that_run_are_told_in_bytes(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.tick(submit("one", PROMPT, 60))
    driver.tick(Ask(id="now", question=Question.CACHE_STATS))
    (told,) = [reply.value for frame in driver.frames for reply in frame.replies]
    assert told["paged_blocks_live"] == 10
    assert told["paged_bytes_in_use"] == told["paged_bytes_reserved"] == 10 * BLOCK
    driver.run()


def test_blocks_of_a_mode_are_as_small_as_what_it_keeps(tiny: Path) -> None:
    driver = Driver(tiny, cache={"kv": {"mode": "int8"}})
    driver.tick(submit("one", PROMPT, 60))
    driver.tick(Ask(id="now", question=Question.CACHE_STATS))
    (told,) = [reply.value for frame in driver.frames for reply in frame.replies]
    assert told["paged_blocks_live"] == 10
    assert 10 * BLOCK / 4 < told["paged_bytes_in_use"] < 10 * BLOCK / 2
    driver.run()


@pytest.mark.parametrize("enabled", [True, False])
def test_numbers_and_a_reset(tiny: Path, enabled: bool) -> None:
    driver = Driver(tiny, cache={"prompt": {"enabled": enabled}})
    driver.run(submit("one", PROMPT, 4, cache=CacheTag()))
    told = answer(driver, Question.CACHE_STATS).value
    assert (told["enabled"], told["entries"]) == (enabled, int(enabled))
    freed = answer(driver, Question.CACHE_RESET).value
    assert freed == {"cleared": True, "freed_bytes": told["bytes"], "freed_entries": int(enabled)}
    after = answer(driver, Question.CACHE_STATS).value
    assert (after["entries"], after["bytes"]) == (0, 0)
    assert after["lookups"] == told["lookups"]
