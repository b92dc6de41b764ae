from mlxcel.link.watch import Beat, Watch


def new_watch() -> Watch:
    return Watch(interval_s=1, timeout_s=3, tick_timeout_s=10)


def test_silence_is_counted_in_rounds() -> None:
    watch = new_watch()
    assert [watch.judge(None) for _ in range(4)] == [None, None, None, "no heartbeat for 4 s"]


def test_a_beat_ends_the_silence() -> None:
    watch = new_watch()
    for _ in range(3):
        watch.judge(None)
    watch.judge(Beat(1, 0.0))
    assert watch.judge(None) is None


def test_a_long_tick_is_a_wedge_although_the_heart_beats() -> None:
    watch = new_watch()
    assert watch.judge(Beat(4, 10.0)) is None
    assert watch.judge(Beat(4, 10.5)) == "tick 5 has been running for 10.5 s"
