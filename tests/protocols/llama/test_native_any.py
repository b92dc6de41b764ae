"""Whatever JSON is sent to the native routes: it is understood, or refused with a reason."""

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.core.answer import Answer, Choice
from mlxcel.core.errors import MlxcelError
from mlxcel.core.events import FinishReason, Timings, Usage
from mlxcel.protocols.base import Head
from mlxcel.protocols.llama import completion, infill
from mlxcel.protocols.llama.types import TYPES
from tests.protocols.samples import RULES, SETTINGS

NAMES = sorted(
    {name for _, names in TYPES for name in names}
    | {"prompt", "input_prefix", "input_suffix", "input_extra", "stream_options", "grammar"}
    | {"response_format", "response_fields", "samplers", "logit_bias"}
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | NUMBERS | st.text(max_size=6)
KEYS = st.sampled_from(["type", "value", "token", "id", "scale", "text", "filename", "7"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)
FILLED = st.fixed_dictionaries({"prompt": st.text(max_size=4)}) | st.just({})
REST: Any = {"request_id": "r", "settings": SETTINGS, "received_s": 0.0, "rules": RULES}
GAP = {"input_prefix": "a", "input_suffix": "b"}
ANSWER = Answer(
    choices=(Choice(reason=FinishReason.EOS, text="x"),),
    usage=Usage(prompt_tokens=1, completion_tokens=1),
    timings=Timings(queued_ms=0.0, prompt_ms=0.0, decode_ms=0.0),
)


def outcome(codec: Any, body: dict[str, Any]) -> Any:
    try:
        return codec.read(body, **REST)
    except MlxcelError as error:
        return error


def take(codec: Any, body: dict[str, Any]) -> None:
    read = outcome(codec, body)
    if isinstance(read, MlxcelError):
        assert 400 <= read.status < 500
        return
    sampling = read.request.sampling
    assert 0 <= sampling.seed < 2**32
    assert 1 <= read.request.max_tokens < 2**31
    orjson.dumps(read.answer(Head(id="r", created=0, model="m"), ANSWER))


@settings(max_examples=150, deadline=None)
@given(BODIES, FILLED)
def test_any_body_of_a_completion(body: dict[str, Any], filled: dict[str, Any]) -> None:
    take(completion, body | filled)


@settings(max_examples=100, deadline=None)
@given(BODIES, st.sampled_from([GAP, {}]))
def test_any_body_of_an_infill(body: dict[str, Any], filled: dict[str, Any]) -> None:
    take(infill, filled | body)
