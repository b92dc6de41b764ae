"""The error envelope of the routes that complete a text natively: OpenAI's, with llama-server's
type for a prompt that is too long, which its clients know it by."""

from typing import Any

from mlxcel.core.errors import ContextLengthExceeded, ErrorInfo
from mlxcel.protocols.openai import errors as openai

TYPES = {ContextLengthExceeded.code: "exceed_context_size_error"}


def error_body(error: ErrorInfo) -> dict[str, Any]:
    body = openai.error_body(error)
    body["error"]["type"] = TYPES.get(error.code, body["error"]["type"])
    return body
