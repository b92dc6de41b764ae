"""LoRA adapters: from a folder on disk to layers whose low-rank part can be turned up and down."""
