"""The server's share of the plan as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.core.output import OutputFormat
from mlxcel.core.settings import FixedDefaults
from mlxcel.http.default_form import default_form
from mlxcel.storage.shelf import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsOptions:
    origins: tuple[str, ...]
    """`*`, `localhost`, one text that is always said, or several that have to match."""
    allowed: tuple[str, ...] | None = None
    """Instead of `origins`: only these, exactly."""
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    credentials: bool
    expose: tuple[str, ...] = ()
    """Headers of answers that pages may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOptions:
    """What clients are told of the engine and what only the plan knows."""

    kv_mode: str
    kv_bits: int | None
    """None: KV is not quantised by bits."""
    max_kv: int
    """Newest tokens a row attends to; 0: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Read once at start; bounds were checked by the schema."""

    host: str
    port: int
    metrics_port: int | None
    """Of a second listener that serves the metrics alone; None: there is none."""
    reuse_port: bool
    """Other servers may listen on the port too; the kernel shares out connections."""
    tls_cert: str | None
    tls_key: str | None
    api_prefix: str
    api_keys: tuple[str, ...]
    api_key_files: tuple[str, ...]
    ping_interval_s: float | None
    """None: no keep-alive comments."""
    cors: CorsOptions
    routes: Mapping[str, Any]
    """The routes section: rows under `rows`, switches beside them as booleans."""
    body_bytes: int
    http_timeout_s: float
    websocket_s: float | None
    """How old a connection of a WebSocket gets; None: as old as its client likes."""
    fixed: FixedDefaults
    reasoning_alias: str | None
    """A second name of `reasoning_content`."""
    shown: ShownOptions
    responses: Bounds
    """How much of the Responses routes is kept."""
    responses_file: Path | None
    """None: in memory."""
    transcripts: Bounds
    """Of the conversations that their requests name."""


def read_options(options: Mapping[str, Any]) -> ServerOptions:
    """From the `server` section, with `routes`, `sampling`, `reasoning_alias`, `metrics_port`,
    `grammar`, `json_schema`, `keep`, `kv`, `max_kv_size`, `body_bytes`, `http_timeout_secs`,
    `websocket_secs`, `responses_store` and `conversation_store` beside it."""
    ping, alias = options["sse_ping_interval"], options["reasoning_alias"]
    file = options["responses_store"]["file"]
    return ServerOptions(
        host=options["host"],
        port=options["port"],
        metrics_port=options["metrics_port"],
        reuse_port=options["reuse_port"],
        tls_cert=options["tls"]["cert"],
        tls_key=options["tls"]["key"],
        api_prefix=options["api_prefix"],
        api_keys=tuple(options["api_keys"]),
        api_key_files=tuple(options["api_key_files"]),
        # The interface's own spelling of "off" is -1.
        ping_interval_s=None if ping is None or ping < 0 else ping,
        cors=_cors(options["cors"]),
        routes=options["routes"],
        body_bytes=options["body_bytes"],
        http_timeout_s=options["http_timeout_secs"],
        websocket_s=options["websocket_secs"] or None,
        fixed=fixed_defaults(
            options["sampling"],
            output=default_form(options["grammar"], options["json_schema"]),
            keep=options["keep"],
        ),
        # The interface's own spelling of "no alias" is none.
        reasoning_alias=None if alias == "none" else alias,
        shown=_shown(options["kv"], options["max_kv_size"]),
        responses=_bounds(options["responses_store"]),
        responses_file=None if file is None else Path(file).expanduser(),
        transcripts=_bounds(options["conversation_store"]),
    )


def fixed_defaults(
    section: Mapping[str, Any], *, output: OutputFormat | None = None, keep: int = 0
) -> FixedDefaults:
    """From `generation.sampling`, and two that stand elsewhere."""
    mirostat, dynatemp, adaptive = section["mirostat"], section["dynatemp"], section["adaptive"]
    target = adaptive["target"]
    return FixedDefaults(
        typical_p=section["typical_p"],
        top_n_sigma=max(section["top_n_sigma"], 0.0),
        xtc_probability=section["xtc"]["probability"],
        xtc_threshold=section["xtc"]["threshold"],
        mirostat_version=mirostat["mode"],
        mirostat_target=mirostat["tau"],
        mirostat_rate=mirostat["eta"],
        temperature_span=max(dynatemp["range"], 0.0),
        temperature_exponent=dynatemp["exponent"],
        names_adaptive=adaptive["named"],
        adaptive_target=-1.0 if target is None else target,
        adaptive_decay=adaptive["decay"],
        bias=tuple((token, float(value)) for token, value in section["logit_bias"]),
        ignore_eos=section["ignore_eos"],
        stop=tuple(section["stop"]),
        output=output,
        keep=keep,
    )


def _shown(kv: Mapping[str, Any], max_kv: int) -> ShownOptions:
    bits = kv["bits"]
    return ShownOptions(kv_mode=kv["mode"], kv_bits=None if bits == 0 else bits, max_kv=max_kv)


def _bounds(section: Mapping[str, Any]) -> Bounds:
    return Bounds(
        max_entries=section["max_entries"],
        max_bytes=section["max_bytes"],
        ttl_s=section["ttl_secs"],
    )


def _cors(section: Mapping[str, Any]) -> CorsOptions:
    return CorsOptions(
        origins=tuple(section["origins"] or ()),
        allowed=None if section["allowed_origins"] is None else tuple(section["allowed_origins"]),
        methods=tuple(section["methods"]),
        headers=tuple(section["headers"]),
        expose=tuple(section["expose"]),
        credentials=section["credentials"],
    )
