"""The worker's process as a program: what it makes of its standard input and of signals."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from mlxcel.link.messages import Frame, FromWorker, Loading, Ready, Stop, WorkerSpec
from mlxcel.worker.main import read_line

PATIENCE_MS = 20_000
ECHO = {
    "script": [],
    "faults": [],
    "delay_ms": 0,
    "window": 64,
    "scheduler": {"parallel": 1, "max_batch_size": None, "no_batch": False},
    "max_queue_depth": 1,
    "ctx_size": 0,
}


class Program:
    """The front's half, without any of the front's code."""

    def __init__(self, folder: Path, context: Any) -> None:
        self.data = context.socket(zmq.PAIR)
        self.beats = context.socket(zmq.PULL)
        for socket, name in ((self.data, "data"), (self.beats, "beat")):
            socket.bind(f"ipc://{folder}/{name}")
        spec = WorkerSpec(
            name="chat",
            factory="mlxcel.engine.echo:EchoWorker",
            options=ECHO,
            parts=[],
            data_address=f"ipc://{folder}/data",
            beat_address=f"ipc://{folder}/beat",
            beat_interval_s=0.05,
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlxcel.worker"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(spec) + b"\n")
        self.process.stdin.flush()

    def next(self) -> FromWorker:
        assert self.data.poll(PATIENCE_MS), "the worker says nothing"
        return msgspec.msgpack.decode(self.data.recv(), type=FromWorker)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_MS / 1000)


@pytest.fixture
def program() -> Iterator[Program]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, zmq.Context() as context:
        program = Program(Path(folder), context)
        yield program
        program.process.kill()
        program.process.wait()
        for pipe in (program.process.stdin, program.process.stderr):
            assert pipe is not None
            pipe.close()
        context.destroy(linger=0)


def test_it_loads_is_ready_and_stops_when_told(program: Program) -> None:
    assert isinstance(program.next(), Loading)
    assert isinstance(program.next(), Frame)
    assert isinstance(program.next(), Ready)
    program.data.send(msgspec.msgpack.encode(Stop()))
    assert program.exit_code() == 0


def test_it_beats(program: Program) -> None:
    for _ in range(2):
        assert program.beats.poll(PATIENCE_MS)
        ticks, busy_s = msgspec.msgpack.decode(program.beats.recv(), type=tuple[int, float])
    assert ticks <= 1
    assert busy_s == 0.0


def test_the_end_of_standard_input_ends_it(program: Program) -> None:
    program.next()
    assert program.process.stdin is not None
    program.process.stdin.close()
    assert program.exit_code() == 0


def test_sigterm_ends_it_quietly(program: Program) -> None:
    while not isinstance(program.next(), Frame):
        pass
    program.process.send_signal(signal.SIGTERM)
    assert program.exit_code() == 0
    assert program.process.stderr is not None
    assert program.process.stderr.read() == b""


def test_a_person_who_starts_it_is_told_how_it_is_meant() -> None:
    command = [sys.executable, "-m", "mlxcel.worker"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"started by mlxcel" in ended.stderr


def test_a_line_may_come_in_pieces() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one ")
    os.write(writer, b"line\n")
    try:
        assert read_line(reader) == b"one line\n"
    finally:
        os.close(reader)
        os.close(writer)
