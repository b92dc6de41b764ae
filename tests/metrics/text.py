"""The text of a scrape, read back."""

from prometheus_client.parser import text_string_to_metric_families


def words_of(text: str) -> list[str]:
    return text.split()


KINDS = {
    "counter": words_of(
        """
        llamacpp:prompt_tokens_total llamacpp:prompt_tokens_cached_total
        llamacpp:prompt_seconds_total llamacpp:tokens_predicted_total
        llamacpp:tokens_predicted_seconds_total llamacpp:n_decode_total llamacpp:n_tokens_max
        llamacpp:spec_decode_num_draft_tokens_total llamacpp:spec_decode_num_accepted_tokens_total
        llamacpp:spec_decode_num_drafts_total
        mlxcel_requests_total mlxcel_prompt_tokens_total mlxcel_completion_tokens_total
        mlxcel_generation_time_seconds_total
        mlxcel_batch_sequences_started mlxcel_batch_sequences_completed
        mlxcel_batch_prefill_tokens_total mlxcel_batch_decode_tokens_total
        mlxcel_batch_decode_steps_total mlxcel_batch_decode_lookahead_steps_total
        mlxcel_batch_prefill_chunks_total mlxcel_batch_mixed_steps_total
        mlxcel_batch_prefill_grants_total
        mlxcel_decode_storage_fallbacks_total mlxcel_paged_decode_launches_total
        mlxcel_cascade_shared_tokens_total mlxcel_cascade_member_sequences_total
        mlxcel_cascade_failures_total
        mlxcel_lang_bias_applied_total mlxcel_lang_bias_tokens_suppressed_total
        mlxcel_lang_bias_byte_fragment_suppressions_total
        mlxcel_prompt_cache_hits_total mlxcel_prompt_cache_misses_total
        mlxcel_prompt_cache_prefix_tokens_reused_total mlxcel_prompt_cache_evictions_total
        mlxcel_prompt_cache_snapshot_hits_total mlxcel_prompt_cache_snapshot_misses_total
        mlxcel_prompt_cache_snapshot_tokens_reused_total
        mlxcel_prompt_cache_snapshot_evictions_total mlxcel_prompt_cache_reject_total
    """
    ),
    "gauge": words_of(
        """
        llamacpp:prompt_tokens_seconds llamacpp:predicted_tokens_seconds
        llamacpp:requests_processing llamacpp:requests_deferred llamacpp:n_busy_slots_per_decode
        mlxcel_slots_total mlxcel_slots_available mlxcel_queue_depth mlxcel_batch_current_size
        mlxcel_cache_pool_active mlxcel_cache_pool_paged_block_size
        mlxcel_cache_pool_paged_blocks_allocated mlxcel_cache_pool_paged_blocks_live
        mlxcel_cache_pool_paged_blocks_free mlxcel_cache_pool_paged_bytes_reserved
        mlxcel_cache_pool_paged_bytes_in_use mlxcel_cache_pool_paged_block_budget
        mlxcel_prompt_cache_bytes mlxcel_prompt_cache_entries
    """
    ),
    "histogram": ["mlxcel_request_ttft_ms", "mlxcel_request_decode_tok_s"],
}
"""The names of the interface, as far as there is such a thing here (http-native 9)."""
OURS = {
    "counter": words_of(
        """
        mlxcel_requests_cancelled_total mlxcel_requests_failed_total
        mlxcel_batch_preemptions_total mlxcel_worker_restarts_total
    """
    ),
    "gauge": ["mlxcel_worker_up"],
    "histogram": [
        "mlxcel_request_queue_ms",
        "mlxcel_request_time_per_output_token_ms",
        "mlxcel_batch_size",
    ],
}
LABELS = {
    "mlxcel_paged_decode_launches_total": ("path", {"fused_v2", "gather", "cascade"}),
    "mlxcel_prompt_cache_evictions_total": ("reason", {"lru", "ttl", "capacity"}),
    "mlxcel_prompt_cache_snapshot_evictions_total": ("reason", {"lru", "ttl"}),
    "mlxcel_prompt_cache_reject_total": (
        "reason",
        set(
            words_of("""oversized disabled prefix_too_short mode_mismatch empty_set
            layout_constraints block_boundary_floor snapshot_diverged model_owned_state""")
        ),
    ),
}


def values(text: str) -> dict[str, float]:
    """By the name on the wire; labels behind it: `x_total{reason=lru}`."""
    found: dict[str, float] = {}
    # The parser says x_total of a counter that is called x.
    bare = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name
            if family.type == "counter" and name not in bare:
                name = name.removesuffix("_total")
            labels = ",".join(f"{key}={word}" for key, word in sample.labels.items())
            full = f"{name}{{{labels}}}" if labels else name
            assert full not in found, full
            found[full] = sample.value
    return found


def kinds(text: str) -> dict[str, str]:
    """Of every family by its name on the wire."""
    heads = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len({head[2] for head in heads}) == len(heads)
    return {head[2]: head[3] for head in heads}
