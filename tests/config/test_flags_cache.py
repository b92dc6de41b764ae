"""Flags and variables of caches and KV modes whose value is not simply what was written."""

from collections.abc import Mapping
from typing import Any

import pytest

from mlxcel.config.compose import compose
from mlxcel.config.flag_table import load_table
from mlxcel.config.keys import read
from mlxcel.config.validate import validate
from tests.config.reading import parsed, problems, values

ENABLED = "cache.prompt.enabled"


@pytest.mark.parametrize(
    ("argv", "env", "enabled"),
    [
        pytest.param(["--prompt-cache-enabled=false"], {}, False, id="flag-off"),
        pytest.param(["--prompt-cache-enabled=on"], {}, True, id="flag-on"),
        pytest.param(["--prompt-cache-enabled"], {}, True, id="bare"),
        pytest.param(["--no-prompt-cache"], {}, False, id="no-prompt-cache"),
        pytest.param(["--cache-prompt"], {}, True, id="cache-prompt"),
        pytest.param(["--no-cache-prompt"], {}, False, id="no-cache-prompt"),
        pytest.param(["--disable-kv-cache"], {}, False, id="kamiwaza"),
        pytest.param(["--no-prompt-cache", "--cache-prompt"], {}, True, id="last-one-wins"),
        pytest.param([], {"MLXCEL_PROMPT_CACHE_ENABLED": "0"}, False, id="ours"),
        pytest.param([], {"LLAMA_ARG_CACHE_PROMPT": "off"}, False, id="llama"),
        pytest.param([], {"LLAMA_ARG_NO_CACHE_PROMPT": "1"}, False, id="llama-negated"),
        pytest.param(
            [],
            {"LLAMA_ARG_CACHE_PROMPT": "1", "MLXCEL_PROMPT_CACHE_ENABLED": "0"},
            True,
            id="llama-beats-ours",
        ),
        pytest.param(
            ["--no-prompt-cache"],
            {"MLXCEL_PROMPT_CACHE_ENABLED": "1"},
            False,
            id="flag-beats-variable",
        ),
    ],
)
def test_every_spelling_of_the_switch(
    argv: list[str], env: Mapping[str, str], enabled: bool
) -> None:
    assert values(parsed(*argv, **env)) == {ENABLED: enabled}


@pytest.mark.parametrize("word", ["on", "true", "1", "enabled", "off", "false", "0", "disabled"])
@pytest.mark.parametrize("name", ["MLXCEL_PROMPT_CACHE_ENABLED", "APC_ENABLED"])
def test_boolean_words(name: str, word: str) -> None:
    [value] = values(parsed(**{name: word})).values()
    assert value is (word in ("on", "true", "1", "enabled"))


def test_another_word_is_an_error() -> None:
    [(key, rule, _)] = problems(APC_ENABLED="maybe")
    assert key == "APC_ENABLED"
    assert rule.startswith("is none of on")


def test_reuse_belongs_to_its_own_flag() -> None:
    """In one revision of the product it was an alias of the switch."""
    assert values(parsed(LLAMA_ARG_CACHE_REUSE="256")) == {"cache.prompt.reuse": 256}
    assert values(parsed("--cache-reuse", "0")) == {"cache.prompt.reuse": 0}


@pytest.mark.parametrize(("word", "has"), [("1", False), ("true", False), ("0", True)])
def test_boundary_snapshots_are_switched_off_by_a_variable(word: str, has: bool) -> None:
    found = values(parsed(MLXCEL_DISABLE_BOUNDARY_SNAPSHOT=word))
    assert found == {"cache.snapshot.boundary": has}


def test_a_variable_that_disables_says_so_in_a_word_of_its_own() -> None:
    [(key, rule, _)] = problems(MLXCEL_DISABLE_BOUNDARY_SNAPSHOT="maybe")
    assert key == "MLXCEL_DISABLE_BOUNDARY_SNAPSHOT"
    assert rule.startswith("is none of on")


def test_the_stamp_is_pinned_until_a_variable_says_no() -> None:
    key = "routes.anthropic.pin_billing_stamp"
    assert read(tree(), key) is True
    assert read(tree(MLXCEL_ANTHROPIC_PIN_BILLING_STAMP="0"), key) is False


def tree(*argv: str, **env: str) -> dict[str, Any]:
    composed = compose(parsed(*argv, **env).asked)
    assert validate(composed) == []
    return composed.tree


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        pytest.param(["--cache-ram", "-1"], "cache.prompt.ram_mib", -1, id="no-bound"),
        pytest.param(["-cram", "0"], "cache.prompt.ram_mib", 0, id="no-cache"),
        pytest.param(["--keep", "-1"], "cache.keep", -1, id="keep-the-prompt"),
        pytest.param(["--max-kv-size", "64"], "cache.max_kv_size", 64, id="least-cap"),
        pytest.param(["--apc-hash", "sha-256"], "cache.apc.hash", "sha-256", id="hash-spelled-so"),
        pytest.param(["--prompt-cache-ttl", "0"], "cache.prompt.ttl_secs", 0, id="for-ever"),
        pytest.param(
            ["--conversation-disk-max-gb", "200"],
            "cache.conversations.disk_max_bytes",
            214748364800,
            id="gib",
        ),
        pytest.param(
            ["--conversation-disk-budget-mb", "25"],
            "cache.conversations.disk_budget_bytes",
            26214400,
            id="mib",
        ),
        pytest.param(
            ["--conversation-disk-max-gb", "0.5"],
            "cache.conversations.disk_max_bytes",
            536870912,
            id="half-a-gib",
        ),
        pytest.param(["--prompt-cache-dir", "kv"], "cache.prefix_dir", "kv", id="prefix-folder"),
        pytest.param(
            ["--enable-conversation-cache", "True"],
            "cache.conversations.enabled",
            True,
            id="text-true",
        ),
        pytest.param(
            ["--conversation-auto-id", "no"], "cache.conversations.auto_id", False, id="text-no"
        ),
        pytest.param(["--kv-cache-mode", "turbo3"], "cache.kv.mode", "turbo3", id="mode"),
        pytest.param(
            ["--kv-skip-last-layer=false"], "cache.kv.skip_last_layer", False, id="last-layer-too"
        ),
    ],
)
def test_value_reaches_its_key(argv: list[str], key: str, value: object) -> None:
    assert read(tree(*argv), key) == value


@pytest.mark.parametrize(
    ("argv", "key", "words"),
    [
        (["--max-kv-size", "63"], "cache.max_kv_size", "must not be 1 to 63"),
        (["--max-kv-size", "2147483648"], "cache.max_kv_size", "maximum of 2147483647"),
        (["--keep", "-2"], "cache.keep", "minimum of -1"),
        (["--kv-bits", "2"], "cache.kv.bits", "is not one of 0, 4, 8"),
        (["--kv-group-size", "48"], "cache.kv.group_size", "is not one of 32, 64, 128"),
        (["--kv-cache-mode", "q8_0"], "cache.kv.mode", "is not one of fp16, f16, int8"),
        (["--apc-hash", "md5"], "cache.apc.hash", "is not one of sha256, sha-256"),
        (["--cache-ram", "-2"], "cache.prompt.ram_mib", "minimum of -1"),
        (["--conversation-disk-max-gb", "1e30"], "cache.conversations.disk_max_bytes", "maximum"),
        (["--prompt-cache-max-entries", "0"], "cache.prompt.max_entries", "minimum of 1"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_a_value_out_of_bounds_names_its_key_and_what_it_may_be(
    argv: list[str], key: str, words: str
) -> None:
    [problem] = validate(compose(parsed(*argv).asked))
    assert problem.key == key
    assert words in problem.rule
    assert argv[0] in problem.source


def test_a_scaled_number_may_not_overflow() -> None:
    [(key, rule, _)] = problems("--conversation-disk-max-gb", "1e308")
    assert (key, rule) == ("--conversation-disk-max-gb", "is too large")


@pytest.mark.parametrize(
    "argv",
    [
        ["--enable-prefix-caching", "false", "--prompt-cache-dir", "kv"],
        ["--prompt-cache-dir", "kv", "--enable-prefix-caching", "No"],
    ],
)
def test_a_prefix_cache_that_is_switched_off_has_no_folder(argv: list[str]) -> None:
    assert read(tree(*argv), "cache.prefix_dir") is None


@pytest.mark.parametrize("word", ["true", "True", "1"])
def test_a_prefix_cache_that_is_switched_on_leaves_the_folder_alone(word: str) -> None:
    argv = ["--enable-prefix-caching", word]
    assert values(parsed(*argv)) == {}
    assert read(tree(*argv, "--prompt-cache-dir", "kv"), "cache.prefix_dir") == "kv"
    assert parsed(*argv, "--prompt-cache-dir", "kv").warnings == ()


@pytest.mark.parametrize(
    ("flag", "neutral", "working"),
    [
        pytest.param("--vision-cache-size", "20", "40", id="vision"),
        pytest.param("--slot-prompt-similarity", "0", "0.5", id="similarity"),
        pytest.param("--slot-prompt-similarity", "0.0", "1", id="similarity-as-a-fraction"),
        pytest.param("--ctx-checkpoints", "0", "8", id="checkpoints"),
        pytest.param("--swa-checkpoints", "0", "8", id="checkpoints-old-name"),
        pytest.param("--checkpoint-min-step", "0", "256", id="checkpoint-steps"),
        pytest.param("--kv-cache-max-tokens", "0", "4096", id="kamiwaza-bound"),
    ],
)
def test_a_flag_that_works_at_its_neutral_value_only(flag: str, neutral: str, working: str) -> None:
    assert parsed(flag, neutral) == parsed()
    [(key, rule, _)] = problems(flag, working)
    assert key == flag
    assert rule.startswith("is not supported: ")


@pytest.mark.parametrize("flag", ["--cache-idle-slots", "--kv-unified", "--swa-full"])
def test_a_switch_that_asks_for_what_there_is_not(flag: str) -> None:
    [(key, rule, _)] = problems(flag)
    assert key == flag
    assert rule.startswith("cannot work here: ")


def test_image_prefixes_are_refused_until_there_are_images() -> None:
    name = "MLXCEL_ENABLE_VLM_PREFIX_CACHE"
    for found in (problems("--enable-vlm-prefix-cache"), problems(**{name: "1"})):
        [(_, rule, _)] = found
        assert "images are not served yet" in rule
    for word in ("0", "false", "OFF"):
        assert parsed(**{name: word}) == parsed()


CONTRACT = """
--prompt-cache-enabled --no-prompt-cache --cache-prompt --no-cache-prompt
--prompt-cache-capacity-bytes --prompt-cache-max-entries --prompt-cache-ttl
--prompt-cache-min-prefix --cache-ram -cram --cache-reuse --prompt-cache-snapshot-capacity-bytes
--prompt-cache-snapshot-max-entries --prompt-cache-snapshot-ttl --apc-enabled --apc-block-size
--apc-num-blocks --apc-hash --enable-vlm-prefix-cache --vision-cache-size --max-kv-size
--kv-cache-mode --cache-type-k -ctk --cache-type-v -ctv --turbo-boundary-v --kv-bits
--kv-group-size --kv-quant-scheme --kv-skip-last-layer --decode-storage-backend
--kv-cache-budget --kv-admission-watermark --slot-save-path --cache-idle-slots
--slot-prompt-similarity --kv-unified --ctx-checkpoints --swa-checkpoints --checkpoint-min-step
--context-shift --no-context-shift --keep --swa-full --enable-prefix-caching --prompt-cache-dir
--conversation-kv-max-tokens --conversation-snapshots --conversation-disk-max-gb
--disable-kv-cache --enable-conversation-cache --conversation-max-convs
--conversation-ttl-seconds --conversation-auto-id --conversation-auto-fixed
--conversation-disk-dir --conversation-disk-budget-mb --kv-cache-max-tokens
--kv-cache-min-tokens --kv-cache-keep --prefix-cache-headroom
"""
VARIABLES = """
MLXCEL_PROMPT_CACHE_ENABLED LLAMA_ARG_CACHE_PROMPT MLXCEL_PROMPT_CACHE_CAPACITY_BYTES
MLXCEL_PROMPT_CACHE_MAX_ENTRIES MLXCEL_PROMPT_CACHE_TTL MLXCEL_PROMPT_CACHE_MIN_PREFIX
LLAMA_ARG_CACHE_RAM LLAMA_ARG_CACHE_REUSE MLXCEL_PROMPT_CACHE_SNAPSHOT_CAPACITY_BYTES
MLXCEL_PROMPT_CACHE_SNAPSHOT_MAX_ENTRIES MLXCEL_PROMPT_CACHE_SNAPSHOT_TTL
MLXCEL_DISABLE_BOUNDARY_SNAPSHOT APC_ENABLED APC_BLOCK_SIZE APC_NUM_BLOCKS APC_HASH
MLXCEL_APC_TRACE MLXCEL_ENABLE_VLM_PREFIX_CACHE LLAMA_ARG_MAX_KV_SIZE LLAMA_ARG_CACHE_TYPE_K
LLAMA_ARG_CACHE_TYPE_V MLXCEL_KV_BOUNDARY_V_LAYERS MLXCEL_TURBO_BOUNDARY_V
MLXCEL_SPARSE_V_THRESHOLD MLXCEL_KV_SKIP_LAST_LAYER MLXCEL_SERVER_DECODE_STORAGE
MLXCEL_KV_CACHE_BUDGET MLXCEL_KV_ADMISSION_WATERMARK MLXCEL_REASONING_ECHO_MAX_BYTES
LLAMA_ARG_CONTEXT_SHIFT MLXCEL_ANTHROPIC_PIN_BILLING_STAMP
"""


def test_every_flag_and_variable_of_the_contract_is_known() -> None:
    """cli-env.md 6 and the context rows of 5, seed-kamiwaza.md 1."""
    rows = list(load_table().rows("serve"))
    assert set(CONTRACT.split()) <= {flag for row in rows for flag in (*row.flags, *row.negated)}
    assert set(VARIABLES.split()) <= {name for row in rows for name in row.env}
