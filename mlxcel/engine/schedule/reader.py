"""Prompts into KV, chunk by chunk, and what is told of them on the way: how far they are, and how
likely their tokens were.

Knows neither lanes nor rows: which prompt is next, and where its rows go, is the scheduler's.
"""

import time
from collections.abc import Sequence

from mlxcel.engine.cache.prompt_cache import PromptCache
from mlxcel.engine.prefill import Prefiller
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.report import Report
from mlxcel.link.messages import RowPrompt


class Reader:
    """Owned by the tick."""

    def __init__(self, prefiller: Prefiller, cache: PromptCache, report: Report) -> None:
        self._prefiller = prefiller
        self._cache = cache
        self._report = report

    def open(self, prompt: Prompt) -> None:
        """Its turn has come; what is kept of it stands in it already."""
        if prompt.request.first_prefill_s:
            return  # a row of it comes back, or had no place with the others
        prompt.request.first_prefill_s = time.monotonic()
        self._report.started += 1
        self._report.saw(len(prompt.tokens))
        if prompt.tells_progress:
            self._report.say(prompt.progress(prompt.computed))

    def read(self, prompts: Sequence[Prompt]) -> None:
        """A chunk of the only one, or the whole of several; nothing of one that is ready."""
        if not prompts:
            return
        if prompts[0].is_ready:
            self._tell(prompts[0])
            return
        began_s = time.perf_counter()
        tokens = self.begin(prompts)
        self._prefiller.finish(prompts[0])
        self._cache.computed(tokens, time.perf_counter() - began_s)
        self._have_read(prompts)

    def begin(self, prompts: Sequence[Prompt]) -> int:
        """Queue the same on the device; returns the tokens that are read."""
        first = prompts[0]
        if len(prompts) > 1:
            tokens = self._prefiller.together(prompts)
        elif first.is_scored:
            tokens = self._score(first)
        else:
            tokens = self._prefiller.begin(first)
        self._report.prefill_chunks += 1
        self._report.prompt_tokens += tokens
        return tokens

    def finish(self, prompt: Prompt) -> None:
        """Wait for what was begun of one."""
        self._prefiller.finish(prompt)
        self._have_read([prompt])

    def _score(self, prompt: Prompt) -> int:
        before = prompt.computed
        most = prompt.request.submit.top_logprobs
        for scores in self._prefiller.scored(prompt, 0 if most is None else most):
            self._report.say(RowPrompt(id=prompt.request.id, scores=scores))
        return prompt.computed - before

    def _have_read(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            self._cache.has_read(prompt)
            self._tell(prompt)

    def _tell(self, prompt: Prompt) -> None:
        """The last token, which is read in the first step of the rows, is no news of its own."""
        if not prompt.tells_progress:
            return
        prompt.tells_progress = not prompt.is_ready
        self._report.say(
            prompt.progress(len(prompt.tokens) if prompt.is_ready else prompt.computed)
        )
