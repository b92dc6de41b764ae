import subprocess
import sys

import pytest

from mlxcel.text.tools.choose import find_format
from mlxcel.text.tools.formats import MISTRAL_ARGS

K3_WORDS = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"}
PYTHONIC_WORDS = {"<|tool_call_start|>", "<|tool_call_end|>"}


@pytest.mark.parametrize(
    ("template", "words", "name"),
    [
        pytest.param("<minimax:tool_call> <|tool_call> <tool_call|>", (), "minimax_m2", id="1"),
        pytest.param("<|tool_call> <tool_call|> <arg_key>", (), "gemma4", id="2"),
        pytest.param("<|tool_call>", (), None, id="2-half"),
        pytest.param("<start_function_call>", (), "function_gemma", id="3"),
        pytest.param("<longcat_tool_call> <arg_key>", (), "longcat", id="4"),
        pytest.param("<tool_call> <arg_key> tool_call.name", (), "glm47", id="5"),
        pytest.param("<|tool_list_start|>", (), "pythonic", id="6-list"),
        pytest.param("<|tool_call_start|>", (), "pythonic", id="6-call"),
        pytest.param("<tool_call>\n<function= tool_call.name", (), "qwen3_coder", id="7"),
        pytest.param("'<tool_call>\\n<function=' tool_call.name", (), "qwen3_coder", id="7-escape"),
        pytest.param("<|tool_calls_section_begin|>", (), "kimi_k2", id="8"),
        pytest.param('<function name="f"><param name="p">', (), "minicpm5", id="9"),
        pytest.param("[TOOL_CALLS]", (), "mistral", id="10"),
        pytest.param("<atem:function_calls>", (), "muse_spark", id="11"),
        pytest.param('<tool_call> tool_call.name "parameters":', (), "json_tools", id="12"),
        pytest.param("plain", K3_WORDS, "kimi_k3", id="13"),
        pytest.param(None, K3_WORDS | PYTHONIC_WORDS, "kimi_k3", id="13-before-14"),
        pytest.param("plain", K3_WORDS - {"<|sep|>"}, None, id="13-half"),
        pytest.param("plain", PYTHONIC_WORDS, "pythonic", id="14"),
        pytest.param("<|python_tag|>", (), "llama3_json", id="15-tag"),
        pytest.param('{"name": .., "parameters": ..}', (), "llama3_json", id="15-parameters"),
        pytest.param("<|python_tag|>", PYTHONIC_WORDS, "pythonic", id="14-before-15"),
        pytest.param("<tool_call>{{ call | tojson }}", (), "json_tools", id="hermes-template"),
        pytest.param("plain", {"<tool_call>", "</tool_call>"}, "json_tools", id="hermes-words"),
        pytest.param("plain", (), None, id="none"),
        pytest.param(None, (), None, id="no-template"),
    ],
)
def test_first_row_that_matches_wins(
    template: str | None, words: set[str], name: str | None
) -> None:
    found = find_format(template, words)
    assert (found and found.name) == name


def test_the_later_mistral_form_is_told_by_its_own_marker() -> None:
    assert find_format("[TOOL_CALLS] [ARGS]", ()) is MISTRAL_ARGS


def test_the_parsers_load_without_mlx() -> None:
    code = (
        "from mlxcel.text.tools.formats import GLM47, MINICPM5\n"
        "GLM47.read('<tool_call>f</tool_call>', ())\n"
        "MINICPM5.read('<function name=\"f\"></function>', ())\n"
        "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "_mlx_lm_tool_parsers" in loaded
    assert not loaded & {"mlx", "mlx_lm", "transformers", "numpy"}
