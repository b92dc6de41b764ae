import io

import pytest

from mlxcel.store.progress import PlainLines, RewritingLine, progress_for, silent


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "stream", "kind"),
    [
        pytest.param("auto", Terminal(), RewritingLine, id="auto-on-a-terminal"),
        pytest.param("auto", io.StringIO(), PlainLines, id="auto-in-a-log"),
        pytest.param(True, io.StringIO(), RewritingLine, id="forced"),
    ],
)
def test_mode_picks_the_display(mode: bool | str, stream: io.StringIO, kind: type) -> None:
    assert isinstance(progress_for(mode, stream), kind)


def test_off_shows_nothing() -> None:
    assert progress_for(False, Terminal()) is silent


def test_plain_lines_come_at_start_every_few_seconds_and_at_the_end() -> None:
    out, clock = io.StringIO(), Clock()
    show = PlainLines(out, clock)
    for now_s, fraction in ((0, 0.0), (1, 0.1), (6, 0.5), (7, 0.6), (8, 1.0)):
        clock.now_s = now_s
        show("copying", fraction)
    assert out.getvalue() == "copying   0%\ncopying  50%\ncopying 100%\n"


def test_rewriting_line_is_left_standing_when_done() -> None:
    out, clock = Terminal(), Clock()
    show = RewritingLine(out, clock)
    for fraction in (0.0, 0.5, 1.0):
        clock.now_s += 1
        show("copying", fraction)
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().endswith("copying 100%\n")


def test_rewriting_line_gives_a_new_step_its_own_line() -> None:
    out = Terminal()
    show = RewritingLine(out, Clock())
    show("one", None)
    show("two", None)
    assert out.getvalue().replace("\r\x1b[2K", "") == "one\ntwo"
