"""A snapshot of the live settings for tests that need one and do not care which."""

from dataclasses import replace
from typing import Any

from mlxcel.core.settings import SamplingDefaults, Settings

PLAIN = Settings(
    version=1,
    fingerprint="0" * 64,
    sampling=SamplingDefaults(
        temperature=0.8,
        top_p=0.95,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.0,
        repetition_context_size=64,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        dry_multiplier=0.0,
        dry_base=1.75,
        dry_allowed_length=2,
        dry_penalty_last_n=64,
        dry_sequence_breakers=("\n", ":", '"', "*"),
        seed=None,
        max_tokens=512,
    ),
    decode_timeout_s=600,
    template_kwargs={},
    reasoning_budget=-1,
    loop=None,
    language=None,
)


def settings(**changes: Any) -> Settings:
    return replace(PLAIN, **changes)
