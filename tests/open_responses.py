"""What Open Responses wants of an answer (openresponses.org, of 2026-04-24), as JSON Schemas: of a
response, and of the events of a stream. Written from its tables; other fields may be there."""

from typing import Any

from jsonschema import Draft202012Validator

INT, STR, NUM, BOOL = ({"type": kind} for kind in ("integer", "string", "number", "boolean"))
OBJECT = {"type": "object"}


def maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def const(value: str) -> dict[str, Any]:
    return {"const": value}


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(optional: dict[str, Any] | None = None, /, **required: Any) -> dict[str, Any]:
    fields = {name.rstrip("_"): schema for name, schema in required.items()}
    properties = fields | (optional or {})
    return {"type": "object", "properties": properties, "required": [*fields]}


STATUS = {"enum": ["in_progress", "completed", "incomplete"]}
CHOICE = {"enum": ["none", "auto", "required"]}
TOP_LOGPROB = record(token=STR, logprob=NUM, bytes=array(INT))
LOGPROB = record(token=STR, logprob=NUM, bytes=array(INT), top_logprobs=array(TOP_LOGPROB))
ANNOTATION = record(type=const("url_citation"), url=STR, start_index=INT, end_index=INT, title=STR)
PART = {
    "anyOf": [
        record(type={"enum": ["input_text", "text", "summary_text", "reasoning_text"]}, text=STR),
        record(
            {"logprobs": array(LOGPROB)},
            type=const("output_text"),
            text=STR,
            annotations=array(ANNOTATION),
        ),
        record(type=const("refusal"), refusal=STR),
    ]
}
PHASE = {"phase": {"enum": ["commentary", "final_answer"]}}
ITEM = {
    "anyOf": [
        record(
            PHASE,
            type=const("message"),
            id=STR,
            status=STATUS,
            role={"enum": ["user", "assistant", "system", "developer"]},
            content=array(PART),
        ),
        record(
            type=const("function_call"), id=STR, call_id=STR, name=STR, arguments=STR, status=STATUS
        ),
        record(
            type=const("function_call_output"),
            id=STR,
            call_id=STR,
            output={"anyOf": [STR, array(PART)]},
            status=STATUS,
        ),
        record(
            {"content": array(PART), "encrypted_content": STR},
            type=const("reasoning"),
            id=STR,
            summary=array(PART),
        ),
        record({"created_by": STR}, type=const("compaction"), id=STR, encrypted_content=STR),
    ]
}
USAGE = record(
    input_tokens=INT,
    output_tokens=INT,
    total_tokens=INT,
    input_tokens_details=record(cached_tokens=INT),
    output_tokens_details=record(reasoning_tokens=INT),
)
FUNCTION = record(
    type=const("function"),
    name=STR,
    description=maybe(STR),
    parameters=maybe(OBJECT),
    strict=maybe(BOOL),
)
CHOSEN = record({"name": STR}, type=const("function"))
RESPONSE = record(
    id=STR,
    object=const("response"),
    created_at=INT,
    completed_at=maybe(INT),
    status=STR,
    incomplete_details=maybe(record(reason=STR)),
    model=STR,
    previous_response_id=maybe(STR),
    instructions=maybe(STR),
    output=array(ITEM),
    error=maybe(record(code=STR, message=STR)),
    tools=array(FUNCTION),
    tool_choice={
        "anyOf": [
            CHOICE,
            CHOSEN,
            record(type=const("allowed_tools"), tools=array(CHOSEN), mode=CHOICE),
        ]
    },
    truncation={"enum": ["auto", "disabled"]},
    parallel_tool_calls=BOOL,
    text=record({"verbosity": {"enum": ["low", "medium", "high"]}}, format=record(type=STR)),
    top_p=NUM,
    presence_penalty=NUM,
    frequency_penalty=NUM,
    top_logprobs=INT,
    temperature=NUM,
    reasoning=maybe(record(effort=maybe(STR), summary=maybe(STR))),
    usage=maybe(USAGE),
    max_output_tokens=maybe(INT),
    max_tool_calls=maybe(INT),
    store=BOOL,
    background=BOOL,
    service_tier=STR,
    metadata={},
    safety_identifier=maybe(STR),
    prompt_cache_key=maybe(STR),
)
COMPACTION = record(
    id=STR,
    object=const("response.compaction"),
    output=array(ITEM),
    created_at=INT,
    usage=USAGE,
)


def event(optional: dict[str, Any] | None = None, /, **required: Any) -> dict[str, Any]:
    return record(optional, sequence_number=INT, **required)


SNAPSHOT = event(response=RESPONSE)
WHOLE_ITEM = event(output_index=INT, item=maybe(ITEM))
IN_ITEM = {"item_id": STR, "output_index": INT}
IN_PART = {**IN_ITEM, "content_index": INT}
IN_SUMMARY = {**IN_ITEM, "summary_index": INT}
LOGPROBS = {"logprobs": array(LOGPROB)}
EVENTS = {
    "created": SNAPSHOT,
    "queued": SNAPSHOT,
    "in_progress": SNAPSHOT,
    "completed": SNAPSHOT,
    "failed": SNAPSHOT,
    "incomplete": SNAPSHOT,
    "output_item.added": WHOLE_ITEM,
    "output_item.done": WHOLE_ITEM,
    "content_part.added": event(**IN_PART, part=PART),
    "content_part.done": event(**IN_PART, part=PART),
    "output_text.delta": event(LOGPROBS, **IN_PART, delta=STR),
    "output_text.done": event(LOGPROBS, **IN_PART, text=STR),
    "function_call_arguments.delta": event(**IN_ITEM, delta=STR),
    "function_call_arguments.done": event(**IN_ITEM, arguments=STR),
    "reasoning_summary_part.added": event(**IN_SUMMARY, part=PART),
    "reasoning_summary_part.done": event(**IN_SUMMARY, part=PART),
    "reasoning_summary_text.delta": event(**IN_SUMMARY, delta=STR),
    "reasoning_summary_text.done": event(**IN_SUMMARY, text=STR),
    # There `reasoning.delta` and `.done`; ours are OpenAI's words, which its clients know.
    "reasoning_text.delta": event(**IN_PART, delta=STR),
    "reasoning_text.done": event(**IN_PART, text=STR),
}


def faults(schema: dict[str, Any], body: Any) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(body)
    return [f"{error.json_path}: {error.message}"[:200] for error in found]


def event_faults(data: dict[str, Any]) -> list[str]:
    """A name that is not known is a fault too."""
    name = data["type"].removeprefix("response.")
    return faults(EVENTS[name], data) if name in EVENTS else [f"no event {data['type']}"]
