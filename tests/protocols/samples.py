"""Settings and rules that the protocol tests read requests with."""

from mlxcel.protocols.base import ReadRules
from tests.settings import settings

SETTINGS = settings(template_kwargs={"enable_thinking": True, "style": "server"})
RULES = ReadRules(require_model=True, served=("tiny", "alias", "/m/tiny"), refuse_unknown=False)
