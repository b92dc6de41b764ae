"""Headers of our own on the answers of the generation routes."""

from mlxcel.core.cache import CacheReport
from mlxcel.protocols import cache_words
from mlxcel.protocols.base import Read
from mlxcel.protocols.kamiwaza.chat import ConversationRead
from mlxcel.protocols.kamiwaza.headers import conversation_headers, early_conversation_headers


def answer_headers(read: Read, *, prompt_tokens: int, report: CacheReport | None) -> dict[str, str]:
    """On an answer in one piece by what was used of the prompt cache in the end, on a stream by
    what was there when the request came."""
    headers = {cache_words.HEADER: cache_words.cache_header(report)}
    if isinstance(read, ConversationRead):
        headers |= conversation_headers(read.requests[0].cache, prompt_tokens, report)
    return headers


def early_headers(read: Read) -> dict[str, str]:
    """The same where they have to leave before anything is known: a stream that begins with a
    keep-alive comment."""
    headers = {cache_words.HEADER: cache_words.PENDING}
    if isinstance(read, ConversationRead):
        headers |= early_conversation_headers(read.requests[0].cache)
    return headers
