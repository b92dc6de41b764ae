"""The chat model as the HTTP side knows it: requests in, events out.

The front node `text`. Lives on the event loop; only rendering and encoding a prompt leave it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from mlxcel.core.errors import ContextLengthExceeded, RemoteError, StartupError
from mlxcel.core.events import Event, Failed, Finished
from mlxcel.core.ports import ModelFacts, ServedModel
from mlxcel.core.request import GenerationRequest
from mlxcel.core.status import WorkerStatus
from mlxcel.generation.adapters import Adapters
from mlxcel.generation.aftermath import Aftermath
from mlxcel.generation.assemble import assembler
from mlxcel.generation.cache_control import CacheControl
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.conversation_listener import conversation_listeners
from mlxcel.generation.conversations import AskPort, ConversationService
from mlxcel.generation.facts import model_facts
from mlxcel.generation.listening import Listener, heard
from mlxcel.generation.options import ChatOptions
from mlxcel.generation.prepare import Prepared, prepare
from mlxcel.generation.reecho import ReasoningEcho
from mlxcel.generation.served import served_model, slot_window
from mlxcel.generation.slot_table import SlotTable
from mlxcel.generation.slots import Slots
from mlxcel.generation.text_tools import TextTools
from mlxcel.generation.watch import check_budget, check_form
from mlxcel.generation.watchdog import Channel, Watchdog
from mlxcel.generation.wording import word
from mlxcel.link.messages import RowFailed, SetLora, Submit, Warm
from mlxcel.text.infill import find_markers
from mlxcel.text.language import index as languages
from mlxcel.text.template import ChatTemplate
from mlxcel.text.tokenizer import TextModel, byte_text_model, read_text_model

log = logging.getLogger(__name__)

# One prompt of 30,000 tokens must not keep a short one waiting.
_PREPARE_THREADS = 2
EVENTS_A_TURN = 64
"""Told without a wait before others have a turn: rows that wait are read faster than sent."""


class ChatPort(AskPort, Protocol):
    """What provides `chat`: the client of the chat worker."""

    def open(self, request_id: str, /) -> Channel:
        """Takes a place for a request that is still being prepared. Raises QueueFull or
        Unavailable at once; never blocks."""
        ...

    def send(self, submit: Submit, /) -> None:
        """For a request that is open. Raises WorkerDied."""
        ...

    def cancel(self, request_id: str, /, choice: int | None = None) -> None:
        """Gives the place back; a no-op for what has ended or was never there. With `choice`
        only that one need not go on: the place and the events of the others stay."""
        ...

    def end_thinking(self, request_id: str, /) -> None:
        """Of a request that is open and controllable; a no-op for any other."""
        ...

    def set_lora(self, message: SetLora, /) -> None:
        """From now on, and again for a worker that starts anew."""
        ...

    def warm(self, message: Warm, /) -> None:
        """A beginning to read while there is nothing else to do; nobody waits for it."""
        ...

    def status(self) -> WorkerStatus: ...


class GenerationService:
    """Implements `core.ports.Generator`."""

    def __init__(self, options: Mapping[str, Any], *, chat: ChatPort) -> None:
        model = options["model"]
        self._chat = chat
        self._aliases: tuple[str, ...] = tuple(model["alias"])
        self._tags: tuple[str, ...] = tuple(model["tags"])
        self._name: str = model["name"]
        # A model without a folder has no weights: it speaks bytes.
        self._path = None if model["path"] is None else Path(model["path"])
        text = byte_text_model() if self._path is None else read_text_model(self._path)
        cache = options["cache_dir"]
        cache_dir = None if cache is None else Path(cache).expanduser()
        if options["lang_bias"]["rebuild_cache"]:
            languages.prepare(text, cache_dir, rebuild=True)
        self._model = ChatModel.of(
            text,
            _chat_template(options["chat_template"], text, self._path),
            ChatOptions.from_options(options),
            cache_dir,
        )
        self._echo = _reasoning_echo(self._model.options)
        self._aftermath = Aftermath(self._model, self._echo, chat.warm)
        self.conversations = ConversationService.of(
            options["cache"]["conversations"], model=self._name, cache_dir=cache_dir, chat=chat
        )
        self._biased = _biased_ids(options["sampling"]["logit_bias"], text, self._name)
        self._has_warned = False
        self._has_checked_bias = False
        self._pool = ThreadPoolExecutor(_PREPARE_THREADS, thread_name_prefix="prepare")
        self._markers = find_markers(text.vocabulary)
        self.text = TextTools(text)
        self.adapters = Adapters.of(model["lora"], chat=chat)
        self.cache = CacheControl(chat)
        self._seats = SlotTable(lambda: chat.status().stats.slots)
        self.slots = Slots.of(
            self._seats,
            chat=chat,
            text=text,
            folder=options["cache"]["slot_save_path"],
            model=self._path,
            name=self._name,
        )

    @property
    def model(self) -> ServedModel:
        return served_model(
            aliases=self._aliases,
            tags=self._tags,
            name=self._name,
            path=self._path,
            info=self.status().model,
            markers=self._markers,
        )

    @cached_property
    def facts(self) -> ModelFacts:
        # A dozen renderings: not at the start, which nobody wants longer.
        return model_facts(self._model, self._path)

    def status(self) -> WorkerStatus:
        return self._chat.status()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        # What the fields ask for is checked first. Then the place: what finds none is refused
        # before its prompt is rendered.
        await self._check(request)
        channel = self._chat.open(request.id)
        watch = Watchdog(channel, request.id, request.settings.decode_timeout_s)
        try:
            prepared = await self._prepare(request)
            self._seats.took(request.id, prepared.submit, request)
            self._chat.send(prepared.submit)
            row = await channel.next()
            if isinstance(row, RowFailed):
                raise RemoteError(row.error)
            answer = assembler(request, prepared, self._model)
            listeners: list[Listener] = [
                *self._aftermath.listeners(prepared, self.status().model),
                *conversation_listeners(request, prepared, self._model, self.conversations),
            ]
            told = 0
            while True:
                self._seats.heard(row)
                for event in heard(answer, row, listeners):
                    if isinstance(event, Finished):
                        event = replace(event, slot=self._seats.slot_of(request.id))
                    if isinstance(event, Finished | Failed):
                        # Before the last frames go out: a slow reader must not keep a slot.
                        self._leave(request.id)
                    yield event
                    told += 1
                    if told == EVENTS_A_TURN:
                        told = 0
                        await asyncio.sleep(0)
                if answer.is_done:
                    return
                for choice in answer.take_cut():
                    self._chat.cancel(request.id, choice)
                told = told if channel.is_ready else 0
                row = await watch.next(is_decoding=answer.is_decoding)
        finally:
            watch.stop()
            self._leave(request.id)

    async def count(self, request: GenerationRequest) -> int:
        await self._check(request)

        def work() -> int:
            try:
                return len(word(request, self._model, window=self.window).ids)
            except ContextLengthExceeded as why:
                if why.is_least:
                    raise
                return why.prompt_tokens

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def render(self, request: GenerationRequest) -> str:
        def work() -> str:
            return word(request, self._model, window=self.window).prompt.text

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def end_thinking(self, request_id: str) -> None:
        self._chat.end_thinking(request_id)

    @property
    def window(self) -> int:
        return slot_window(self.status().model)

    def _leave(self, request_id: str) -> None:
        self._chat.cancel(request_id)
        self._seats.left(request_id)

    def close(self) -> None:
        self.slots.close()
        self._aftermath.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _check(self, request: GenerationRequest) -> None:
        check_budget(request, slot_window(self.status().model))
        if request.output is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._pool, check_form, request)

    async def _prepare(self, request: GenerationRequest) -> Prepared:
        info, model = self.status().model, self._model
        window = slot_window(info)
        vocab_size = model.text.vocabulary.size if info is None else info.vocab_size
        self._check_bias(vocab_size)

        def work() -> Prepared:
            return prepare(
                request,
                model=model,
                window=window,
                vocab_size=vocab_size,
                family="" if info is None else info.family,
                operator_ids=self._biased,
                echo=self._echo,
            )

        prepared = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        if prepared.ignores_budget and not self._has_warned:
            self._has_warned = True
            log.warning("a thinking budget is ignored: %s has no think markers", self._name)
        return prepared

    def _check_bias(self, vocab_size: int) -> None:
        """Once: a tokenizer may know tokens that its model has no logits for."""
        if self._has_checked_bias:
            return
        self._has_checked_bias = True
        unheard = sorted(token for token in self._biased if token >= vocab_size)
        if unheard:
            log.warning(
                "generation.sampling.logit_bias: %s has no logits for the tokens %s: left out",
                self._name,
                unheard,
            )


def _reasoning_echo(options: ChatOptions) -> ReasoningEcho | None:
    if not options.echoes_reasoning:
        return None
    return ReasoningEcho(max_bytes=options.echo_bytes)


def _biased_ids(pairs: Sequence[Sequence[Any]], text: TextModel, name: str) -> frozenset[int]:
    """The tokens of `generation.sampling.logit_bias`. Raises StartupError for one that the
    tokenizer does not know."""
    ids = frozenset(token for token, _ in pairs)
    size = text.vocabulary.size
    unknown = sorted(token for token in ids if token >= size)
    if unknown:
        raise StartupError(
            f"generation.sampling.logit_bias: token {unknown[0]} is not in the vocabulary of "
            f"{name}, whose ids end at {size - 1}"
        )
    return ids


def _chat_template(
    asked: Mapping[str, Any], text: TextModel, path: Path | None
) -> ChatTemplate | None:
    """The first of: the text of the configuration, its file, the checkpoint's own."""
    source, origin = asked["text"], "generation.chat_template.text"
    if source is None and asked["file"] is not None:
        source, origin = _read_template(Path(asked["file"]).expanduser()), str(asked["file"])
    if source is None:
        source, origin = text.chat_template, str(path)
    if source is None:
        return None
    return ChatTemplate(source, origin=origin, special_tokens=text.special_tokens)


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"generation.chat_template.file: cannot read {path}: {error}") from error
