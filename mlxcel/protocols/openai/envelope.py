"""The fields around a request that all generation routes of this dialect have: model, stream, n."""

from mlxcel.core.errors import ModelNotFound
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.fields import Reader
from mlxcel.protocols.openai.numbers import given

CHOICES = 8


def check_model(fields: Reader, rules: ReadRules) -> None:
    name = fields.string("model")
    if name is None:
        if rules.require_model:
            raise fields.refuse("model", f'is required; this server serves "{rules.served[0]}"')
    elif rules.refuse_unknown and name not in rules.served:
        raise ModelNotFound(name, rules.served)


def read_stream(fields: Reader) -> tuple[bool, bool]:
    """Whether the answer is streamed, and whether usage is told in the stream."""
    if fields.boolean("stream") is not True:
        return False, False
    options = fields.nested("stream_options")
    return True, options is not None and options.boolean("include_usage") is True


def read_choices(fields: Reader) -> int:
    return given(fields.integer("n", minimum=1, maximum=CHOICES), 1)
