"""Channels of the client without a node: who waits is told, and nothing hangs."""

import asyncio
import time

from raftline.client.clock import mono_ms
from raftline.client.core.ports import BATCH, Answer, Ask, Lost, Reply
from raftline.client.core.wire import error_of
from raftline.client.grpc.channels import Channels
from raftline.model.errors import InvalidArgument
from tests.unit.transport.free_port import bind_free

TOPICS = Ask(method="GET", path="/v1/topics")


def batch(number: int) -> Ask:
    return Ask(
        method="POST", path="/x", body=b"%d" % number, content_type=BATCH, topic="t", partition=0
    )


async def until(heard: list[Answer], count: int) -> None:
    async with asyncio.timeout(10):
        while len(heard) < count:  # noqa: ASYNC110 - threads answer
            await asyncio.sleep(0.01)


def test_a_node_that_is_not_there_was_sent_nothing() -> None:
    async def work() -> None:
        channels, heard = Channels(asyncio.get_running_loop()), list[Answer]()
        channels.request("127.0.0.1:9", TOPICS, 1_000, mono_ms() + 3_000, heard.append)
        await until(heard, 1)
        (lost,) = heard
        assert isinstance(lost, Lost)
        assert not lost.is_sent
        channels.close()

    asyncio.run(work())


def test_one_that_does_not_answer_is_lost_at_its_deadline_and_batches_keep_their_turn() -> None:
    async def work() -> None:
        with bind_free() as listener:  # takes connections and says nothing
            listener.listen()
            host = f"127.0.0.1:{listener.getsockname()[1]}"
            channels, heard = Channels(asyncio.get_running_loop()), list[Answer]()
            began = time.monotonic()
            for number in range(3):
                until_ms = mono_ms() + (300 if number == 0 else 200)
                channels.request(host, batch(number), 200, until_ms, heard.append)
            await until(heard, 3)
            assert 0.25 < time.monotonic() - began < 5
            assert all(isinstance(answer, Lost) for answer in heard)
            assert [answer.is_sent for answer in heard if isinstance(answer, Lost)][1:] == [
                False,
                False,
            ], "those behind it were never sent"
            channels.close()

    asyncio.run(work())


def test_closing_and_hanging_up_tell_who_waits() -> None:
    async def work() -> None:
        with bind_free() as listener:
            listener.listen()
            host = f"127.0.0.1:{listener.getsockname()[1]}"
            channels, heard = Channels(asyncio.get_running_loop()), list[Answer]()
            poll = Ask(method="GET", path="/v1/topics", way="receive-1")
            channels.request(host, poll, 60_000, mono_ms() + 60_000, heard.append)
            channels.hang_up("receive-2")
            await asyncio.sleep(0.05)
            assert not heard
            channels.hang_up("receive-1")
            await until(heard, 1)
            for ask in (TOPICS, batch(1), batch(2)):
                channels.request(host, ask, 60_000, mono_ms() + 60_000, heard.append)
            channels.close()
            await until(heard, 4)
            channels.request(host, TOPICS, 60_000, mono_ms() + 60_000, heard.append)
            await until(heard, 5)
            assert all(isinstance(answer, Lost) for answer in heard)
            await asyncio.sleep(0.05)
            assert len(heard) == 5, "each hears of it once"

    asyncio.run(work())


def test_what_cannot_be_asked_is_refused() -> None:
    async def work() -> None:
        channels, heard = Channels(asyncio.get_running_loop()), list[Answer]()
        ask = Ask(method="GET", path="/tasks/7")
        channels.request("127.0.0.1:9", ask, 1_000, mono_ms() + 3_000, heard.append)
        await until(heard, 1)
        (reply,) = heard
        assert isinstance(reply, Reply)
        assert isinstance(error_of(reply, "h"), InvalidArgument)
        channels.close()

    asyncio.run(work())


def test_a_number_that_its_field_does_not_hold_is_refused() -> None:
    """It ended in the loop: who had sent it waited for its whole timeout, and heard of a doubt."""
    body = b'{"messages":[{"value":"v","partition":1099511627776}]}'
    ask = Ask(method="POST", path="/v1/topics/t/messages", body=body)

    async def work() -> None:
        channels, heard = Channels(asyncio.get_running_loop()), list[Answer]()
        channels.request("127.0.0.1:9", ask, 1_000, mono_ms() + 3_000, heard.append)
        await until(heard, 1)
        (answer,) = heard
        assert isinstance(answer, Reply)
        assert isinstance(error_of(answer, ""), InvalidArgument)
        channels.close()

    asyncio.run(work())
