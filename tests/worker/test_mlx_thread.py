"""A thread that ran MLX takes its streams along. In a process: it used to abort at exit."""

import subprocess
import sys
from pathlib import Path

WORKER = """
import mlx.core as mx
from mlxcel.core.status import ModelInfo
from mlxcel.worker.base import Worker

class Adding(Worker):
    def setup(self, parts, progress):
        self.add = mx.compile(lambda a: (a + 1).sum())
        self.held = mx.ones((4, 4))
        return ModelInfo(family="adding", vocab_size=1, context_window=0, train_window=1,
            hidden_size=0, parameters=0, weights_bytes=0, precision="none", device="cpu")
    def take(self, inbox):
        return None
    def tick(self, inbox):
        mx.eval(self.add(self.held))
        return None, 0
    def close(self):
        del self.held
"""
PROGRAM = """
import sys, threading
import mlxcel
mlxcel.__path__.append(sys.argv[1])
from mlxcel.link.messages import Stop, WorkerSpec
from mlxcel.worker import loop, mlx_thread

spec = WorkerSpec(name="chat", factory="mlxcel.adding:Adding", options={}, parts=[])
def body():
    inboxes = iter([[], [], [Stop()]])
    code = mlx_thread.run(spec, lambda s: next(inboxes), lambda m: None, loop.Pulse())
    import mlx.core as mx
    try:
        mx.eval(mx.ones(1) + 1)
    except RuntimeError as error:
        print(code, error)
for _ in range(2):
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
"""


def test_a_worker_thread_leaves_no_stream_behind_and_the_next_one_works(tmp_path: Path) -> None:
    (tmp_path / "adding.py").write_text(WORKER)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("0 There is no Stream") for line in lines)
