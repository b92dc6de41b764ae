"""The server's share of the plan as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxcel.core.sampling import AdaptiveP, DynamicTemperature, Mirostat
from mlxcel.core.settings import FixedDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsOptions:
    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    credentials: bool
    expose: tuple[str, ...] = ()
    """Headers of answers that pages may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Read once at start; bounds were checked by the schema."""

    host: str
    port: int
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
    fixed: FixedDefaults
    reasoning_alias: str | None
    """A second name of `reasoning_content`."""


def read_options(options: Mapping[str, Any]) -> ServerOptions:
    """From the `server` section, with `routes`, `sampling`, `reasoning_alias`, `body_bytes` and
    `http_timeout_secs` beside it."""
    ping, alias = options["sse_ping_interval"], options["reasoning_alias"]
    return ServerOptions(
        host=options["host"],
        port=options["port"],
        api_prefix=options["api_prefix"],
        api_keys=tuple(options["api_keys"]),
        api_key_files=tuple(options["api_key_files"]),
        # The interface's own spelling of "off" is -1.
        ping_interval_s=None if ping is None or ping < 0 else ping,
        cors=_cors(options["cors"]),
        routes=options["routes"],
        body_bytes=options["body_bytes"],
        http_timeout_s=options["http_timeout_secs"],
        fixed=fixed_defaults(options["sampling"]),
        # The interface's own spelling of "no alias" is none.
        reasoning_alias=None if alias == "none" else alias,
    )


def fixed_defaults(section: Mapping[str, Any]) -> FixedDefaults:
    """From `generation.sampling`. What the interface switches off by a number (0, or below) is
    absent here."""
    return FixedDefaults(
        typical_p=section["typical_p"],
        top_n_sigma=max(section["top_n_sigma"], 0.0),
        xtc_probability=section["xtc"]["probability"],
        xtc_threshold=section["xtc"]["threshold"],
        mirostat=_mirostat(section["mirostat"]),
        dynamic_temperature=_dynamic_temperature(section["dynatemp"]),
        adaptive=_adaptive(section["adaptive"]),
        bias=tuple((token, float(value)) for token, value in section["logit_bias"]),
        ignore_eos=section["ignore_eos"],
        stop=tuple(section["stop"]),
    )


def _mirostat(section: Mapping[str, Any]) -> Mirostat | None:
    if section["mode"] == 0:
        return None
    return Mirostat(version=section["mode"], rate=section["eta"], target=section["tau"])


def _dynamic_temperature(section: Mapping[str, Any]) -> DynamicTemperature | None:
    if section["range"] <= 0:
        return None
    return DynamicTemperature(span=section["range"], exponent=section["exponent"])


def _adaptive(section: Mapping[str, Any]) -> AdaptiveP | None:
    """Only where it is named among the samplers."""
    target = section["target"]
    if not section["named"] or target is None or target < 0:
        return None
    return AdaptiveP(target=target, decay=section["decay"])


def _cors(section: Mapping[str, Any]) -> CorsOptions:
    return CorsOptions(
        origins=tuple(section["origins"]),
        methods=tuple(section["methods"]),
        headers=tuple(section["headers"]),
        expose=tuple(section["expose"]),
        credentials=section["credentials"],
    )
