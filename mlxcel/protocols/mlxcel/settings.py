"""Bodies of the settings routes: how a patch and a revert are asked for.

What a setting means, and which names exist, is known by `config.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlxcel.core.errors import BadField, BadRequest
from mlxcel.protocols.fields import Reader, json_type, shown

Op = Literal["merge", "replace"]
WRAPPED_KEYS = ("op", "values", "atomic")
MOST_NAMES = 1024
"""Ten times what there is; all others wait while they are looked at."""
UPDATE_FAILED = {"error": "settings update failed"}
"""The body when an update broke off: our fault, and nothing was changed."""


class PatchShape(BadRequest):
    """The body as a whole is no patch; nothing was looked at, nothing changed."""


def shape_error_body(error: PatchShape) -> dict[str, str]:
    """The contract's odd one out: a plain string where every other error is an object."""
    return {"error": error.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchBody:
    values: Mapping[str, Any]
    op: Op = "merge"
    atomic: bool = False


def read_patch(body: object) -> PatchBody:
    """Flat `{name: value}`, or wrapped `{op, values, atomic}` when `op` or `values` is a key."""
    if not isinstance(body, dict):
        raise PatchShape(f"the body must be a JSON object, got {json_type(body)}")
    if "op" not in body and "values" not in body:
        return PatchBody(values=_few(body))
    return PatchBody(values=_values(body), op=_op(body), atomic=_atomic(body))


def _values(body: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = sorted(set(body) - set(WRAPPED_KEYS))
    if extra:
        known, told = ", ".join(WRAPPED_KEYS), ", ".join(extra[:20])
        raise PatchShape(f"unknown keys beside values: {told:.200}; known: {known}")
    if "values" not in body:
        raise PatchShape("the wrapped form needs the key values, an object of names and values")
    values = body["values"]
    if not isinstance(values, dict):
        raise PatchShape(f"values must be an object, got {json_type(values)}")
    return _few(values)


def _few(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(values) > MOST_NAMES:
        raise PatchShape(f"the patch has {len(values)} names; at most {MOST_NAMES} in one")
    return values


def _op(body: Mapping[str, Any]) -> Op:
    match body.get("op"):
        case None | "merge":
            return "merge"
        case "replace":
            return "replace"
        case other:
            raise PatchShape(f'op must be "merge" or "replace", got {shown(other)}')


def _atomic(body: Mapping[str, Any]) -> bool:
    atomic = body.get("atomic")
    if atomic is None or isinstance(atomic, bool):
        return atomic or False
    raise PatchShape(f"atomic must be a boolean, got {json_type(atomic)}")


def read_revert(body: object) -> int | None:
    """The version to go back before; None is the last change. An empty object is fine."""
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a JSON object, got {json_type(body)}")
    unknown = sorted(set(body) - {"version"})
    if unknown:
        raise BadField(unknown[0], "is unknown here; the one key is version")
    return Reader(body).integer("version", minimum=0)
