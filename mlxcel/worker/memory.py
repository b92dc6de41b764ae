"""Limits of the memory MLX may use, set before the weights are read."""

import logging

import mlx.core as mx

from mlxcel.worker.precision import Backend

log = logging.getLogger(__name__)


def wire_weights(backend: Backend) -> None:
    """Let Metal keep the working set resident, as mlx-lm does: paged-out weights make the first
    tokens after a pause slow. Nothing to do elsewhere."""
    if backend is not Backend.METAL:
        return
    limit = int(mx.device_info()["max_recommended_working_set_size"])
    mx.set_wired_limit(limit)
    log.info("wired limit: %.1f GB", limit / 1e9)
