"""Rows of every sort beside the prompt cache: choices, adapters, bounds, chunks, constraints;
nobody can tell from the answer, and nothing stays behind."""

import re
from pathlib import Path
from typing import Any

import pytest

from mlxcel.core.cache import CacheTag
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.core.steering import Constraint
from mlxcel.generation.structured import compiled
from mlxcel.link.messages import Cancel, SetLora
from tests.engine.cache.warm_rows import (
    BLOCK,
    PROMPT,
    TAG,
    TOKEN,
    assert_cold,
    keeping,
    report,
    reused,
    stats,
    until,
)
from tests.engine.driver import Driver, submit
from tests.weights.adapters import lora_options, pairs, write_mlx

# Choices.


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_choices_adopt_once_and_each_leaves_its_answer(tiny: Path, parallel: int) -> None:
    driver = Driver(tiny, parallel=parallel)
    driver.run(submit("first", PROMPT, 2, cache=TAG))
    before = driver.stats.prompt_tokens
    request = submit("n", [*PROMPT, 3], 40, choices=3, temperature=1.0, seed=5, cache=TAG)
    driver.run(request)
    assert driver.stats.prompt_tokens - before == 150 - 128
    assert stats(driver)["lookups"] == 2
    assert_cold(driver, request, [*PROMPT, 3], choices=3, temperature=1.0, seed=5, length=40)
    for choice in range(3):
        driver.run(submit(f"t{choice}", [*PROMPT, 3, *driver.tokens("n", choice), 4], 2, cache=TAG))
        assert reused(driver, f"t{choice}") == 160  # 151 + 39, floored


def test_choice_that_is_ended_leaves_its_answer(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.tick(submit("n", PROMPT, 300, choices=2, temperature=1.0, seed=5, cache=TAG))
    until(driver, lambda: len(driver.tokens("n", 1)) >= 50)
    driver.tick(Cancel(id="n", choice=1))
    said = driver.tokens("n", 1)
    driver.run(Cancel(id="n"))
    driver.run(submit("t", [*PROMPT, *said[:50], 4], 2, cache=TAG))
    assert reused(driver, "t") == 192
    assert driver.stats.kv_blocks == 0


# Those who come together.


def test_second_of_two_waits_for_the_prefix_they_share(tiny: Path) -> None:
    driver = Driver(tiny)
    turns = [[*PROMPT, 5 + n, 6, 7] for n in range(3)]
    driver.run(*(submit(f"t{n}", turn, 12, cache=TAG) for n, turn in enumerate(turns)))
    assert [reused(driver, f"t{n}") for n in range(3)] == [0, 128, 128]
    assert driver.stats.prompt_tokens == 152 + 2 * 24
    for n, turn in enumerate(turns):
        assert_cold(driver, submit(f"t{n}", turn), turn)


@pytest.mark.parametrize(
    ("tags", "shared", "together"),
    [
        pytest.param([TAG, TAG], 32, True, id="less-than-half"),
        pytest.param([TAG, TAG], 59, True, id="just-less-than-half"),
        pytest.param([TAG, TAG], 60, False, id="half"),
        pytest.param([TAG, CacheTag(session="b")], 100, True, id="two-sessions"),
        pytest.param([TAG, None], 100, True, id="cold"),
        pytest.param([None, TAG], 100, True, id="cold-first"),
    ],
)
def test_prompts_are_read_together_unless_one_has_most_of_the_other(
    tiny: Path, tags: list[CacheTag | None], shared: int, together: bool
) -> None:
    driver = Driver(tiny)
    rows = [PROMPT[:120], [*PROMPT[:shared], *[99] * (120 - shared)]]
    driver.run(*(submit(f"r{n}", rows[n], 4, cache=tags[n]) for n in range(2)))
    assert driver.stats.prefill_chunks == (1 if together else 2)


def test_prompt_that_is_kept_is_not_read_in_a_cohort(tiny: Path) -> None:
    driver = Driver(tiny)
    driver.run(submit("first", PROMPT, 2, cache=TAG))
    other = [2 + (11 * i) % 90 for i in range(60)]
    before = driver.stats.prompt_tokens
    driver.run(submit("new", other, 12, cache=TAG), submit("known", PROMPT, 12, cache=TAG))
    assert (reused(driver, "new"), reused(driver, "known")) == (0, 128)
    assert driver.stats.prompt_tokens - before == 59 + 149 - 128
    assert_cold(driver, submit("known", PROMPT), PROMPT)


def test_prompts_that_share_less_than_is_ever_adopted_are_read_together(tiny: Path) -> None:
    driver = Driver(tiny)
    rows = [PROMPT[:50], [*PROMPT[:31], *[99] * 19]]
    driver.run(*(submit(f"r{n}", row, 4, cache=TAG) for n, row in enumerate(rows)))
    assert driver.stats.prefill_chunks == 1


# Adapters.


@pytest.fixture
def adapted(tiny: Path, tmp_path: Path) -> Driver:
    folders = [write_mlx(tmp_path / "0"), write_mlx(tmp_path / "1", pairs(seed=1))]
    return Driver(tiny, lora=lora_options(*folders, scales=[1.0, 0.0]))


def test_other_scales_find_nothing(adapted: Driver) -> None:
    adapted.run(submit("one", PROMPT, 4, cache=TAG))
    adapted.run(submit("own", PROMPT, 4, cache=TAG, lora=((1, 1.0),)))
    adapted.run(SetLora(((0, 0.5),)), submit("set", PROMPT, 4, cache=TAG))
    adapted.run(SetLora(((0, 1.0),)), submit("back", PROMPT, 4, cache=TAG))
    assert [reused(adapted, name) for name in ("own", "set", "back")] == [0, 0, 128]
    for name in ("own", "set"):
        found = report(adapted, name).diverged
        assert found is not None
        assert found.differs == ("lora",)


# Bounds.


@pytest.mark.parametrize(("cap", "expected"), [(64, 0), (150, 128), (500, 128)])
def test_prompt_that_was_trimmed_is_not_kept(tiny: Path, cap: int, expected: int) -> None:
    options = {"max_kv_size": cap}
    driver = Driver(tiny, cache=options, prefill_chunk_size=32)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    driver.run(submit("two", [*PROMPT, 3], 12, cache=TAG))
    assert reused(driver, "two") >= expected if cap == 64 else reused(driver, "two") == expected
    off = {"prompt": {"enabled": False}}
    alone = Driver(tiny, cache=options | off, prefill_chunk_size=32)
    assert driver.tokens("two") == alone.alone(submit("two", [*PROMPT, 3], 12))


def test_row_that_was_trimmed_while_it_answered_is_not_kept(tiny: Path) -> None:
    driver = Driver(tiny, cache={"max_kv_size": 160})
    driver.run(submit("one", PROMPT, 60, cache=TAG))
    driver.run(submit("two", [*PROMPT, *driver.tokens("one"), 3], 12, cache=TAG))
    assert reused(driver, "two") == 128  # of the prompt alone


def budget(blocks: int) -> dict[str, Any]:
    return {"kv_budget": blocks * BLOCK, "kv_watermark": 0.0}


def test_rows_have_the_budget_first(tiny: Path) -> None:
    """10 blocks hold 160 tokens, of which the prompt leaves 6 to the next request."""
    driver = Driver(tiny, cache=budget(20))
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    assert keeping(driver).nbytes == 153 * TOKEN
    other = [2 + (11 * i) % 90 for i in range(170)]
    driver.tick(submit("two", other, 100, cache=CacheTag(session="b")))
    until(driver, lambda: len(driver.tokens("two")) > 30)
    assert driver.stats.kv_blocks == 14  # of 20
    assert keeping(driver).nbytes <= 6 * BLOCK
    driver.run()
    assert driver.stats.kv_blocks == 0


def test_prompt_adopts_what_has_to_make_room_for_it(tiny: Path) -> None:
    """10 blocks for the row, 10 for what is kept: one of the two must go, and is used before."""
    driver = Driver(tiny, cache=budget(12))
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    request = submit("two", [*PROMPT, 3], 12, cache=TAG)
    driver.tick(request)
    assert keeping(driver).nbytes <= 2 * BLOCK
    driver.run()
    assert reused(driver, "two") == 128
    assert_cold(driver, request, [*PROMPT, 3])


def test_what_a_prompt_adopts_is_the_last_to_make_room(tiny: Path) -> None:
    driver = Driver(tiny, cache=budget(18))
    driver.run(submit("one", PROMPT[:60], 2, cache=TAG))
    driver.run(submit("other", [9, *PROMPT[:89]], 2, cache=TAG))  # used later, and larger
    assert keeping(driver).nbytes == (61 + 91) * TOKEN  # a row of 10 blocks leaves 128
    driver.run(submit("two", PROMPT, 4, cache=TAG))
    assert reused(driver, "two") == 32
    driver.run(submit("again", [9, *PROMPT[:89]], 2, cache=TAG))
    assert reused(driver, "again") == 0


def test_entry_that_was_adopted_from_is_not_the_oldest(tiny: Path) -> None:
    driver = Driver(tiny, cache={"prompt": {"max_entries": 3}})
    driver.run(submit("a", PROMPT, 2, cache=TAG))
    driver.run(submit("b", [9, *PROMPT], 2, cache=TAG))
    driver.run(submit("like-a", [*PROMPT[:64], *[99] * 40], 2, cache=TAG))
    driver.run(submit("c", [8, *PROMPT], 2, cache=TAG))
    driver.run(submit("a2", PROMPT, 2, cache=TAG), submit("b2", [9, *PROMPT], 2, cache=TAG))
    assert [reused(driver, name) for name in ("like-a", "c", "a2", "b2")] == [64, 0, 128, 0]


def test_larger_than_the_cache_is_told_once(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(tiny, cache={"prompt": {"capacity_bytes": 100 * TOKEN}})
    for n in range(2):
        driver.run(submit(f"r{n}", [n, *PROMPT], 4, cache=TAG))
    assert keeping(driver).nbytes == 0
    assert sum("does not fit into the prompt cache" in line for line in caplog.messages) == 1


# Chunks, mixed steps, KV modes, constraints.


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
def test_chunks_of_a_prompt_beside_rows_that_decode(tiny: Path, mixed: bool) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=2, mixed_step=mixed)
    driver.tick(submit("busy", PROMPT[:20], 60, cache=TAG))
    driver.run(submit("one", PROMPT, 12, cache=TAG))
    driver.tick(submit("busy2", PROMPT[:20], 60, cache=TAG))
    driver.run(submit("two", [*PROMPT[:140], 3, *PROMPT], 12, cache=TAG))
    assert reused(driver, "two") == 128
    for name, prompt in (("one", PROMPT), ("two", [*PROMPT[:140], 3, *PROMPT])):
        assert_cold(driver, submit(name, prompt), prompt)
    assert driver.stats.mixed_steps > 0 if mixed else driver.stats.prefill_grants > 0


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
def test_prompt_in_chunks_is_there_while_its_answer_is_said(tiny: Path, mixed: bool) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=1, mixed_step=mixed)
    driver.tick(submit("busy", PROMPT[:20], 300))
    driver.tick(submit("one", PROMPT, 300, cache=TAG))
    until(driver, lambda: bool(driver.tokens("one")))
    driver.tick(submit("two", [*PROMPT, 3], 4, cache=TAG))
    until(driver, lambda: len(driver.tokens("two")) == 4)
    driver.run(Cancel(id="one"), Cancel(id="busy"))
    assert reused(driver, "two") == 128


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
def test_cancelled_chunks_are_kept(tiny: Path, mixed: bool) -> None:
    driver = Driver(tiny, prefill_chunk_size=16, prefill_grant_interval=1, mixed_step=mixed)
    driver.tick(submit("busy", PROMPT[:20], 60))
    driver.tick(submit("one", PROMPT, 12, cache=TAG))
    until(driver, lambda: driver.stats.prompt_tokens >= 19 + 96)
    driver.run(Cancel(id="one"))
    driver.run(submit("two", PROMPT, 12, cache=TAG))
    assert reused(driver, "two") == 96
    assert_cold(driver, submit("two", PROMPT), PROMPT)


def test_constrained_row_leaves_what_it_said(tiny: Path) -> None:
    driver = Driver(tiny)
    source = compiled(OutputFormat(kind=OutputKind.REGEX, source="[0-9]{80}"))
    digits = Constraint(grammar=source)
    driver.run(submit("one", PROMPT, 100, constraint=digits, cache=TAG))
    said = driver.tokens("one")
    assert re.fullmatch(r"[0-9]{80}", bytes(said).decode())
    driver.run(submit("two", [*PROMPT, *said, 3], 12, cache=TAG))
    assert reused(driver, "two") == 224  # 150 + 79
    assert_cold(driver, submit("two", []), [*PROMPT, *said, 3])
    driver.run(submit("three", [*PROMPT, 3], 100, constraint=digits, cache=TAG))
    assert reused(driver, "three") == 128


def test_mode_of_its_own_is_adopted_by_many(tiny: Path) -> None:
    options = {"kv": {"mode": "int8"}}
    driver = Driver(tiny, cache=options)
    driver.run(submit("one", PROMPT, 4, cache=TAG))
    turns = [[*PROMPT, 3 + n, 4] for n in range(3)]
    driver.run(*(submit(f"t{n}", turn, 12, cache=TAG) for n, turn in enumerate(turns)))
    alone = Driver(tiny, cache=options | {"prompt": {"enabled": False}})
    for n, turn in enumerate(turns):
        assert reused(driver, f"t{n}") == 128
        assert driver.tokens(f"t{n}") == alone.alone(submit(f"t{n}", turn, 12))
