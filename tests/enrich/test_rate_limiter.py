import contextlib

from biovl.enrich.rate_limiter import RateLimiter


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def passes(limiter: RateLimiter, clock: Clock, count: int) -> list[float]:
    times = []
    for _ in range(count):
        with limiter.wait():
            times.append(clock.now)
    return times


def test_no_second_sees_more_than_the_limit():
    clock = Clock()
    times = passes(RateLimiter(3, clock=lambda: clock.now, sleep=clock.sleep), clock, 20)
    assert max(sum(t <= other < t + 1 for other in times) for t in times) == 3


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    limiter = RateLimiter(3, clock=lambda: clock.now, sleep=clock.sleep)
    passes(limiter, clock, 1)
    clock.now += 60
    times = passes(limiter, clock, 4)
    assert times[3] - times[0] > 1


def test_a_pause_holds_everybody():
    clock = Clock()
    limiter = RateLimiter(3, clock=lambda: clock.now, sleep=clock.sleep)
    passes(limiter, clock, 1)
    limiter.pause(7)
    assert passes(limiter, clock, 1) == [107]


def test_the_time_counts_at_which_a_request_was_on_its_way():
    clock = Clock()
    limiter = RateLimiter(1, clock=lambda: clock.now, sleep=clock.sleep)
    with limiter.wait() as sent:
        # Connecting took long; the answer takes longer, and keeps nobody waiting.
        clock.now += 5
        sent()
        clock.now += 60
    assert passes(limiter, clock, 1) == [165]


def test_who_fails_to_send_gives_the_turn_on():
    clock = Clock()
    limiter = RateLimiter(1, clock=lambda: clock.now, sleep=clock.sleep)
    with contextlib.suppress(OSError), limiter.wait():
        raise OSError
    assert passes(limiter, clock, 1)[0] > 101
