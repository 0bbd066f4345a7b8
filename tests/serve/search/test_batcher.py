"""The batcher: what is computed together, what fails alone, and what is refused."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from serve.http.problems import Problem
from serve.search.batcher import Batcher


class Doubling:
    """Doubles numbers, one batch at a time, each when it is let."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.let = threading.Semaphore(0 if held else 1_000)
        self.begun = threading.Semaphore(0)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.begun.release()
        assert self.let.acquire(timeout=600)
        if 13 in items:
            raise ArithmeticError("13 cannot be doubled")
        return [2 * item for item in items]


def batcher(compute: Callable[[Sequence[int]], list[int]], **changes: Any) -> Batcher[int, int]:
    settings: dict[str, Any] = {"name": "numbers", "batch_max": 4, "queue_max": 8}
    return Batcher(compute, **{**settings, **changes})


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, timeout=600))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_an_item_alone_is_computed_at_once_before_another_comes() -> None:
    async def test() -> None:
        doubling = Doubling()
        ask = batcher(doubling)
        assert await ask([3]) == [6]
        assert await ask([4]) == [8]
        assert doubling.batches == [[3], [4]]

    run(test())


def test_what_comes_while_a_batch_is_computed_is_the_next_batch_up_to_the_maximum() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        ask = batcher(doubling)
        first = asyncio.create_task(ask([0]))
        await until(lambda: doubling.batches == [[0]])
        others = [asyncio.create_task(ask([number])) for number in range(1, 7)]
        await until(lambda: ask.waiting == 6)
        doubling.let.release(3)
        assert await first == [0]
        assert await asyncio.gather(*others) == [[2], [4], [6], [8], [10], [12]]
        assert doubling.batches == [[0], [1, 2, 3, 4], [5, 6]]

    run(test())


def test_the_items_of_one_call_are_one_batch() -> None:
    async def test() -> None:
        doubling = Doubling()
        assert await batcher(doubling)([1, 2, 3]) == [2, 4, 6]
        assert doubling.batches == [[1, 2, 3]]

    run(test())


def test_with_a_wait_others_join_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    is_over = asyncio.Event()
    sleep = asyncio.sleep

    async def wait(seconds: float) -> None:
        if not seconds:
            return await sleep(0)
        waits.append(seconds)
        await is_over.wait()

    async def test() -> None:
        monkeypatch.setattr(asyncio, "sleep", wait)
        doubling = Doubling()
        ask = batcher(doubling, wait_ms=300)
        first = asyncio.create_task(ask([1]))
        while not waits:
            await sleep(0)
        second = asyncio.create_task(ask([2]))
        while ask.waiting < 2:
            await sleep(0)
        is_over.set()
        assert await asyncio.gather(first, second) == [[2], [4]]
        assert doubling.batches == [[1, 2]]
        assert waits == [0.3]

    run(test())


def test_an_item_that_cannot_be_computed_fails_alone() -> None:
    async def test() -> None:
        ask = batcher(Doubling())
        answers = await asyncio.gather(ask([1]), ask([13]), ask([2]), return_exceptions=True)
        assert answers[0] == [2]
        assert isinstance(answers[1], ArithmeticError)
        assert answers[2] == [4]
        assert await ask([5]) == [10]

    run(test())


def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        ask = batcher(doubling)
        first = asyncio.create_task(ask([0]))
        await until(lambda: doubling.batches == [[0]])
        gone, stays = asyncio.create_task(ask([1])), asyncio.create_task(ask([2]))
        await until(lambda: ask.waiting == 2)
        gone.cancel()
        doubling.let.release(2)
        assert await stays == [4]
        assert await first == [0]
        assert doubling.batches == [[0], [2]]

    run(test())


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        ask = batcher(doubling, queue_max=3)
        tasks = [asyncio.create_task(ask([0]))]
        await until(lambda: doubling.batches == [[0]])
        tasks += [asyncio.create_task(ask([number])) for number in (1, 2, 3)]
        await until(lambda: ask.waiting == 3)
        with pytest.raises(Problem, match="3 numbers") as caught:
            await ask([4])
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
        doubling.let.release(2)
        assert await asyncio.gather(*tasks) == [[0], [2], [4], [6]]

    run(test())


def test_a_call_of_more_items_than_the_queue_holds_is_answered_in_portions() -> None:
    async def test() -> None:
        doubling = Doubling()
        numbers = list(range(100, 120))
        assert await batcher(doubling, queue_max=3)(numbers) == [2 * number for number in numbers]
        assert max(map(len, doubling.batches)) <= 3

    run(test())


def test_one_long_item_does_not_pad_the_short_ones() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        ask = batcher(doubling, batch_max=64, queue_max=64, length=lambda item: item)
        first = asyncio.create_task(ask([1]))
        await until(lambda: doubling.batches == [[1]])
        rest = asyncio.create_task(ask([250, *[8] * 30, 9]))
        await until(lambda: ask.waiting == 32)
        doubling.let.release(3)
        assert await rest == [500, *[16] * 30, 18]
        # 30 tokens of padding are less than another computation; 241 for each of 31 are not.
        assert doubling.batches[1:] == [[*[8] * 30, 9], [250]]
        await first

    run(test())


def test_closing_refuses_what_waits_and_ends_what_is_computed() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        ask = batcher(doubling)
        first = asyncio.create_task(ask([0]))
        await until(lambda: doubling.batches == [[0]])
        waiting = asyncio.create_task(ask([1]))
        await until(lambda: ask.waiting == 1)
        closing = asyncio.create_task(ask.close())
        with pytest.raises(Problem) as refused:
            await waiting
        assert refused.value.slug == "stopping"
        doubling.let.release()
        await closing
        assert await first == [0]
        with pytest.raises(Problem) as refused:
            await ask([2])
        assert refused.value.slug == "stopping"

    run(test())


def test_the_loop_is_free_while_a_batch_is_computed() -> None:
    async def test() -> None:
        doubling = Doubling(held=True)
        first = asyncio.create_task(batcher(doubling)([1]))
        await asyncio.to_thread(doubling.begun.acquire)
        doubling.let.release()
        assert await first == [2]

    run(test())
