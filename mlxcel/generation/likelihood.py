"""The log-probabilities of tokens as a client can read them: with the text of each token."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from mlxcel.core.events import Likely, PromptToken, TokenLogprobs
from mlxcel.link.messages import TokenScores
from mlxcel.text.vocabulary import Vocabulary

IMPOSSIBLE = -9999.0
"""In place of minus infinity, which JSON does not have; the number OpenAI sends."""

Reader = Callable[[Sequence[int], Sequence[TokenScores]], tuple[TokenLogprobs, ...]]


def _likely_of(vocabulary: Vocabulary) -> Callable[[int, float], Likely]:
    def likely(token: int, logprob: float) -> Likely:
        text, data = _shown(vocabulary, token)
        return Likely(text, max(logprob, IMPOSSIBLE), data, token)

    return likely


def reader(vocabulary: Vocabulary) -> Reader:
    likely = _likely_of(vocabulary)

    def read(ids: Sequence[int], scores: Sequence[TokenScores]) -> tuple[TokenLogprobs, ...]:
        """One entry a token."""
        return tuple(
            TokenLogprobs(likely(token, place.said), tuple(likely(*one) for one in place.top))
            for token, place in zip(ids, scores, strict=True)
        )

    return read


def prompt_reader(
    vocabulary: Vocabulary,
) -> Callable[[Sequence[int], Sequence[TokenScores]], tuple[PromptToken, ...]]:
    likely = _likely_of(vocabulary)

    def read(ids: Sequence[int], scores: Sequence[TokenScores]) -> tuple[PromptToken, ...]:
        """All tokens of a prompt; `scores` are those from the second on."""
        first = likely(ids[0], 0.0)
        tokens = [PromptToken(first.token, None, first.data, first.id)]
        for token, place in zip(ids[1:], scores, strict=True):
            said = likely(token, place.said)
            top = tuple(likely(*one) for one in place.top)
            tokens.append(PromptToken(said.token, said.logprob, said.data, said.id, top))
        return tuple(tokens)

    return read


@lru_cache(maxsize=1 << 16)
def _shown(vocabulary: Vocabulary, token: int) -> tuple[str, bytes]:
    """The same few tokens are the likeliest at most places."""
    data = vocabulary.bytes_of(token)
    return data.decode("utf-8", "replace"), data
