"""DFlash: a small block diffusion model that reads hidden states of the target and proposes a
block of tokens in one forward (contract: speculative 9)."""
