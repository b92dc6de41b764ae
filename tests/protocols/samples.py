"""Settings and rules that the protocol tests read requests with."""

from mlxcel.core.settings import SamplingDefaults, Settings
from mlxcel.protocols.base import ReadRules

SETTINGS = Settings(
    version=1,
    fingerprint="0" * 64,
    sampling=SamplingDefaults(
        temperature=0.8, top_p=0.95, top_k=40, min_p=0.05, seed=None, max_tokens=512
    ),
    decode_timeout_s=600,
    template_kwargs={"enable_thinking": True, "style": "server"},
)
RULES = ReadRules(require_model=True, served=("tiny", "alias", "/m/tiny"), refuse_unknown=False)
