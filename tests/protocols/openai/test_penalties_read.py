"""From a chat body to penalties: repetition, frequency, presence, DRY."""

from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.errors import BadField
from mlxcel.core.sampling import Dry, SamplingParams
from tests.protocols.openai.reading import chat_read
from tests.protocols.samples import SETTINGS

DEFAULTS = ("\n", ":", '"', "*")


def sampling(**fields: Any) -> SamplingParams:
    return chat_read(**fields).request.sampling


def with_defaults(**changes: Any) -> Any:
    return replace(SETTINGS, sampling=replace(SETTINGS.sampling, **changes))


def dry(**fields: Any) -> Dry:
    found = sampling(**({"dry_multiplier": 0.8} | fields)).dry
    assert found is not None
    return found


def test_left_out_penalties_come_from_the_settings() -> None:
    settings = with_defaults(
        repetition_penalty=1.2,
        repetition_context_size=9,
        frequency_penalty=0.3,
        presence_penalty=0.4,
        dry_multiplier=0.8,
        dry_base=2.0,
        dry_allowed_length=3,
        dry_penalty_last_n=10,
        dry_sequence_breakers=(".",),
    )
    request = chat_read(settings=settings).request
    found = request.sampling
    assert (found.repetition_penalty, found.penalty_window) == (1.2, 9)
    assert (found.frequency_penalty, found.presence_penalty) == (0.3, 0.4)
    assert found.dry == Dry(multiplier=0.8, base=2.0, allowed_length=3, window=10)
    assert request.dry_breakers == (".",)


def test_sent_penalties_win() -> None:
    settings = with_defaults(repetition_penalty=1.2, presence_penalty=0.4, dry_multiplier=0.8)
    found = chat_read(
        settings=settings, repetition_penalty=1.0, presence_penalty=0, dry_multiplier=0
    ).request.sampling
    assert (found.repetition_penalty, found.presence_penalty, found.dry) == (1.0, 0.0, None)
    assert not found.has_penalties


@pytest.mark.parametrize(
    ("sent", "name", "used"),
    [
        pytest.param({"repetition_penalty": 1.1}, "repetition_penalty", 1.1, id="repetition"),
        pytest.param({"repeat_penalty": 0.9}, "repetition_penalty", 0.9, id="repeat"),
        pytest.param({"repetition_penalty": 0}, "repetition_penalty", 1.0, id="zero-is-off"),
        pytest.param({"repeat_penalty": -2}, "repetition_penalty", 1.0, id="negative-is-off"),
        pytest.param({"repeat_penalty": 1e-300}, "repetition_penalty", 1e-3, id="vanishing"),
        pytest.param({"repeat_penalty": 1e300}, "repetition_penalty", 1e3, id="endless"),
        pytest.param({"frequency_penalty": -0.5}, "frequency_penalty", -0.5, id="frequency"),
        pytest.param({"frequency_penalty": 1e300}, "frequency_penalty", 1e3, id="frequency-huge"),
        pytest.param({"presence_penalty": 2}, "presence_penalty", 2.0, id="presence"),
        pytest.param({"presence_penalty": -1e300}, "presence_penalty", -1e3, id="presence-huge"),
        pytest.param({"repetition_context_size": 7}, "penalty_window", 7, id="window"),
        pytest.param({"repeat_last_n": 0}, "penalty_window", 0, id="window-off"),
        pytest.param({"repeat_last_n": 4096}, "penalty_window", 4096, id="window-widest"),
        pytest.param({"repeat_last_n": 10**12}, "penalty_window", 4096, id="window-huge"),
    ],
)
def test_a_penalty_is_used_as_sent_or_as_the_nearest(
    sent: dict[str, Any], name: str, used: float
) -> None:
    assert getattr(sampling(**sent), name) == used


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"dry_multiplier": 0}, id="multiplier-0"),
        pytest.param({"dry_multiplier": -1}, id="multiplier-negative"),
        pytest.param({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, id="window-0"),
        pytest.param({"dry_base": 3, "dry_allowed_length": 1}, id="multiplier-of-the-settings"),
    ],
)
def test_dry_is_off(sent: dict[str, Any]) -> None:
    assert sampling(**sent).dry is None


@pytest.mark.parametrize(
    ("sent", "name", "used"),
    [
        pytest.param({}, "base", 1.75, id="base-of-the-settings"),
        pytest.param({"dry_base": 2}, "base", 2.0, id="base"),
        pytest.param({"dry_base": 0.5}, "base", 1.0, id="base-below-one"),
        pytest.param({"dry_base": 1e300}, "base", 100.0, id="base-endless"),
        pytest.param({"dry_multiplier": 1e300}, "multiplier", 1e3, id="multiplier-endless"),
        pytest.param({"dry_allowed_length": 0}, "allowed_length", 0, id="allowed-0"),
        pytest.param({"dry_allowed_length": 10**12}, "allowed_length", 2**31 - 1, id="allowed"),
        pytest.param({"dry_penalty_last_n": 10**12}, "window", 4096, id="window-huge"),
    ],
)
def test_dry_is_used_as_sent_or_as_the_nearest(
    sent: dict[str, Any], name: str, used: float
) -> None:
    assert getattr(dry(**sent), name) == used


@pytest.mark.parametrize(
    ("sent", "ids", "texts"),
    [
        pytest.param({}, (), DEFAULTS, id="those-of-the-settings"),
        pytest.param({"dry_sequence_breakers": [10, 58]}, (10, 58), (), id="ids-of-the-request"),
        pytest.param({"dry_sequence_breakers": []}, (), (), id="none-at-all"),
        pytest.param({"dry_sequence_breakers": None}, (), DEFAULTS, id="null-is-absent"),
    ],
)
def test_breakers(sent: dict[str, Any], ids: tuple[int, ...], texts: tuple[str, ...]) -> None:
    request = chat_read(dry_multiplier=0.8, **sent).request
    assert request.sampling.dry is not None
    assert (request.sampling.dry.breakers, request.dry_breakers) == (ids, texts)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        pytest.param("repetition_penalty", "x", "wants a number", id="repetition"),
        pytest.param("repeat_penalty", True, "wants a number", id="repeat"),
        pytest.param("frequency_penalty", [], "wants a number", id="frequency"),
        pytest.param("presence_penalty", "x", "wants a number", id="presence"),
        pytest.param("repetition_context_size", -1, "at least 0", id="window"),
        pytest.param("repeat_last_n", 7.0, "wants an integer", id="last-n"),
        pytest.param("dry_multiplier", "x", "wants a number", id="multiplier"),
        pytest.param("dry_base", {}, "wants a number", id="base"),
        pytest.param("dry_allowed_length", -1, "at least 0", id="allowed"),
        pytest.param("dry_penalty_last_n", -1, "at least 0", id="dry-window"),
        pytest.param("dry_sequence_breakers", "a", "wants an array", id="one-text"),
        pytest.param("dry_sequence_breakers", ["\n"], "wants token ids", id="texts"),
        pytest.param("dry_sequence_breakers", [True], "wants token ids", id="boolean"),
        pytest.param("dry_sequence_breakers", [-1], "wants token ids", id="negative"),
        pytest.param("dry_sequence_breakers", [2**31], "wants token ids", id="beyond-int32"),
        pytest.param("dry_sequence_breakers", [1] * 4097, "at most 4096", id="many"),
    ],
)
def test_a_penalty_that_cannot_be_used_is_named_also_when_dry_is_off(
    name: str, value: Any, rule: str
) -> None:
    with pytest.raises(BadField, match=rule) as caught:
        chat_read(**{name: value})
    assert caught.value.param == name


def test_two_spellings_of_the_window_are_refused() -> None:
    with pytest.raises(BadField, match="another spelling of repetition_context_size"):
        chat_read(repetition_context_size=1, repeat_last_n=1)
