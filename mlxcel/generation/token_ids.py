"""What only the vocabulary can tell about the sampling of a request: token ids.

Pure over its arguments; the searches behind it are kept by the text model.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from mlxcel.core.errors import BadField
from mlxcel.core.sampling import SamplingParams
from mlxcel.text.tokenizer import TextModel

Bias = tuple[tuple[int, float], ...]
BIASED = 4096
"""Tokens with a bias of their own: each is a number written into the logits of every step."""
LARGEST_BIAS = 1e4
"""Decides alone what is drawn, and leaves room for differences in float32."""


def with_token_ids(
    sampling: SamplingParams,
    *,
    text: TextModel,
    breakers: tuple[str, ...],
    vocab_size: int,
    biased: Sequence[tuple[str, float]] = (),
    spared: Collection[int] = (),
) -> SamplingParams:
    """Looks up nothing for what is off. Raises BadField for an id of the request that is not in
    the vocabulary: the engine writes at these places. `biased` are texts whose tokens are
    biased beside `sampling.bias`. Ids in `spared` are the operator's: no client is blamed for
    those, which are left out."""
    if spared:
        bias = sampling.bias
        kept = (pair for pair in bias if pair[0] < vocab_size or pair[0] not in spared)
        sampling = replace(sampling, bias=tuple(kept))
    _check("logit_bias", [token for token, _ in sampling.bias], vocab_size)
    if biased:
        sampling = replace(sampling, bias=_with_texts(sampling.bias, biased, text, vocab_size))
    if sampling.dry is not None:
        _check("dry_sequence_breakers", sampling.dry.breakers, vocab_size)
        # Those of the request win: it leaves no texts beside them.
        found = sampling.dry.breakers or text.vocabulary.ids_containing(breakers)
        dry = replace(sampling.dry, breakers=_within(found, vocab_size))
        sampling = replace(sampling, dry=dry)
    if sampling.xtc_probability > 0:
        unbroken = {*text.vocabulary.newlines, *text.eos_ids}
        sampling = replace(sampling, xtc_spared=_within(sorted(unbroken), vocab_size))
    return sampling


def _with_texts(
    bias: Bias, biased: Sequence[tuple[str, float]], text: TextModel, vocab_size: int
) -> Bias:
    """A bias comes on top of one there is already; minus infinity stays. The words of special
    tokens are texts like any other."""
    found = dict(bias)
    for word, value in biased:
        for token in _within(text.encode_plain(word, adds_special=False), vocab_size):
            found[token] = min(found.get(token, 0.0) + value, LARGEST_BIAS)
    if len(found) > BIASED:
        rule = f"wants at most {BIASED} tokens, those of its texts counted; got {len(found)}"
        raise BadField("logit_bias", rule)
    return tuple(sorted(found.items()))


def _check(field: str, ids: Sequence[int], vocab_size: int) -> None:
    largest = max(ids, default=0)
    if largest >= vocab_size:
        rule = f"token {largest} is not in the vocabulary, whose ids end at {vocab_size - 1}"
        raise BadField(field, rule)


def _within(ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """A tokenizer may know tokens that its model has no logits for."""
    return tuple(token for token in ids if token < vocab_size)
