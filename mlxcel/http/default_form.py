"""The form of answers to requests that ask for none, on the routes that take grammars."""

from mlxcel.core.errors import BadField, StartupError
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.generation.structured import compiled


def default_form(grammar: str | None, schema: str | None) -> OutputFormat | None:
    """The grammar wins, as it does in a request. Raises StartupError for one that cannot be
    enforced: no request could be answered."""
    if grammar:
        form = OutputFormat(kind=OutputKind.GBNF, source=grammar, param="grammar")
    elif schema:
        form = OutputFormat(kind=OutputKind.JSON_SCHEMA, source=schema, param="json_schema")
    else:
        return None
    try:
        compiled(form)
    except BadField as error:
        raise StartupError(f"generation.{error.message}") from error
    return form
