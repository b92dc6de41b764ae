"""GET /slots; POST /slots/{id}: the tokens of a slot are saved, restored, erased."""

from sanic import HTTPResponse, Request

from mlxcel.core.errors import Unavailable
from mlxcel.core.ports import Generator
from mlxcel.http.deps import Deps
from mlxcel.http.replies import json_reply
from mlxcel.http.routes import Row
from mlxcel.protocols.llama.slot_table import slots_body
from mlxcel.protocols.llama.slots import (
    SlotAction,
    erased_body,
    read_action,
    read_filename,
    read_slot,
    restored_body,
    saved_body,
)


async def act(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    """The order of the checks is the interface's."""
    generator: Generator = deps.ports["generate"]
    slots = generator.slots
    slots.check_kept()
    slot = read_slot(request.match_info["id_slot"], slots.count)
    action = read_action(request.args.get("action"))
    if action is SlotAction.ERASE:
        return json_reply(erased_body(slot, slots.erase(slot)))
    name = read_filename(request.body)
    if action is SlotAction.SAVE:
        return json_reply(saved_body(slot, name, await slots.save(slot, name)))
    return json_reply(restored_body(slot, name, await slots.restore(slot, name)))


async def show(request: Request, deps: Deps, row: Row) -> HTTPResponse:
    generator: Generator = deps.ports["generate"]
    with_text = deps.options.routes["slots_debug"] is True
    states = generator.slots.states(with_text=with_text)
    if request.args.get("fail_on_no_slot") and all(state.is_busy for state in states):
        raise Unavailable("no slot available")
    model = generator.status().model
    drafts = model is not None and model.draft is not None
    return json_reply(slots_body(states, deps.options.fixed, drafts=drafts, with_text=with_text))
