"""The checkpoint all contestants load: the embedded SmolLM2, dense, in float32."""

import json
import subprocess
import sys
from pathlib import Path

EXPORT = """
import json, sys
from pathlib import Path
from mlxcel.weights.load import load_model
import mlx.core as mx
from mlx.utils import tree_flatten

options = {
    "path": sys.argv[1], "precision": "float32", "batch": 4, "device": "auto",
    "train_window": 8192,
    "fuse_projections": "off",
    "weight_materialization": "eager",
}
model = load_model(options, lambda step, fraction: None)
arrays = dict(tree_flatten(model.network.parameters()))
mx.save_safetensors(str(Path(sys.argv[2]) / "model.safetensors"), arrays, {"format": "mlx"})
"""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def dense_checkpoint(work: Path) -> Path:
    """Made once in `work`; takes the embedded model out of the store, or fills the store."""
    out = (work / "smollm2-float32").resolve()
    if (out / "config.json").exists():
        return out
    source = _stored_folder()
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", EXPORT, str(source), str(out)], check=True)
    for name in TOKENIZER_FILES:
        (out / name).write_bytes((source / name).read_bytes())
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    kept = {k: v for k, v in config.items() if not k.startswith("quantization")}
    (out / "config.json").write_text(json.dumps(kept | {"torch_dtype": "float32"}))
    return out


def _stored_folder() -> Path:
    command = [sys.executable, "-m", "mlxcel", "graph", "--format", "json"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    nodes = json.loads(printed)["nodes"]
    return Path(nodes["model"]["options"]["path"])
