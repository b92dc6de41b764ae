"""Which checkpoints hold MTP heads that the engine can load: read by both sides of the border."""

MTP_TARGETS = ("qwen3_5", "qwen3_5_text")
"""`model_type` of models whose own heads can be loaded."""
MTP_PREFIXES = ("mtp.", "language_model.mtp.")
"""Of their tensors: as trained, and as conversions for MLX keep them."""
