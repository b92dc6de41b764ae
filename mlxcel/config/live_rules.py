"""What each live setting takes: the schema's rule, with the bounds that this server adds."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.config.keys import LIVE, read
from mlxcel.config.schema import rule_of, section_schema
from mlxcel.config.setting_rows import Row, live_keys
from mlxcel.core.window import slot_count, slot_share

Rules = Mapping[str, Mapping[str, Any]]
"""Tree key to its JSON Schema."""


def live_rules(rows: Sequence[Row], tree: Mapping[str, Any]) -> Rules:
    """The rules of the rows a PATCH may change."""
    schema, bounds = section_schema(LIVE), _bounds(tree)
    keys = live_keys(rows).values()
    rules = {key: rule_of(schema, key.removeprefix(f"{LIVE}.")) for key in keys}
    return {k: {**rule, **bounds.get(k, {})} for k, rule in rules.items() if rule is not None}


def _bounds(tree: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """An answer is no longer than the context of a slot, where that is known."""
    share = slot_share(read(tree, "limits.ctx_size"), slot_count(tree["scheduler"]))
    return {"live.sampling.max_tokens": {"maximum": share}} if share > 0 else {}
