"""Log-probabilities as /v1/completions shows them: four lists side by side."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mlxcel.core.events import Likely, PromptToken, TokenLogprobs
from mlxcel.protocols.openai.logprobs import LEAST


class TextLogprobs:
    """Of one choice. Offsets go on from one call to the next: in a stream each chunk has its own
    share of the lists."""

    def __init__(self) -> None:
        self._offset = 0

    def body(
        self, prompt: Sequence[PromptToken], said: Sequence[TokenLogprobs]
    ) -> dict[str, list[Any]]:
        """`prompt` stands before `said`; nothing is known of its first token."""
        lists: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "text_offset": [],
            "top_logprobs": [],
        }
        for token in prompt:
            self._add(lists, token.token, token.data, token.logprob, token.top)
        for place in said:
            self._add(lists, place.said.token, place.said.data, place.said.logprob, place.top)
        return lists

    def _add(
        self,
        lists: dict[str, list[Any]],
        token: str,
        data: bytes,
        logprob: float | None,
        top: Sequence[Likely],
    ) -> None:
        name = _name(token, data)
        value = None if logprob is None else max(logprob, LEAST)
        lists["tokens"].append(name)
        lists["token_logprobs"].append(value)
        lists["text_offset"].append(self._offset)
        lists["top_logprobs"].append(None if value is None else _top(name, value, top))
        self._offset += len(data)


def _top(name: str, value: float, top: Sequence[Likely]) -> dict[str, float]:
    """The likeliest, best first, and the token said, where it is none of them."""
    found: dict[str, float] = {}
    for other in top:
        found.setdefault(_name(other.token, other.data), max(other.logprob, LEAST))
    found.setdefault(name, value)
    return found


@lru_cache(maxsize=1 << 16)
def _name(token: str, data: bytes) -> str:
    """As OpenAI names what is no text of its own, `bytes:\\xe2\\x80`: tokens are the keys of a map,
    where all broken ones would be the same."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
    return token
