"""Requests whose constraint is being compiled, on threads: a large schema takes longer than a
decode step, and the tick must not wait for it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from mlxcel.core.errors import MlxcelError
from mlxcel.engine.constraint.compile import Compiler
from mlxcel.engine.constraint.matcher import Matcher
from mlxcel.engine.request import Request
from mlxcel.link.messages import Submit

THREADS = 2
Compiled = tuple[Request, list[Matcher] | MlxcelError]


class Compiling:
    """Owned by the tick; the threads see the compiler alone."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")
        self._waiting: dict[str, tuple[Request, Future[list[Matcher]]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        future = self._threads.submit(self._matchers, request.submit)
        self._waiting[request.id] = (request, future)

    def cancel(self, name: str) -> None:
        """Unknown names are ignored."""
        _, future = self._waiting.pop(name, (None, None))
        if future is not None:
            future.cancel()

    def done(self) -> Iterator[Compiled]:
        """Each that is compiled, with a matcher for each choice or why there is none."""
        for name in [name for name, (_, future) in self._waiting.items() if future.done()]:
            request, future = self._waiting.pop(name)
            try:
                yield request, future.result()
            except MlxcelError as why:
                yield request, why

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._waiting.clear()

    def _matchers(self, submit: Submit) -> list[Matcher]:
        assert submit.constraint is not None, "nothing to compile"
        return [
            self._compiler.matcher(submit.constraint, submit.eos_ids) for _ in range(submit.choices)
        ]
