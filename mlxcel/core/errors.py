"""The error tree: what went wrong, for the person who must act.

A class fixes `code` (our own word for the fault) and `status` (the HTTP status it deserves);
the instance carries the facts. How an error looks on a wire is known by
`protocols/*/errors.py` alone.
"""

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


class UnsupportedMediaType(MlxcelError):
    code = "unsupported_media_type"
    status = 415

    def __init__(self, seen: str | None) -> None:
        what = f"got {seen!r}" if seen else "there is none"
        super().__init__(f"Content-Type must be application/json; {what}")


class ContextLengthExceeded(MlxcelError):
    code = "context_length_exceeded"
    status = 400

    def __init__(self, prompt_tokens: int, window: int) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens, but the context window of a slot is "
            f"{window} tokens; shorten the messages or raise limits.ctx_size",
            param="messages",
        )


class NotImplementedHere(MlxcelError):
    """This process has nothing that could serve the route."""

    code = "not_implemented"
    status = 501


class QueueFull(MlxcelError):
    code = "server_busy"
    status = 503

    def __init__(self) -> None:
        super().__init__("All slots are busy. Please try again later.")


class Unavailable(MlxcelError):
    """Loading, restarting or draining: the same request will work later, or elsewhere."""

    code = "unavailable"
    status = 503


class WorkerDied(MlxcelError):
    """The worker process ended while it held this request."""

    code = "worker_died"
    status = 503

    def __init__(self, worker: str, how: str) -> None:
        super().__init__(f"the {worker} worker ended ({how}) while it served this request; retry")


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


class StartupError(MlxcelError):
    """The server cannot start; the message says what to change. Exit code 1."""

    code = "startup"
