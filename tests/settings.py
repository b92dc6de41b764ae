"""A snapshot of the live settings for tests that need one and do not care which."""

from dataclasses import replace
from typing import Any

from mlxcel.core.settings import SamplingDefaults, Settings

PLAIN = Settings(
    version=1,
    fingerprint="0" * 64,
    sampling=SamplingDefaults(
        temperature=0.8, top_p=0.95, top_k=40, min_p=0.05, seed=None, max_tokens=512
    ),
    decode_timeout_s=600,
    template_kwargs={},
)


def settings(**changes: Any) -> Settings:
    return replace(PLAIN, **changes)
