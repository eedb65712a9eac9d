"""The checker of the queue on histories written by hand: each promise broken once, and kept."""

import msgspec
import pytest

from raftline.testing.history import History
from raftline.testing.queue_checker import check_queue
from raftline.testing.queue_history import (
    Change,
    DeadLetter,
    Delivery,
    Item,
    Left,
    QueueFinal,
    QueueHistory,
    Sent,
    Settlement,
    Stored,
    number_of,
)

TOPIC = "jobs"


class Story:
    """Three messages sent to one partition, to be delivered and settled by a test."""

    def __init__(self) -> None:
        self.history = QueueHistory(History())
        self.now_ms = 0.0
        self.stored: list[Stored] = []
        self.final = QueueFinal()

    def op(self, kind: str, outcome: str) -> int:
        op = self.history.history.invoke(kind, self.now_ms, "node-1", TOPIC, 0, 1_000.0)
        self.history.history.end(op, self.now_ms + 5, outcome)
        self.now_ms += 10.0
        return op.id

    def send(
        self,
        *,
        key: bytes | None = None,
        priority: int = 0,
        dedup_key: str = "",
        delay_ms: int = 0,
        due_ms: int = 0,
        outcome: str = "ok",
        store: bool = True,
        offset: int = -1,
        waiting: int = -1,
        duplicate: bool = False,
    ) -> Sent:
        number, _ = self.history.next_value()
        if store:
            self.stored.append(Stored(len(self.stored), number, key))
            if not delay_ms:
                offset = len(self.stored) - 1
        sent = Sent(
            op=self.op("send", outcome),
            number=number,
            topic=TOPIC,
            partition=0,
            key=key,
            priority=priority,
            dedup_key=dedup_key,
            delay_ms=delay_ms,
            offset=offset,
            waiting=waiting,
            due_ms=due_ms,
            duplicate=duplicate,
        )
        self.history.sends.append(sent)
        return sent

    def deliver(
        self,
        offset: int,
        attempt: int,
        sequence: int,
        *,
        generation: int = 0,
        at_ms: int = 0,
        ordered: bool = False,
    ) -> Delivery:
        item = Item(offset, attempt, generation, self.stored[offset].number)
        delivery = Delivery(
            op=self.op("receive", "ok"),
            topic=TOPIC,
            partition=0,
            group="g",
            member="m",
            term=1,
            sequence=sequence,
            at_ms=at_ms or int(self.now_ms),
            deadline_ms=int(self.now_ms) + 1000,
            items=(item,),
            ordered=ordered,
        )
        self.history.deliveries.append(delivery)
        return delivery

    def settle(
        self, delivery: Delivery, verb: str = "ack", *, lost: bool = False, outcome: str = "ok"
    ) -> Settlement:
        (item,) = delivery.items
        settlement = Settlement(
            op=self.op("settle", outcome),
            topic=TOPIC,
            partition=0,
            group="g",
            verb=verb,
            term=delivery.term,
            sequence=delivery.sequence,
            attempt=item.attempt,
            generation=item.generation,
            offsets=(item.offset,),
            lost=(item.offset,) if lost else (),
        )
        self.history.settlements.append(settlement)
        return settlement

    def change(self, sent: Sent, verb: str, *, due_ms: int = 0, outcome: str = "ok") -> None:
        self.history.changes.append(
            Change(
                op=self.op(verb, outcome),
                topic=TOPIC,
                partition=0,
                verb=verb,
                waiting=sent.waiting,
                number=sent.number,
                due_ms=due_ms,
                done=True,
            )
        )

    def letter(self, offset: int, *, generation: int = 0, number: int = 0) -> None:
        number = number or self.stored[offset].number
        letter = DeadLetter(TOPIC, 0, "g", offset, generation, 4, number)
        self.final.letters = (*self.final.letters, letter)

    def broken(self) -> tuple[str, ...]:
        self.final.logs = {f"{TOPIC}/0": tuple(self.stored)}
        self.final.log_starts = {f"{TOPIC}/0": 0}
        return tuple(sorted({v.promise for v in check_queue(self.history, self.final)}))


@pytest.fixture
def story() -> Story:
    s = Story()
    for _ in range(3):
        s.send()
    return s


def test_a_good_run_is_clean(story: Story) -> None:
    first = story.deliver(0, 1, 1)
    story.settle(first, "nack")
    again = story.deliver(0, 2, 2)
    story.settle(first, "ack", lost=True)
    story.settle(again, "extend")
    story.settle(again)
    story.settle(again, lost=True)  # a repeat of an ack is refused
    story.settle(story.deliver(1, 1, 3), "reject")
    story.letter(1)
    story.settle(story.deliver(1, 1, 4, generation=1))  # redriven
    story.settle(story.deliver(2, 1, 5), outcome="unknown")
    story.settle(story.deliver(2, 1, 6))
    assert story.broken() == ()


def test_p1_an_acknowledged_message_is_not_where_it_was_said_to_be(story: Story) -> None:
    story.stored[1] = Stored(1, 99)
    assert "P1" in story.broken()


def test_p4_attempts_are_forgotten(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "nack")
    story.deliver(0, 2, 2)
    story.settle(story.deliver(0, 1, 3), "extend")
    assert "P4" in story.broken()


def test_p4_an_attempt_is_given_again_after_its_nack(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "nack")
    again = story.deliver(0, 1, 2)
    assert story.broken() == ()  # perhaps by a leader that did not know it was deposed
    story.final.granted[(TOPIC, 0, "g", *again.lease, 0)] = True
    assert story.broken() == ("P4",)


def test_p4_acked_and_delivered_again(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1))
    story.deliver(0, 2, 2)
    assert story.broken() == ("P4",)


def test_p4_never_delivered_again(story: Story) -> None:
    story.final.left = (Left(TOPIC, 0, "g", 1, "ready", 2, delivered=True),)
    assert story.broken() == ("P4",)


def test_p4_a_dead_letter_twice(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "reject")
    story.letter(0)
    assert story.broken() == ()
    story.letter(0)
    assert story.broken() == ("P4",)


def test_p4_a_dead_letter_for_each_redrive_is_right(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "reject")
    story.settle(story.deliver(0, 1, 2, generation=1), "reject")
    story.letter(0)
    story.letter(0, generation=1)
    assert story.broken() == ()


def test_p4_a_dead_letter_never(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "reject")
    assert story.broken() == ("P4",)


def test_p4_an_acked_message_is_a_dead_letter(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1))
    story.letter(0)
    assert story.broken() == ("P4",)


def test_p4_a_dead_letter_holds_another_message(story: Story) -> None:
    story.settle(story.deliver(0, 1, 1), "reject")
    story.letter(0, number=2)
    assert story.broken() == ("P4",)


def test_p5_a_stale_settle_is_accepted(story: Story) -> None:
    first = story.deliver(0, 1, 1)
    story.deliver(0, 2, 2)
    story.settle(first)
    assert "P5" in story.broken()


def test_p5_an_ack_is_adopted_though_another_lease_was_settled(story: Story) -> None:
    lost = story.deliver(0, 1, 1)
    story.settle(story.deliver(0, 1, 2), "extend")
    story.settle(lost)
    assert story.broken() == ("P5",)


def test_p5_settled_for_good_by_two_leases(story: Story) -> None:
    one, other = story.deliver(0, 1, 1), story.deliver(0, 1, 2)
    story.settle(one)
    story.settle(other)
    assert "P5" in story.broken()


def test_p5_leased_twice(story: Story) -> None:
    story.deliver(0, 2, 1)
    again = story.deliver(0, 2, 2)
    again.op = story.history.deliveries[0].op  # at the same time
    assert story.broken() == ("P5",)


def test_p6_delivered_early(story: Story) -> None:
    sent = story.send(delay_ms=500, due_ms=700, waiting=1)
    story.deliver(3, 1, 1, at_ms=700)
    assert story.broken() == ()
    story.history.deliveries[-1] = msgspec.structs.replace(story.history.deliveries[-1], at_ms=699)
    assert story.broken() == ("P6",)
    story.change(sent, "move", due_ms=650, outcome="unknown")
    assert story.broken() == ()


def test_p6_delivered_early_by_the_clock_of_its_sender(story: Story) -> None:
    """In log time nothing was early: the stamp was too low, and the next leader leapt."""
    sent = story.send(delay_ms=60_000, due_ms=700, waiting=1)
    story.deliver(3, 1, 1, at_ms=700)
    assert story.broken() == (), "somebody's clock may have been wrong"
    story.final.clocks_are_true = True
    assert story.broken() == ("P6",)
    story.change(sent, "move", due_ms=650)
    assert story.broken() == ()


def test_p6_cancelled_and_delivered(story: Story) -> None:
    sent = story.send(delay_ms=500, due_ms=1, waiting=1)
    story.change(sent, "cancel", outcome="unknown")
    story.deliver(3, 1, 1)
    assert story.broken() == ()
    story.change(sent, "cancel")
    assert story.broken() == ("P6",)


def test_p6_lost_while_waiting(story: Story) -> None:
    sent = story.send(delay_ms=500, due_ms=1, waiting=1, store=False)
    assert story.broken() == ("P6",)
    story.change(sent, "cancel", outcome="unknown")
    assert story.broken() == ()


def test_p6_released_twice(story: Story) -> None:
    sent = story.send(delay_ms=500, due_ms=1, waiting=1)
    story.stored.append(Stored(4, sent.number))
    assert story.broken() == ("P6",)


def test_p6_still_waiting(story: Story) -> None:
    story.final.waiting = ("jobs/0 number 4",)
    assert story.broken() == ("P6",)


def test_p7_a_parked_key_is_overtaken() -> None:
    story = Story()
    for key in (b"a", b"b", b"a", b"a"):
        story.send(key=key)
    story.send(key=b"a", priority=9)
    story.deliver(4, 1, 1, ordered=True)  # another lane
    story.deliver(1, 1, 2, ordered=True)
    story.deliver(0, 1, 3, ordered=True)
    assert story.broken() == ()
    story.deliver(3, 1, 4, ordered=True)
    story.deliver(0, 2, 5, ordered=True)  # not its first
    assert story.broken() == ()
    story.deliver(2, 1, 6, ordered=True)
    assert story.broken() == ("P7",)


def test_p7_never_delivered(story: Story) -> None:
    story.final.left = (Left(TOPIC, 0, "g", 1, "fresh", 0, delivered=False),)
    assert story.broken() == ("P7",)


def test_p8_a_dedup_key_is_stored_twice(story: Story) -> None:
    story.send(dedup_key="k")
    story.send(dedup_key="k", outcome="unknown")
    assert story.broken() == ("P8",)


def test_p8_a_repeat_gets_another_id(story: Story) -> None:
    story.send(dedup_key="k")
    story.send(dedup_key="k", store=False, offset=3, duplicate=True)
    assert story.broken() == ()
    story.send(dedup_key="k", store=False, offset=2, duplicate=True)
    assert story.broken() == ("P8",)


def test_values_carry_numbers() -> None:
    number, value = QueueHistory(History()).next_value(padding=3)
    assert number_of(value) == number == 1
    assert number_of(b"calm") == -1
    assert number_of(None) == -1
