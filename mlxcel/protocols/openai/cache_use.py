"""What a request asks of the prompt cache: whether, and in whose name.

A field is typed at the root, where a wrong type was refused already, and looked for in a nested
`extra_body` next, where a wrong type counts as absent (http-openai, 2).
"""

from mlxcel.core.cache import ANONYMOUS, CacheUse
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.extras import extra, read_text

SESSION_NAMES = ("prompt_cache_key", "user")
"""The first that is there names the session."""


def read_cache_use(fields: Reader) -> CacheUse:
    switch = extra(fields, "cache_prompt", fields.boolean("cache_prompt"))
    names = (read_text(fields, key) for key in SESSION_NAMES)
    session = next((name for name in names if name is not None), ANONYMOUS)
    return CacheUse(is_on=switch is not False, session=session)
