"""Prompts into KV: a chunk of one a tick, or several short ones in one padded forward.

Prefill samples nothing. The last token of a prompt stays out of its KV: its forward is the first
decode step of the rows, shared with those that decode already. So the head never works on a
whole chunk (2,048 x 49,152 logits are 400 MB), the choices of a request share one prefill, and
every token of an answer is drawn in one place. Where the tokens of a prompt are scored, the head
works on pieces of a chunk.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxcel.engine.kv.choose import row_caches
from mlxcel.engine.kv.modes import KVPlan
from mlxcel.engine.kv.prefilled import Prefilled
from mlxcel.engine.lora import LoraScales
from mlxcel.engine.prompt import Prompt, Reading
from mlxcel.engine.prompt_scores import piece_of, prompt_scores
from mlxcel.link.messages import TokenScores


class Prefiller:
    """`chunk` 0: every prompt at once. `vocab`: how wide the logits are."""

    def __init__(
        self, network: nn.Module, *, chunk: int, plan: KVPlan, lora: LoraScales, vocab: int
    ) -> None:
        self._network = network
        self._vocab = vocab
        self._chunk = chunk
        self._plan = plan
        self._lora = lora

    def begin(self, prompt: Reading) -> int:
        """Start one more chunk; returns its tokens. `finish` waits for it."""
        before, end = prompt.computed, self._end(prompt)
        self._read(prompt, end)
        return end - before

    def scored(self, prompt: Reading, most: int) -> Iterator[list[TokenScores]]:
        """Read one more chunk; yields how likely each token was that follows on one of it, with
        `most` of the likeliest, piece by piece. Each is waited for: the logits of several would
        stand in memory at once."""
        end, piece = self._end(prompt), piece_of(self._vocab)
        if not end:
            self._read(prompt, end)
        while prompt.computed < end:
            stop = min(end, prompt.computed + piece)
            told = prompt.tokens[prompt.computed + 1 : stop + 1]
            yield prompt_scores(self._read(prompt, stop)[0], told, most)

    def together(self, prompts: Sequence[Prompt]) -> int:
        """Start the whole of several cold prompts; returns their tokens. Rows are padded on the
        right, where causal attention never looks."""
        heads = [prompt.tokens[:-1] or prompt.tokens for prompt in prompts]
        longest = max(map(len, heads))
        rows = [(*head, *[0] * (longest - len(head))) for head in heads]
        caches = row_caches(self._network, self._plan)
        self._forward(rows, caches, prompts)
        lengths = tuple(len(prompt.tokens) - 1 for prompt in prompts)
        kv = Prefilled(caches, lengths)
        for index, prompt in enumerate(prompts):
            prompt.kv, prompt.index, prompt.computed = kv, index, lengths[index]
        return sum(lengths)

    def finish(self, prompt: Reading) -> None:
        """Wait for what was begun. Errors of the forward appear here."""
        assert prompt.kv is not None
        mx.eval([cache.state for cache in prompt.kv.caches])
        mx.clear_cache()

    def _end(self, prompt: Reading) -> int:
        """Of the next chunk: the end of the prompt, of a chunk, or the place to stop at."""
        last = len(prompt.tokens) - 1
        ends = [last]
        if self._chunk:
            ends.append(prompt.computed + self._chunk)
        if prompt.stop > prompt.computed:
            ends.append(prompt.stop)
        return min(ends)

    def _read(self, prompt: Reading, end: int) -> mx.array:
        """Up to a place; returns the logits there."""
        if prompt.kv is None:
            prompt.kv = Prefilled(row_caches(self._network, self._plan), (0,))
        # Nothing stands before the only token of a prompt. Its caches learn their shapes from a
        # forward all the same; the place it fills counts for nothing.
        tokens = prompt.tokens[prompt.computed : max(end, 1)]
        logits = self._forward([tokens], prompt.kv.caches, [prompt])
        prompt.computed = end
        prompt.kv = Prefilled(prompt.kv.caches, (end,))
        return logits

    def _forward(
        self, rows: list[tuple[int, ...]], caches: list[Any], prompts: Sequence[Reading]
    ) -> mx.array:
        self._lora.use([prompt.lora for prompt in prompts])
        logits: mx.array = self._network(mx.array(rows), cache=caches)
        # Only the state is evaluated: the head's logits stay an unused graph.
        mx.async_eval([cache.state for cache in caches])
        return logits
