"""What a running server says of itself: slots, properties, tokens."""

from pathlib import Path

import pytest

from tests.whole.program import Program, serve_checkpoint
from tests.whole.streaming import Stream

pytestmark = pytest.mark.slow


def test_slots_and_properties_of_a_server_at_work() -> None:
    words = ("model=echo", "--props", "engine.delay_ms=50", "--parallel", "2")
    with Program(*words, env={"LLAMA_SERVER_SLOTS_DEBUG": "1"}) as program:
        with Stream(program.url, "one two three", max_tokens=9) as stream:
            stream.pieces(2)
            busy, idle = program.get("/slots")[1]
            assert (busy["is_processing"], idle["is_processing"]) == (True, False)
            assert "id_task" not in idle
            assert busy["next_token"][0]["has_next_token"] is True
            assert stream.rest().is_done
        done = program.get("/slots")[1][0]
        assert (done["is_processing"], done["id_task"]) == (False, 0)
        assert (done["params"]["max_tokens"], done["next_token"][0]["n_remain"]) == (9, 0)
        assert done["next_token"][0]["n_decoded"] == len(done["generated"]) == 9
        assert "one two three" in done["prompt"]

        props = program.get("/props")[1]
        assert (props["total_slots"], props["model_alias"]) == (2, "echo")
        assert props["default_generation_settings"]["n_ctx"] == done["n_ctx"] > 0
        patch = {"default_temperature": 0.125, "default_max_tokens": 7}
        assert program.call("PATCH", "/v1/settings", patch)[0] == 200
        params = program.get("/props")[1]["default_generation_settings"]["params"]
        assert (params["temperature"], params["n_predict"]) == (0.125, 7)


def test_what_the_checkpoint_says(tiny: Path) -> None:
    with Program(*serve_checkpoint(tiny, "--props", "--no-slots")) as program:
        assert program.get("/slots")[0] == 501
        props = program.get("/props")[1]
        assert props["model_path"] == str(tiny)
        assert (props["model_ftype"], props["bos_token"]) == ("MLX F32", "<|bos|>")
        assert props["endpoint_slots"] is False
        assert props["precision"].startswith("float32")
        assert props["geometry"]["n_batch"] > 0
        assert props["chat_template_caps"]["supports_tool_calls"] is True
        tokens = program.post("/tokenize", {"content": "hä", "add_special": True})[1]["tokens"]
        assert program.post("/detokenize", {"tokens": tokens[1:]})[1] == {"content": "hä"}
        # A chat's prompt is as many tokens as the text it was made of.
        messages = [{"role": "user", "content": "hi"}]
        prompt = program.post("/apply-template", {"messages": messages})[1]["prompt"]
        counted = program.post("/tokenize", {"content": prompt})[1]["tokens"]
        answer = program.chat("hi", max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == len(counted)
