"""Answers that end, are cancelled or driven out in the middle of an accepted run: text, counts and
what the prompt cache keeps are those of the plain engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mlxcel.core.cache import CacheTag
from mlxcel.core.request import Lane
from mlxcel.core.steering import LoopGuard, Thinking
from mlxcel.engine.draft.base import RowDraft
from mlxcel.link.messages import Cancel, RowFinished, Submit, ToWorker, unpack_tokens
from tests.engine.draft.scripted import drafting
from tests.engine.draft.test_greedy_equality import FULL, LOOKUP
from tests.engine.draft.test_rounds import Oracle
from tests.engine.driver import Driver, submit

LENGTH = 20
EXAMPLES = 3
ENGINE: dict[str, Any] = {
    "parallel": 2,
    "preemption": "lowest-priority",
    "cache": {"conversations": {"enabled": True}, "prompt": {"min_prefix": 1}},
}
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
]
THINKING = Thinking(open_ids=(60,), close_ids=(62, 10), message_ids=(33,), budget=5, is_open=True)
RUNS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
SESSIONS = count()


@dataclass(frozen=True, slots=True)
class Setup:
    """One engine for all examples: what one leaves behind would show in the next."""

    driver: Driver
    answers: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """What scripted drafters know."""
    made: list[RowDraft] = field(default_factory=list)

    def knows(self, request: Submit, answer: list[int]) -> None:
        self.answers[tuple(unpack_tokens(request.tokens))] = answer


def scripted(kind: str) -> Callable[[Path, Path], Setup]:
    def make(tiny: Path, _: Path) -> Setup:
        answers: dict[tuple[int, ...], list[int]] = {}
        with drafting(Oracle(answers, kind)) as made:
            return Setup(Driver(tiny, **ENGINE), answers, made)

    return make


SETUPS: dict[str, Callable[[Path, Path], Setup]] = {
    "right": scripted("right"),
    "mixed": scripted("mixed"),
    "lookup": lambda tiny, _: Setup(Driver(tiny, draft=LOOKUP, **ENGINE)),
    "full": lambda tiny, other: Setup(Driver(tiny, draft=FULL, drafter=tiny, **ENGINE)),
}


NAMES = ["right", *(pytest.param(n, marks=pytest.mark.long) for n in SETUPS if n != "right")]


@lru_cache
def setup_of(name: str, tiny: Path, other: Path) -> Setup:
    return SETUPS[name](tiny, other)


@lru_cache
def plain_of(tiny: Path) -> Driver:
    return Driver(tiny, **ENGINE)


def tick(driver: Driver, *messages: ToWorker) -> None:
    """And the KV of each row holds prompt and answer but the last token, or what is in flight."""
    driver.tick(*messages)
    decoder = driver.worker._scheduler._decoder
    for place, row in enumerate(decoder.rows):
        assert decoder._kv._lengths[place] == row.kv_length  # type: ignore[attr-defined]
        assert row.started - len(row.output) == decoder.is_flying


def told(driver: Driver, request: Submit) -> tuple[Any, ...]:
    """Of a request that has ended."""
    texts = [driver.tokens(request.id, choice) for choice in range(request.choices)]
    reasons = [driver.reason(request.id, choice) for choice in range(request.choices)]
    return texts, reasons, driver.finish(request.id).usage


def run(driver: Driver, *messages: ToWorker) -> None:
    tick(driver, *messages)
    for _ in range(500):
        if not (driver.worker._scheduler.held or driver.worker._scheduler.active):
            break
        tick(driver)
    driver.run()


def until(driver: Driver, request: Submit, said: int) -> None:
    """The request has begun, and said so many tokens."""
    tick(driver, request)
    for _ in range(200):
        if len(driver.tokens(request.id)) >= said:
            return
        tick(driver)
    raise AssertionError("it says nothing")


def is_clean(driver: Driver) -> None:
    driver.run()
    stats = driver.stats
    assert (stats.active, stats.waiting, stats.kv_blocks, stats.kv_bytes) == (0, 0, 0, 0)


@st.composite
def requests(draw: st.DrawFn) -> Submit:
    prompt = draw(st.lists(st.integers(0, 255), min_size=1, max_size=24))
    options = draw(st.sampled_from(SAMPLINGS))
    seed = draw(st.integers(0, 2**32 - 1))
    tag = CacheTag(session=f"s{next(SESSIONS)}")
    return submit("r", prompt, LENGTH, seed=seed, cache=tag, **options)


def begun(plain: Driver, setup: Setup, request: Submit) -> list[int]:
    """Both have nothing to say; the drafters know what comes. -> the whole answer."""
    plain.frames.clear()
    setup.driver.frames.clear()
    run(plain, replace(request, cache=None, id="whole"))
    whole = plain.tokens("whole")
    setup.answers.clear()
    setup.made.clear()
    setup.knows(request, whole)
    return whole


def goes_on(plain: Driver, setup: Setup, request: Submit, said: list[int]) -> tuple[int, int]:
    """A request that continues the text says the same. -> the tokens that each had kept."""
    prompt = [*unpack_tokens(request.tokens), *said, 7, 8]
    more = submit("s", prompt, 9, temperature=1.0, seed=5, cache=request.cache)
    run(plain, more)
    setup.knows(more, plain.tokens("s"))
    run(setup.driver, more)
    assert setup.driver.tokens("s") == plain.tokens("s")
    for driver in (plain, setup.driver):
        is_clean(driver)
    kept = [d.finish("s").usage.cached_tokens or 0 for d in (plain, setup.driver)]
    return kept[0], kept[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["eos", "limit", "loop", "thinking"])
def test_it_ends_by_itself(tiny: Path, other: Path, name: str, end: str) -> None:
    cut = 0

    @settings(max_examples=EXAMPLES, **RUNS)
    @given(request=requests(), where=st.integers(1, LENGTH - 2))
    def check(request: Submit, where: int) -> None:
        nonlocal cut
        plain, setup = plain_of(tiny), setup_of(name, tiny, other)
        if end == "loop":
            request = replace(request, loop=LoopGuard(shortest=1, longest=4, count=2))
        if end == "thinking":
            request = replace(request, thinking=THINKING)
        whole = begun(plain, setup, request)
        if end == "eos":
            request = replace(request, eos_ids=(whole[where],))
        elif end == "limit":
            request = replace(request, max_tokens=where)
        # What would come after the end: a drafter that knows it makes runs beyond it.
        free = replace(request, id="free", loop=None, eos_ids=(-1,), cache=None, max_tokens=LENGTH)
        run(plain, free)
        setup.knows(request, plain.tokens("free"))
        run(plain, request)
        run(setup.driver, request)
        assert told(setup.driver, request) == told(plain, request)
        said = plain.tokens("r")
        drafted = setup.driver.finish("r").timings.drafted
        if drafted is not None and end == "eos":
            # Each round says one token beside those that came true; the end itself is not said.
            cut += drafted.rounds + drafted.accepted > len(said) + 1
        theirs, mine = goes_on(plain, setup, request, said)
        read = len(unpack_tokens(request.tokens)) + len(said) - 1
        if end == "eos":  # the end itself was drawn from all that was said
            assert mine == theirs == read + 1
        elif end == "loop":  # a step that ran ahead, or a run, has read the last token too
            assert read <= mine <= theirs == read + 1 or whole == said
        else:
            assert mine == theirs == read

    check()
    assert cut or end != "eos" or name != "right", "no answer ended in the middle of a run"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choices", [1, 2])
def test_nobody_reads_it_any_more(tiny: Path, other: Path, name: str, choices: int) -> None:
    """One choice: a client has gone. Two: a stop string ends the first, which the front alone
    knows, and the other goes on."""

    @settings(max_examples=EXAMPLES, **RUNS)
    @given(request=requests(), where=st.integers(1, LENGTH - 8))
    def check(request: Submit, where: int) -> None:
        plain, setup = plain_of(tiny), setup_of(name, tiny, other)
        whole = begun(plain, setup, request)
        request = replace(request, choices=choices)
        for driver in (plain, setup.driver):
            until(driver, request, where)
            if choices == 1:
                run(driver, Cancel(id="r"))
                assert not [e for e in driver.events("r") if isinstance(e, RowFinished)]
            else:
                run(driver, Cancel(id="r", choice=0))
                (texts, _, usage) = told(driver, request)
                assert usage.completion_tokens == sum(map(len, texts))
        mine, theirs = setup.driver.tokens("r"), plain.tokens("r")
        assert where <= len(mine) < LENGTH
        assert mine == whole[: len(mine)]
        if choices == 2:
            assert setup.driver.tokens("r", 1) == plain.tokens("r", 1)
        both = min(mine, theirs, key=len)
        kept = goes_on(plain, setup, request, both)
        read = len(unpack_tokens(request.tokens)) + len(both)
        assert all(read - 1 <= one <= read for one in kept), (kept, read)
        if len(mine) > len(both):
            assert kept[1] == read

    check()


@pytest.mark.parametrize("name", NAMES)
def test_others_go_first(tiny: Path, other: Path, name: str) -> None:
    """A row of the lowest lane is driven out in mid-answer and comes back without its drafter."""

    @settings(max_examples=EXAMPLES, **RUNS)
    @given(request=requests(), where=st.integers(1, LENGTH - 12), beside=st.booleans())
    def check(request: Submit, where: int, beside: bool) -> None:
        plain, setup = plain_of(tiny), setup_of(name, tiny, other)
        driver = setup.driver
        request = replace(request, lane=Lane.LOW)
        whole = begun(plain, setup, request)
        penalty: dict[str, Any] = {"presence_penalty": 0.7} if beside else {}
        low = submit("low", [9, 9, 4], LENGTH, temperature=1.0, seed=3, **penalty)
        first = [submit(f"h{n}", [n, 4], 7, temperature=1.0, seed=n) for n in range(2)]
        first = [replace(one, lane=Lane.HIGH) for one in first]
        for one in (low, *first):
            run(plain, one)
            setup.knows(one, plain.tokens(one.id))
        run(plain, request)
        tick(driver, low)
        until(driver, request, where)
        before = driver.stats.preemptions
        run(driver, *first)
        assert driver.stats.preemptions > before
        for one in (low, request, *first):
            assert told(driver, one) == told(plain, one), one.id
        assert driver.tokens("r") == whole
        assert len(setup.made) in (0, 4 - beside), "one that came back was given a drafter"
        theirs, mine = goes_on(plain, setup, request, whole)
        assert mine == theirs

    check()


@pytest.mark.parametrize("name", ["right", "lookup"])
def test_a_prompt_that_was_kept_is_known_to_the_drafter(tiny: Path, other: Path, name: str) -> None:
    """All of it, though most is not read again (contract speculative, 4)."""
    setup = setup_of(name, tiny, other)
    driver = setup.driver
    tag = CacheTag(session=f"s{next(SESSIONS)}")
    text = [(n * 7) % 250 for n in range(60)]
    driver.frames.clear()
    run(driver, submit("a", text, 1, cache=tag))
    # The answer repeats the beginning of the prompt, which was adopted: a bias holds it there.
    again = submit("b", [*text, text[0]], 12, cache=tag, bias=tuple((t, 99.0) for t in text[:9]))
    setup.made.clear()
    plain = plain_of(tiny)
    plain.frames.clear()
    run(plain, replace(again, cache=None))
    setup.knows(again, plain.tokens("b"))
    run(driver, again)
    assert driver.tokens("b") == plain.tokens("b")
    end = driver.finish("b")
    assert end.usage.cached_tokens == 60
    assert end.timings.drafted is not None
    if name == "right":
        (draft,) = setup.made
        assert draft.drafter.heard[:61] == [*text, text[0]]  # type: ignore[attr-defined]
    else:
        assert end.timings.drafted.proposed
