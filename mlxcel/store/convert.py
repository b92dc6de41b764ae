"""A GGUF file to an MLX folder, in a process of its own: this side never imports MLX."""

import subprocess
import sys
import tempfile
from pathlib import Path

from mlxcel.core.errors import StartupError
from mlxcel.store import space
from mlxcel.store.progress import Progress

CONVERTER = ("-P", "-m", "mlxcel.weights.gguf")
"""-P: a folder of that name where the user stands is not imported instead."""
GROWTH = 1.5
"""A converted folder is about as large as its source: blocks stay quantised as they are."""
STOP_WAIT_S = 5.0


def convert(source: Path, folder: Path, progress: Progress) -> None:
    """Fill `folder`. Raises StartupError with the converter's last words when it fails."""
    space.require(folder, int(source.stat().st_size * GROWTH))
    command = [sys.executable, *CONVERTER, str(source), str(folder)]
    label = f"converting {source.name}"
    progress(label, 0.0)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            _follow(process, label, progress)
        finally:
            _end(process)
        if process.returncode != 0:
            errors.seek(0)
            raise StartupError(_failed(source, process.returncode, errors.read()))
    progress(label, 1.0)


def _follow(process: "subprocess.Popen[str]", label: str, progress: Progress) -> None:
    """Until the converter closes its output."""
    assert process.stdout is not None
    for line in process.stdout:
        word, _, rest = line.partition(" ")
        fraction, _, _ = rest.partition(" ")
        if word == "progress":
            # 1.0 ends the line on a terminal; that is said once, when the process has ended.
            progress(label, min(float(fraction), 0.99))
    process.wait()


def _end(process: "subprocess.Popen[str]") -> None:
    """No converter outlives us, whatever interrupted the reading."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _failed(source: Path, code: int, log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"exit code {code}"
    return f"{source} cannot be converted: {reason}"
