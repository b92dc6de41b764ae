"""Which models may bring MTP heads that the engine can load: read on both sides of the border."""

MTP_HEADS = {
    "qwen3_5": ("mtp.", "language_model.mtp."),
    "qwen3_next": ("mtp.", "language_model.mtp."),
    "mimo": ("model.mtp_layers.",),
    "glm4_moe": ("model.layers.{layers}.",),
    "glm4_moe_lite": ("model.layers.{layers}.",),
    "deepseek_v3": ("model.layers.{layers}.",),
}
"""`model_type` of a model, and how the names of its heads' tensors begin in its own checkpoint;
`layers`: how many it has."""
