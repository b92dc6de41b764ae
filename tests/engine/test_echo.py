"""The scripted engine, ticked by hand with a clock of our own."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from mlxcel.core.byte_vocab import ASSISTANT, BOS, END, EOS, SYSTEM, TOOL, USER
from mlxcel.core.errors import StartupError
from mlxcel.core.events import FinishReason
from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.echo import EchoWorker
from mlxcel.engine.echo_script import heard
from mlxcel.link.messages import (
    Ask,
    Cancel,
    EndThinking,
    Frame,
    Question,
    RowAccepted,
    RowEnded,
    RowEvent,
    RowFailed,
    RowFinished,
    RowProgress,
    RowPrompt,
    RowStarted,
    RowTokens,
    Submit,
    TokenScores,
    ToWorker,
)


class Bench:
    """An engine and a clock that moves only when it is told."""

    def __init__(self, **changes: Any) -> None:
        self.now = 100.0
        options = {
            "script": [],
            "faults": [],
            "delay_ms": 0,
            "window": 64,
            "scheduler": {"parallel": 2, "max_batch_size": None, "no_batch": False},
            "max_queue_depth": 1,
            "ctx_size": 0,
        }
        self.worker = EchoWorker(options | changes, clock=lambda: self.now)
        self.model = self.worker.setup({}, lambda step, fraction: None)
        self.sleep_s: float | None = 0.0
        self.frame: Frame | None = None

    def tick(self, *inbox: ToWorker) -> list[RowEvent]:
        self.frame, self.sleep_s = self.worker.tick(list(inbox))
        return [] if self.frame is None else self.frame.events

    def run(self, *inbox: ToWorker) -> list[RowEvent]:
        events = self.tick(*inbox)
        while self.sleep_s is not None:
            self.now += self.sleep_s
            events += self.tick()
        return events


def submit(request_id: str, text: str, *, max_tokens: int = 1000, **fields: Any) -> Submit:
    tokens = [USER, *text.encode(), END, ASSISTANT]
    return Submit(
        id=request_id,
        tokens=struct.pack(f"<{len(tokens)}i", *tokens),
        sampling=SamplingParams(),
        max_tokens=max_tokens,
        eos_ids=(END,),
        **fields,
    )


def said(events: Sequence[RowEvent], request_id: str = "a") -> str:
    rows = [e for e in events if isinstance(e, RowTokens) and e.id == request_id]
    return bytes(token for row in rows for token in row.ids).decode()


def ending(events: Sequence[RowEvent], request_id: str = "a") -> FinishReason | str:
    for event in events:
        if event.id == request_id and isinstance(event, RowEnded):
            return event.reason
        if event.id == request_id and isinstance(event, RowFailed):
            return event.error.code
    raise AssertionError("the row did not end")


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        pytest.param([BOS, USER, *b"hi", END, ASSISTANT], "hi", id="one-turn"),
        pytest.param(
            [SYSTEM, *b"s", END, USER, *b"a", END, ASSISTANT, *b"b", END, USER, *b"c", END],
            "c",
            id="the-last-of-two",
        ),
        pytest.param([USER, *"é€".encode(), END], "é€", id="utf-8"),
        pytest.param([USER, 0xFF, END], "\ufffd", id="broken-utf-8"),
        pytest.param([USER, *b"open"], "open", id="not-ended"),
        pytest.param([SYSTEM, *b"s", END, ASSISTANT], "", id="no-user"),
    ],
)
def test_the_last_user_message_is_found(tokens: list[int], text: str) -> None:
    assert heard(tokens) == (text,)


RESULT = [USER, *b"u", END, ASSISTANT, *b"a", END, TOOL, *b"r", END, TOOL, *b"s", END]


@pytest.mark.parametrize(
    ("tokens", "texts"),
    [
        pytest.param([*RESULT, ASSISTANT], ("s", "u"), id="the-last-of-two"),
        pytest.param([*RESULT, USER, *b"v", END, ASSISTANT], ("v",), id="answered-since"),
        pytest.param([TOOL, *b"r", END], ("r", ""), id="no-user"),
    ],
)
def test_the_result_of_a_tool_is_heard_first(tokens: list[int], texts: tuple[str, ...]) -> None:
    assert heard(tokens) == texts


@pytest.mark.parametrize(
    ("when", "said_then"),
    [
        pytest.param("^s$", "line", id="the-result"),
        pytest.param("^u$", "line", id="the-user"),
        pytest.param("^no$", "u", id="neither"),
    ],
)
def test_a_line_is_looked_for_in_both(when: str, said_then: str) -> None:
    tokens = [*RESULT, ASSISTANT]
    packed = struct.pack(f"<{len(tokens)}i", *tokens)
    bench = Bench(script=[{"when": when, "say": "line"}])
    assert said(bench.run(structs.replace(submit("a", ""), tokens=packed))) == said_then


def test_a_line_for_the_result_beats_an_earlier_one_for_the_user() -> None:
    tokens = [*RESULT, ASSISTANT]
    packed = struct.pack(f"<{len(tokens)}i", *tokens)
    bench = Bench(script=[{"when": "^u$", "say": "user"}, {"when": "^s$", "say": "result"}])
    assert said(bench.run(structs.replace(submit("a", ""), tokens=packed))) == "result"


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        pytest.param([*b"no marker"], "no marker", id="text"),
        pytest.param([BOS, *"é€".encode()], "é€", id="text-behind-its-beginning"),
        pytest.param([*b"a", EOS, 263, *b"b"], "ab", id="tokens"),
        pytest.param([], "", id="nothing"),
        pytest.param([*b"a", USER, *b"b", END, ASSISTANT, *b"c"], "b", id="chat"),
        pytest.param([BOS, SYSTEM, *b"s", END, ASSISTANT], "", id="chat-without-a-user"),
    ],
)
def test_a_text_is_heard_whole_and_of_a_chat_the_last_message(tokens: list[int], text: str) -> None:
    assert heard(tokens) == (text,)


def test_without_a_script_the_message_comes_back_byte_by_byte() -> None:
    bench = Bench()
    events = bench.run(submit("a", "h€y"))
    assert events[0] == RowAccepted("a")
    assert [e.ids for e in events if isinstance(e, RowTokens)] == [[b] for b in "h€y".encode()]
    assert ending(events) is FinishReason.EOS


def test_the_first_line_that_matches_is_said() -> None:
    script = [{"when": "capital", "say": "Paris"}, {"when": ".", "say": "what?"}]
    events = Bench(script=script).run(submit("a", "the capital?"), submit("b", "well"))
    assert (said(events, "a"), said(events, "b")) == ("Paris", "what?")


@pytest.mark.parametrize(
    ("text", "max_tokens", "window", "reason", "length"),
    [
        pytest.param("12345", 5, 64, FinishReason.LENGTH, 5, id="max-tokens-before-eos"),
        pytest.param("12345", 6, 64, FinishReason.EOS, 5, id="eos-in-time"),
        pytest.param("12345", 1000, 11, FinishReason.CONTEXT, 2, id="window-is-full"),
        pytest.param("12345", 2, 11, FinishReason.LENGTH, 2, id="length-before-context"),
        pytest.param("12345", 1000, 8, "context_length_exceeded", 0, id="prompt-fills-window"),
    ],
)
def test_a_row_ends_at_its_bound(
    text: str, max_tokens: int, window: int, reason: FinishReason | str, length: int
) -> None:
    events = Bench(window=window).run(submit("a", text, max_tokens=max_tokens))
    assert (ending(events), len(said(events))) == (reason, length)


@pytest.mark.parametrize(
    ("ctx_size", "window"),
    [pytest.param(0, 0, id="the-models-own"), pytest.param(40, 20, id="divided-by-slots")],
)
def test_the_window_of_a_slot(ctx_size: int, window: int) -> None:
    model = Bench(ctx_size=ctx_size).model
    assert (model.context_window, model.train_window) == (window, 64)


def test_at_most_parallel_rows_speak_and_the_rest_wait_in_order() -> None:
    bench = Bench(max_queue_depth=8)
    events = bench.tick(*(submit(name, "xy") for name in "abcd"))
    assert bench.frame is not None
    assert (bench.frame.stats.active, bench.frame.stats.waiting) == (2, 2)
    assert {e.id for e in events if isinstance(e, RowTokens)} == {"a", "b"}
    events += bench.run()
    assert [e.id for e in events if isinstance(e, RowFinished)] == ["a", "b", "c", "d"]


def test_a_full_queue_refuses_at_once() -> None:
    bench = Bench()
    events = bench.tick(*(submit(name, "xy") for name in "abcd"))
    assert [e.id for e in events if isinstance(e, RowAccepted)] == ["a", "b", "c"]
    assert ending(events, "d") == "server_busy"


@pytest.mark.parametrize("victim", ["a", "c"], ids=["speaking", "waiting"])
def test_a_cancelled_request_says_nothing_more_and_frees_its_place(victim: str) -> None:
    bench = Bench()
    bench.tick(*(submit(name, "xyz") for name in "abc"))
    events = bench.run(Cancel(id=victim), submit("d", "new"))
    assert said(events, victim) == ""
    assert victim not in {e.id for e in events}
    assert said(events, "d") == "new"


def test_a_cancel_shows_in_the_counters_although_nothing_is_said() -> None:
    bench = Bench(delay_ms=1000)
    bench.tick(submit("a", "xyz"))
    assert bench.tick(Cancel(id="a")) == []
    assert bench.frame is not None
    assert bench.frame.stats.active == 0


def test_no_news_is_no_frame() -> None:
    bench = Bench()
    bench.run(submit("a", "x"))
    assert bench.tick() == []
    assert bench.frame is None


def test_the_delay_paces_each_row_by_itself() -> None:
    bench = Bench(delay_ms=100)
    bench.tick(submit("a", "xy"))
    assert bench.sleep_s == pytest.approx(0.1)
    bench.now += 0.06
    assert said(bench.tick(submit("b", "xy")), "a") == ""
    bench.now += 0.05
    events = bench.tick()
    assert (said(events, "a"), said(events, "b")) == ("x", "")
    assert bench.sleep_s == pytest.approx(0.05)


def test_timings_and_counts_of_a_paced_row() -> None:
    bench = Bench(delay_ms=100)
    events = bench.run(submit("a", "xyz", max_tokens=3))
    last = events[-1]
    assert isinstance(last, RowFinished)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (6, 3)
    assert last.timings.queued_ms == 0
    assert last.timings.prompt_ms == pytest.approx(100)
    assert last.timings.decode_ms == pytest.approx(200)


def test_an_error_fault_fails_one_row() -> None:
    bench = Bench(faults=[{"when": "^bad", "at_token": 2, "kind": "error"}])
    events = bench.run(submit("a", "bad one"), submit("b", "good one"))
    assert (said(events, "a"), ending(events, "a")) == ("ba", "generation_failed")
    assert said(events, "b") == "good one"


def test_a_crash_outside_a_process_of_its_own_is_an_exception() -> None:
    bench = Bench(faults=[{"when": "x", "at_token": 0, "kind": "crash"}])
    with pytest.raises(RuntimeError, match="scripted crash at token 0"):
        bench.tick(submit("a", "x"))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        pytest.param({"script": [{"when": "(", "say": ""}]}, r"engine.script\[0\]", id="script"),
        pytest.param(
            {"faults": [{"when": "*", "at_token": 0, "kind": "hang"}]},
            r"engine.faults\[0\]",
            id="fault",
        ),
    ],
)
def test_a_bad_expression_names_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(StartupError, match=key):
        Bench(**changes)


def test_every_choice_says_the_same_and_is_counted() -> None:
    events = Bench().run(submit("a", "ab", choices=3))
    for choice in range(3):
        own = [e for e in events if isinstance(e, RowTokens) and e.choice == choice]
        assert [token for event in own for token in event.ids] == [*b"ab"]
    assert [e.choice for e in events if isinstance(e, RowEnded)] == [0, 1, 2]
    (finished,) = [e for e in events if isinstance(e, RowFinished)]
    assert finished.usage.completion_tokens == 6


def test_a_script_is_certain_of_its_tokens() -> None:
    events = Bench().run(submit("a", "\x01", top_logprobs=3))
    (told,) = [e.scores for e in events if isinstance(e, RowTokens)]
    assert told == [TokenScores(0.0, [(1, 0.0), (0, -100.0), (2, -100.0)])]


def test_a_script_is_certain_of_its_prompt_before_it_speaks() -> None:
    events = Bench().run(
        submit("a", "h", top_logprobs=1, scores_prompt=True, tells_progress=True, max_tokens=1)
    )
    kinds = [type(event) for event in events[:5]]
    assert kinds == [RowAccepted, RowProgress, RowProgress, RowPrompt, RowStarted]
    told = [(e.total, e.cached, e.processed) for e in events if isinstance(e, RowProgress)]
    assert told == [(4, 0, 0), (4, 0, 4)]
    (scores,) = [e.scores for e in events if isinstance(e, RowPrompt)]
    assert scores == [TokenScores(0.0, [(token, 0.0)]) for token in (ord("h"), END, ASSISTANT)]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_prompt_that_is_only_scored_is_heard_and_nothing_said(slots: int) -> None:
    bench = Bench(scheduler={"parallel": slots, "max_batch_size": None, "no_batch": False})
    bench.tick(submit("busy", "xy"))
    events = bench.run(submit("a", "hi", scores_prompt=True, max_tokens=0, choices=2))
    own = [event for event in events if event.id == "a"]
    kinds = [type(event) for event in own]
    assert kinds == [RowAccepted, RowPrompt, RowEnded, RowEnded, RowFinished]
    assert [e.reason for e in own if isinstance(e, RowEnded)] == [FinishReason.LENGTH] * 2
    (told,) = [e.scores for e in own if isinstance(e, RowPrompt)]
    assert told == [TokenScores(0.0, [])] * 4
    assert said(events, "busy") == "y"


def test_a_script_does_not_think() -> None:
    bench = Bench()
    events = bench.tick(submit("a", "xy"))
    events += bench.run(EndThinking("a"), EndThinking("unknown"))
    assert said(events) == "xy"


def test_steps_are_counted_by_their_rows() -> None:
    bench = Bench(window=16)
    bench.tick(submit("a", "xy"), submit("b", "xyz"))
    bench.tick()
    bench.run()
    assert bench.frame is not None
    stats = bench.frame.stats
    # Two of two rows, one at whose beginning the shorter one ends, one at which the other does.
    assert (stats.decode_steps, stats.decode_rows, stats.longest) == (4, 7, 9)
    assert stats.batch_sizes == (1, 3, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("question", list(Question))
def test_every_question_is_answered_in_the_next_frame(question: Question) -> None:
    bench = Bench()
    bench.tick(submit("a", "x"), Ask(id="q", question=question))
    assert bench.frame is not None
    (reply,) = bench.frame.replies
    assert reply.id == "q"
    match question:
        case Question.CACHE_STATS:
            assert (reply.value["enabled"], reply.value["lookups"]) == (False, 0)
        case Question.CACHE_RESET:
            assert reply.value == {"cleared": True, "freed_bytes": 0, "freed_entries": 0}
        case _:
            assert reply.error is not None
            assert (reply.error.status, reply.value) == (501, {})
    assert ending(bench.tick()) is FinishReason.EOS
    assert bench.frame.replies == []
