"""What a sound configuration means for a language-model server: values that give way to others,
combinations that cannot run, and things worth a warning.

A rule is a function of the tree and the card. It sees what the rules before it have rewritten,
so those that rewrite come first. `card` is None where the model was not looked at.
"""

from mlxcel.graph.rules.cache import (
    dense_storage,
    files_of_caches,
    guarded_snapshots,
    kv_stays_in_place,
    memory_of_prompt_cache,
    one_by_one_is_cold,
    stores_of_prompt_cache,
    unbounded_kv,
)
from mlxcel.graph.rules.cors import page_origins
from mlxcel.graph.rules.draft import draft_fits, draft_found, draft_width
from mlxcel.graph.rules.finding import Finding, Rule, Settled, Tree
from mlxcel.graph.rules.generation import adaptive_named, languages_named, reasoning_words
from mlxcel.graph.rules.kv_modes import mode_of_family, one_quantisation, types_make_mode
from mlxcel.graph.rules.media import body_limit, media_unread
from mlxcel.graph.rules.model import (
    adapters_have_weights,
    engine_fits_model,
    model_named,
    worker_placement,
)
from mlxcel.graph.rules.server import (
    listener_kind,
    open_listener,
    prefix_grammar,
    prefixed_health,
    settings_routes,
    whole_tls,
)
from mlxcel.graph.rules.slots import (
    answer_fits_slot,
    batch_width,
    least_window,
    row_count,
    single_row,
    window_of_model,
    window_told,
)

__all__ = ["RULES", "SUPPLIERS", "Finding", "Rule", "Settled", "Tree"]

SUPPLIERS = {"model": "model", "chat": "engine", "generate": "generation"}
"""Port to the group whose options provide it, for hints."""

RULES: tuple[Rule, ...] = (
    window_told,
    row_count,
    single_row,
    batch_width,
    window_of_model,
    answer_fits_slot,
    dense_storage,
    unbounded_kv,
    files_of_caches,
    memory_of_prompt_cache,
    one_by_one_is_cold,
    stores_of_prompt_cache,
    guarded_snapshots,
    types_make_mode,
    mode_of_family,
    adaptive_named,
    reasoning_words,
    languages_named,
    settings_routes,
    least_window,
    model_named,
    engine_fits_model,
    adapters_have_weights,
    kv_stays_in_place,
    draft_width,
    draft_fits,
    draft_found,
    one_quantisation,
    body_limit,
    media_unread,
    prefix_grammar,
    listener_kind,
    whole_tls,
    page_origins,
    open_listener,
    prefixed_health,
    worker_placement,
)
