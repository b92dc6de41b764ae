"""Every flag of the interface is known: it works, changes nothing, or is refused with a reason."""

import pytest

from docs.llama_server import row_of
from mlxcel.config.flag_table import load_table
from mlxcel.config.flags import UsageError, parse
from tests.config.reading import parsed
from tests.rows import every

TABLE = load_table()
CONTRACT = """
--model -m --hf-repo -hf -hfr --hf-token -hft --offline --revision --alias -a --tags --models-dir
--model-store-root --models-max --models-autoload --no-models-autoload --models-preset --warmup
--no-warmup --sleep-idle-seconds --surgery --estimate-memory --force --rope-scaling --rope-scale
--rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor
--yarn-beta-slow --yarn-beta-fast --spm-infill --cache-list -cl --completion-bash
--dump-flag-surface --hf-file -hff --model-url -mu --docker-repo -dr
--parallel -np --n-parallel --max-batch-size -c --ctx-size -n --predict --n-predict
--max-queue-depth --prefill-chunk-size -b --batch-size -ub --ubatch-size --prefill-grant-interval
--max-batch-prefill --max-batch-prefill-tokens --enable-preemption --preemption-policy --no-batch
--cont-batching -cb --no-cont-batching --decode-timeout --timeout -to --context-shift
--no-context-shift --keep --swa-full
--prompt-cache-enabled --no-prompt-cache --cache-prompt --no-cache-prompt
--prompt-cache-capacity-bytes --prompt-cache-max-entries --prompt-cache-ttl
--prompt-cache-min-prefix --cache-ram -cram --cache-reuse --prompt-cache-snapshot-capacity-bytes
--prompt-cache-snapshot-max-entries --prompt-cache-snapshot-ttl --apc-enabled --apc-block-size
--apc-num-blocks --apc-hash --enable-vlm-prefix-cache --vision-cache-size --max-kv-size
--kv-cache-mode --cache-type-k -ctk --cache-type-v -ctv --turbo-boundary-v --kv-bits
--kv-group-size --kv-quant-scheme --kv-skip-last-layer --decode-storage-backend --kv-cache-budget
--kv-admission-watermark --slot-save-path --cache-idle-slots --slot-prompt-similarity --kv-unified
--ctx-checkpoints --swa-checkpoints --checkpoint-min-step
--model-draft -md --draft-model --spec-draft-model --draft-kind --spec-type --draft-block-size
--draft --draft-max --draft-n --spec-draft-n-max --prompt-lookup-max-batch
--temp --top-k --top-p --min-p --typical --top-nsigma --top-n-sigma --xtc-probability
--xtc-threshold --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty
--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker
--mirostat --mirostat-lr --mirostat-ent --dynatemp-range --dynatemp-exp --adaptive-target
--adaptive-decay -s --seed --samplers --sampler-seq -l --logit-bias --ignore-eos -r
--reverse-prompt --grammar --grammar-file -j --json-schema --json-schema-file
--chat-template --chat-template-file --chat-template-kwargs --jinja --no-jinja --reasoning
--reasoning-effort --reasoning-preserve --reasoning-format --reasoning-budget
--reasoning-budget-message --reasoning-alias-field --skip-chat-parsing --prefill-assistant
--no-prefill-assistant --lang-bias --lang-bias-config --lang-bias-policy
--lang-bias-include-special --lang-bias-include-numeric --lang-bias-include-punctuation
--lang-bias-include-byte-fragments --lang-bias-rebuild-cache --special
--lora --adapter --lora-scaled --lora-init-without-apply --lora-fuse --control-vector
--control-vector-scaled --control-vector-layer-range
--host --port --reuse-port --threads-http --api-prefix --api-key --api-key-file --ssl-cert-file
--ssl-key-file --sse-ping-interval --cors-origins --cors-methods --cors-headers
--cors-credentials --allowed-origins
--slots --no-slots --props --metrics --metrics-port --settings --webui --no-ui --no-webui
--no-agent --no-ui-mcp-proxy --ui --path --tools --tools-runtime --mcp-servers-config
--mcp-servers-json --ui-mcp-proxy --agent -ag
--responses-store-max-entries --responses-store-max-bytes --responses-store-ttl-secs
--conversation-store-max-entries --conversation-store-max-bytes --conversation-store-ttl-secs
--max-image-payload-size --max-images --max-image-width --max-image-height
--max-image-decode-alloc-bytes --image-min-tokens --image-max-tokens --media-path
--video-max-frames --video-fps --mmproj -mm --mmproj-url -mmu --no-mmproj
--audio-queue-depth --audio-request-timeout-secs --embedding-model --embedding-batch-size
--embedding-max-length --embedding-queue-depth --embedding-request-timeout-secs --pooling
--embd-normalize --embedding --embeddings --reranker-model --rerank-batch-size --rerank
--reranking --image-model --image-queue-depth --image-request-timeout-secs --max-denoising-steps
--diffusion-sampler --diffusion-threshold
-v --verbose --log-verbose -lv --verbosity --log-disable --log-file --log-colors --log-prefix
--log-timestamps --log-prompts-dir
--distributed-config --node-role --node-id --peers --prefill-peers --decode-peers --serving-bind
--tp-size --tp-moe-mode --tp-embedding-mode --tp-lm-head-mode --pp-size --pp-layers
--pp-micro-batch-size --pp-auto --pp-peer --enable-elastic-pp --elastic-pp-drain-timeout
--elastic-pp-pressure-fraction --elastic-pp-cool-down --debug-pp-trace --cluster-discovery
--cluster-name --cluster-peers --cluster-discovery-port --cluster-control-addr
--cluster-config-out --dry-run
--backend-sampling --check-tensors --load-mode --mlock --mmap --no-mmap --direct-io --repack
--flash-attn --device --list-devices --gpu-layers --n-gpu-layers -ngl --main-gpu --split-mode
--tensor-split --rpc --no-host --op-offload --kv-offload --cpu-moe --n-cpu-moe --threads
--threads-batch --cpu-mask --cpu-mask-batch --cpu-range --cpu-range-batch --cpu-strict
--cpu-strict-batch --poll --poll-batch --prio --prio-batch --numa --override-kv --override-tensor
--fit --fit-ctx --fit-target --defrag-thold --perf
"""


@every("flag", CONTRACT.split())
def test_a_flag_of_the_interface_is_known(flag: str) -> None:
    row_of(TABLE, flag)


NEUTRAL = [
    ["--models-max", "4"],
    ["--sleep-idle-seconds", "-1"],
    ["--rope-freq-base", "0"],
    ["--yarn-ext-factor", "-1.0"],
    ["--spec-draft-n-min", "0"],
    ["--spec-draft-p-split", "0.10"],
    ["--spec-draft-type-k", "f16"],
    ["--embedding-batch-size", "16"],
    ["--tp-size", "1"],
    ["--load-mode", "mmap"],
    ["--flash-attn", "auto"],
    ["-fa", "on"],
    ["-ngl", "99"],
    ["--split-mode", "layer"],
    ["--main-gpu", "0"],
    ["--n-cpu-moe", "0"],
    ["--poll", "50"],
    ["--prio", "0"],
    ["--fit-ctx", "4096"],
    ["--fit-target", "1024"],
    ["--defrag-thold", "0.1"],
]


@every("words", NEUTRAL, ids=lambda words: words[0])
def test_a_value_that_asks_for_nothing_is_taken(words: list[str]) -> None:
    assert parsed(*words) == parsed() == parsed("=".join(words))


@every("words", NEUTRAL, ids=lambda words: words[0])
def test_another_value_is_refused_with_the_reason(words: list[str]) -> None:
    with pytest.raises(UsageError, match="is not supported"):
        parse([words[0], "q77"], {})


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("LLAMA_ARG_N_GPU_LAYERS", "0", "99"),
        ("LLAMA_ARG_FLASH_ATTN", "off", "auto"),
        ("LLAMA_ARG_KV_OFFLOAD", "0", "1"),
        ("LLAMA_ARG_EMBEDDINGS", "1", "0"),
        ("MLXCEL_MEMORY_LIMIT", "24G", "none"),
        ("MLXCEL_WIRED_LIMIT", "8G", "max"),
    ],
)
def test_a_variable_that_asks_for_what_is_not_there_is_refused(
    name: str, value: str, neutral: str
) -> None:
    assert parsed(**{name: neutral}) == parsed()
    with pytest.raises(UsageError, match=f"{name}.*cannot work here"):
        parse([], {name: value})
