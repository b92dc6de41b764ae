"""The names of the KV modes, and which families can have them (engine contract, cache 10): for the
plan, which refuses before a model is loaded, and for the worker, which knows its layers."""

PLAIN = "fp16"
ALIASES = {
    "f16": PLAIN,
    "turbo4-asym": "fp16+turbo4",
    "turbo4-sym": "turbo4",
    "fp16+turbo4-delegated": "turbo4-delegated",
    "turbo3-asym": "fp16+turbo3",
    "turbo3": "fp16+turbo3",
}
PAIRS = {
    ("fp16", "fp16"): PLAIN,
    ("int8", "int8"): "int8",
    ("fp16", "turbo4"): "fp16+turbo4",
    ("fp16", "turbo4-asym"): "fp16+turbo4",
    ("turbo4", "turbo4"): "turbo4",
    ("fp16", "turbo4-delegated"): "turbo4-delegated",
    ("fp16", "turbo3"): "fp16+turbo3",
    ("fp16", "turbo3-asym"): "fp16+turbo3",
}
"""Types of keys and of values to the mode they make; either may be written f16 too. `asym` says
that the keys stay as they are."""
TYPE_ALIASES = {"f16": PLAIN}
SYMMETRIC = frozenset({"qwen3_5", "qwen3_5_moe", "qwen3_next"})
"""Families whose keys bear 4 bits."""
LATENT = frozenset(
    {
        "glm4_moe_lite",
        "deepseek_v3",
        "deepseek_v32",
        "glm_moe_dsa",
        "kimi_linear",
        "longcat_flash_ngram",
    }
)
"""Families whose attention keeps one compressed vector for keys and values, small already."""
PLAIN_ONLY = frozenset({"muse_glimmer"})
