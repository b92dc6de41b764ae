"""POST /completion: a text is gone on with; never the OpenAI shape."""

from collections.abc import Mapping
from typing import Any

from mlxcel.core.request import Lane, TextPrompt
from mlxcel.core.settings import Settings
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.fields import Reader, json_type
from mlxcel.protocols.llama.asked import Arrival, CompletionRead, read_asked
from mlxcel.protocols.llama.types import check_types
from mlxcel.protocols.openai.sampling import Draw, draw_seed

ID_PREFIX = "cmpl-"


def read(
    body: Mapping[str, Any],
    *,
    request_id: str,
    settings: Settings,
    received_s: float,
    rules: ReadRules,
    lane: Lane = Lane.NORMAL,
    draw: Draw = draw_seed,
) -> CompletionRead:
    """Raises BadRequest. Unknown root keys are accepted."""
    fields = Reader(body)
    check_types(fields)
    prompt = TextPrompt(text=_prompt(fields))
    arrival = Arrival(
        id=request_id,
        settings=settings,
        received_s=received_s,
        rules=rules,
        lane=lane,
        draw=draw,
    )
    return read_asked(fields, prompt, arrival)


def _prompt(fields: Reader) -> str:
    sent = fields.body.get("prompt")
    if isinstance(sent, str):
        return sent
    if sent is None:
        raise fields.refuse("prompt", "is required; it wants a string")
    rule = (
        f"wants one string on this route, got {json_type(sent)}; /v1/completions takes token ids "
        "and several prompts"
    )
    raise fields.refuse("prompt", rule)
