"""The fields of a Responses request that are checked before its history is looked up."""

from collections.abc import Mapping
from dataclasses import dataclass

from mlxcel.core.errors import BadRequest
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.fields import Reader, json_type, shown
from mlxcel.protocols.openai.envelope import check_model
from mlxcel.protocols.openai.types import check_types
from mlxcel.protocols.responses.tools import Tools, read_tools
from mlxcel.protocols.responses.types import RESPONSES

METADATA = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    previous_id: str | None
    """The response this one follows."""
    conversation: str | None
    """The conversation it belongs to; never beside `previous_id`."""
    store: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: Mapping[str, str]
    tools: Tools


def read_asked(fields: Reader, rules: ReadRules) -> Asked:
    """In the order of the contract (http-responses, 2). Raises BadRequest or ModelNotFound."""
    check_model(fields, rules)
    check_types(fields, RESPONSES)
    previous_id = fields.string("previous_response_id")
    conversation = _conversation(fields)
    if previous_id is not None and conversation is not None:
        what = "previous_response_id and conversation exclude each other; send one of them"
        raise BadRequest(what, param="conversation")
    if fields.boolean("background") is True:
        rule = "responses do not run in the background here; leave it out and use stream"
        raise fields.refuse("background", rule)
    metadata = _metadata(fields)
    if fields.string("truncation") not in (None, "", "disabled"):
        got = shown(fields.body["truncation"])
        raise fields.refuse("truncation", f'wants "disabled": input is never cut here; got {got}')
    newer = fields.integer("max_output_tokens", minimum=1)
    older = fields.integer("max_tokens", minimum=1)
    return Asked(
        previous_id=previous_id,
        conversation=conversation,
        store=fields.boolean("store") is not False,
        max_output_tokens=newer if older is None else older,
        max_tool_calls=fields.integer("max_tool_calls", minimum=0),
        metadata=metadata,
        tools=read_tools(fields, is_strict=rules.strict_tools),
    )


def _conversation(fields: Reader) -> str | None:
    """An id, or an object that has one."""
    value = fields.body.get("conversation")
    if value is None or isinstance(value, str):
        found = value
    elif isinstance(value, dict):
        found = Reader(value, "conversation").required_string("id")
    else:
        rule = f'wants a string or {{"id": ...}}; got {json_type(value)} {shown(value)}'
        raise fields.refuse("conversation", rule)
    if found == "":
        raise fields.refuse("conversation", "wants an id that is not empty")
    return found


def _metadata(fields: Reader) -> Mapping[str, str]:
    sent = fields.mapping("metadata") or {}
    if len(sent) > METADATA:
        raise fields.refuse("metadata", f"wants at most {METADATA} entries, got {len(sent)}")
    for key, value in sent.items():
        if not isinstance(value, str):
            rule = f"wants strings; {shown(key)} has {json_type(value)} {shown(value)}"
            raise fields.refuse("metadata", rule)
    return sent
