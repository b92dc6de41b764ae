"""The error tree: what went wrong, for the person who must act.

A class fixes `code` (our own word for the fault) and `status` (the HTTP status it deserves);
the instance carries the facts. How an error looks on a wire is known by
`protocols/*/errors.py` alone.
"""

from collections.abc import Mapping, Sequence

import msgspec


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error as plain data: it crosses the worker border and travels in `Failed` events."""

    code: str
    status: int
    message: str
    param: str | None = None


class MlxcelError(Exception):
    """Base of every error that a client or an operator is shown."""

    code = "server_error"
    status = 500

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def info(self) -> ErrorInfo:
        return ErrorInfo(code=self.code, status=self.status, message=self.message, param=self.param)


class RemoteError(MlxcelError):
    """An error that arrived as data, raised again on this side of the border."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message, param=info.param)
        self.code = info.code
        self.status = info.status


class BadRequest(MlxcelError):
    """The body as a whole cannot be used."""

    code = "invalid_request"
    status = 400


class BadField(BadRequest):
    """One field has a value that cannot be used; `param` names it, dotted from the root."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}", param=param)


class InvalidApiKey(MlxcelError):
    code = "invalid_api_key"
    status = 401

    def __init__(self) -> None:
        super().__init__("Invalid API key")


class ModelNotFound(MlxcelError):
    code = "model_not_found"
    status = 404

    def __init__(self, name: str, served: tuple[str, ...]) -> None:
        super().__init__(
            f"the model {name!r} is not served here; served: {', '.join(served)}", param="model"
        )


class RouteNotFound(MlxcelError):
    code = "not_found"
    status = 404

    def __init__(self, path: str) -> None:
        super().__init__(f"no route at {path}; the routes are listed in docs/reference/routes.md")


class MethodNotAllowed(MlxcelError):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not allowed on {path}; allowed: {', '.join(allowed)}")
        self.allowed = allowed


class BodyTooLarge(MlxcelError):
    code = "body_too_large"
    status = 413

    def __init__(self) -> None:
        super().__init__("Request body too large.")


class UrlTooLong(MlxcelError):
    code = "url_too_long"
    status = 414

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the request line is longer than {limit_bytes} bytes; shorten the URL")


class HeadersTooLarge(MlxcelError):
    code = "headers_too_large"
    status = 431

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the request line and headers are larger than {limit_bytes} bytes together"
        )


class UnsupportedMediaType(MlxcelError):
    code = "unsupported_media_type"
    status = 415

    def __init__(self, seen: str | None) -> None:
        what = f"got {seen!r}" if seen else "there is none"
        super().__init__(f"Content-Type must be application/json; {what}")


class UpgradeRequired(MlxcelError):
    """A plain request to a route that speaks another protocol."""

    code = "upgrade_required"
    status = 426

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is read through a WebSocket: connect with a client of that protocol "
            "(Connection: Upgrade, Upgrade: websocket, HTTP/1.1)"
        )


class OriginRefused(MlxcelError):
    code = "origin_refused"
    status = 403

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"pages of {origin!r} may not connect; server.cors.origins and "
            "server.cors.allowed_origins say who may"
        )


class ContextLengthExceeded(MlxcelError):
    code = "context_length_exceeded"
    status = 400

    def __init__(
        self, prompt_tokens: int, window: int, *, is_least: bool = False, param: str = "messages"
    ) -> None:
        """`is_least`: the prompt was not counted to its end."""
        count = f"at least {prompt_tokens}" if is_least else f"{prompt_tokens}"
        super().__init__(
            f"the prompt has {count} tokens, but the context window of a slot is "
            f"{window} tokens; shorten the {param} or raise limits.ctx_size",
            param=param,
        )
        self.prompt_tokens = prompt_tokens
        self.is_least = is_least


class NotImplementedHere(MlxcelError):
    """This process has nothing that could serve the route."""

    code = "not_implemented"
    status = 501


class NotSupported(MlxcelError):
    """The served model cannot do what a part of the request asks for."""

    code = "not_supported"
    status = 501


class QueueFull(MlxcelError):
    code = "server_busy"
    status = 503

    def __init__(self) -> None:
        super().__init__("All slots are busy. Please try again later.")


class RequestMemoryExceeded(MlxcelError):
    """The request alone would not fit into the memory of the device."""

    code = "request_memory_budget_exceeded"
    status = 503

    def __init__(self, needed_bytes: int, budget_bytes: int) -> None:
        super().__init__(
            f"the request needs about {needed_bytes / 1e9:.1f} GB, weights included, but "
            f"{budget_bytes / 1e9:.1f} GB may be used; shorten the prompt, lower max_tokens or "
            "raise limits.request_memory_budget"
        )


class KvBudgetExceeded(MlxcelError):
    code = "kv_budget_exceeded"
    status = 400

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            f"prompt needs {needed} KV blocks, exceeding the {budget}-block KV cache budget",
            param="messages",
        )


class NoKvLeft(MlxcelError):
    """A row that decodes finds no KV block, and nobody can make room."""

    code = "server_busy"
    status = 503

    def __init__(self) -> None:
        super().__init__("Server busy: the KV cache budget is used up. Please try again later.")


class Unavailable(MlxcelError):
    """Loading, restarting or draining: the same request will work later, or elsewhere."""

    code = "unavailable"
    status = 503


class WorkerDied(MlxcelError):
    """The worker ended while it held this request, running or waiting."""

    code = "worker_died"
    status = 503

    def __init__(self, worker: str, how: str) -> None:
        super().__init__(
            f"the {worker} worker ended ({how}) before this request was finished; retry"
        )


class AnswerTimeout(MlxcelError):
    """The worker lives, but has not answered a question: it is in a long step."""

    code = "answer_timeout"
    status = 504

    def __init__(self, worker: str, question: str, seconds: float) -> None:
        super().__init__(
            f"the {worker} worker has not answered {question} within {seconds:g} s; retry later"
        )


class GenerationFailed(MlxcelError):
    code = "generation_failed"
    status = 500

    def __init__(self, reason: str) -> None:
        super().__init__(f"Generation error: {reason}")


class DecodeTimeout(MlxcelError):
    code = "decode_timeout"
    status = 504

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"no token for {seconds:g} s; the request was cancelled "
            "(setting timeout_seconds, key live.decode.timeout_seconds)"
        )


class PatchRefused(MlxcelError):
    """An atomic patch with a name that cannot be set; nothing changed."""

    code = "settings_refused"
    status = 409

    def __init__(self, rejected: Sequence[Mapping[str, str]]) -> None:
        reasons = "; ".join(f"{entry['name']}: {entry['reason']}" for entry in rejected)
        super().__init__(f"nothing was changed: {reasons}")
        self.rejected = [dict(entry) for entry in rejected]


class PreconditionFailed(MlxcelError):
    """Somebody changed the settings since the client read them."""

    code = "precondition_failed"
    status = 412

    def __init__(self, wanted: str, fingerprint: str) -> None:
        super().__init__(
            f"If-Match is {wanted}, but the settings have the fingerprint {fingerprint}; "
            "read them again"
        )
        self.fingerprint = fingerprint


class UnknownVersion(MlxcelError):
    """There is no such change, or it is too old to be kept."""

    code = "version_not_found"
    status = 404

    def __init__(self, version: int, first: int, last: int) -> None:
        kept = f"{first} to {last} are kept" if last >= first else "nothing was changed yet"
        super().__init__(f"no change has the version {version}; {kept}", param="version")


class NothingToRevert(MlxcelError):
    code = "nothing_to_revert"
    status = 409

    def __init__(self) -> None:
        super().__init__("there is no change left to undo")


class StartupError(MlxcelError):
    """The server cannot start; the message says what to change. Exit code 1."""

    code = "startup"
