"""The prompt of one row into KV, a chunk a tick, up to its first token."""

from collections.abc import Iterable
from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from mlxcel.engine.sampling.batch import BatchSampler
from mlxcel.engine.sampling.history import last_tokens
from mlxcel.engine.sequence import Sequence


class Prefiller:
    """Runs chunks of one prompt at a time. `chunk` 0: the whole prompt at once."""

    def __init__(self, network: nn.Module, *, chunk: int) -> None:
        self._network = network
        self._chunk = chunk

    def step(self, sequence: Sequence) -> int | None:
        """One more chunk. Returns the first output token after the last chunk, else None.

        The last prompt token is left for a forward of its own: the head then works on one
        position, not on the whole chunk (2,048 x 49,152 logits are 400 MB).
        """
        if not sequence.kv:
            sequence.kv = make_prompt_cache(self._network)
        prompt = sequence.prompt
        last = len(prompt) - 1
        end = min(last, sequence.computed + self._chunk) if self._chunk else last
        if end > sequence.computed:
            self._extend(sequence, prompt[sequence.computed : end])
            sequence.computed = end
        if sequence.computed < last:
            return None
        return self._first_token(sequence)

    def _extend(self, sequence: Sequence, tokens: Iterable[int]) -> None:
        self._network(mx.array(list(tokens))[None], cache=sequence.kv)
        # Only the state is evaluated: the head's logits stay an unused graph.
        mx.eval([cache.state for cache in sequence.kv])
        mx.clear_cache()

    def _first_token(self, sequence: Sequence) -> int:
        logits = self._network(mx.array([[sequence.prompt[-1]]]), cache=sequence.kv)
        sequence.computed = len(sequence.prompt)
        sampling = sequence.submit.sampling
        sampler = BatchSampler([sampling], logits.shape[-1])
        history = last_tokens(sequence.prompt, sampling.history_width)
        return cast(int, sampler(logits[:, -1], [0], history).item())
