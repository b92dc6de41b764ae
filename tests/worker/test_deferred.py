"""A worker reads no text: the library of tokenizers that mlx-lm names is not read either."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import contextlib, sys

from mlxcel.worker import main

with contextlib.suppress(SystemExit):
    main.main([])  # nothing on its standard input: it ends
import mlxcel.weights.load

assert "transformers.tokenization_utils_base" in sys.modules
assert "transformers.models" not in sys.modules
from mlx_lm import tokenizer_utils

assert issubclass(tokenizer_utils.NewlineTokenizer, tokenizer_utils.PreTrainedTokenizerFast)
assert "transformers.models" not in sys.modules
tokenizer = tokenizer_utils.AutoTokenizer.from_pretrained(sys.argv[1])
assert tokenizer.encode("ab", add_special_tokens=False) == [97, 98]
from transformers.utils import chat_template_utils

assert chat_template_utils.__file__
"""


def test_transformers_is_read_once_it_is_used(tiny: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tiny)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
