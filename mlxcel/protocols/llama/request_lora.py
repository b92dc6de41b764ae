"""The field `lora` of a native completion: the scales of adapters for this request alone."""

from collections.abc import Mapping

from mlxcel.protocols.fields import Reader, shown

LARGEST_SCALE = 100
"""Far beyond what an adapter was trained for; much more makes numbers that are none."""
NAME = "lora"
ENTRIES = 1024


def read_lora(fields: Reader) -> tuple[tuple[int, float], ...] | None:
    """None: those in force. Adapters that are not named are off; of two entries for one the later
    counts. Unknown ids are for whoever knows the adapters."""
    sent = fields.items(NAME)
    if sent is None:
        return None
    if len(sent) > ENTRIES:
        raise fields.refuse(NAME, f"wants at most {ENTRIES} adapters, got {len(sent)}")
    return tuple(dict(_entry(fields, place, entry) for place, entry in enumerate(sent)).items())


def read_own_lora(
    fields: Reader, merged: Mapping[int, float] | None
) -> tuple[tuple[int, float], ...] | None:
    """The same; what differs from scales that are merged into the weights is refused."""
    found = read_lora(fields)
    if found is None or merged is None:
        return found
    wanted = dict(found)
    if any(wanted.get(adapter, 0.0) != scale for adapter, scale in merged.items()):
        in_force = [{"id": adapter, "scale": scale} for adapter, scale in merged.items()]
        rule = (
            "the adapters are merged into the weights (model.lora.fuse): leave the field out or "
            f"send what is in force, {shown(in_force)}"
        )
        raise fields.refuse(NAME, rule)
    return found


def _entry(fields: Reader, place: int, entry: object) -> tuple[int, float]:
    if not isinstance(entry, dict):
        raise fields.refuse(f"{NAME}.{place}", f"wants an object, got {shown(entry)}")
    inner = Reader(entry, fields.name(f"{NAME}.{place}"))
    adapter, scale = inner.integer("id"), inner.number("scale")
    if adapter is None:
        raise inner.refuse("id", "is required; it wants the id of an adapter")
    if scale is None:
        raise inner.refuse("scale", "is required; it wants a number")
    if not -LARGEST_SCALE <= scale <= LARGEST_SCALE:
        rule = f"wants a number from -{LARGEST_SCALE} to {LARGEST_SCALE}, got {shown(scale)}"
        raise inner.refuse("scale", rule)
    return adapter, scale
