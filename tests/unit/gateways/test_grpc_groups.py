"""Stream groups, waiting messages, dead letters and administration over gRPC, on a real node."""

import asyncio
from typing import Any

from raftline.wire.proto.raftline.v1 import admin_pb2, messages_pb2
from raftline.wire.proto.raftline.v1 import dead_letters_pb2 as letters_pb
from raftline.wire.proto.raftline.v1 import groups_pb2 as pb
from raftline.wire.proto.raftline.v1 import scheduled_pb2 as scheduled
from tests.unit.gateways.grpc_rig import Rig, refusal, serve

GROUP = "billing"


async def join(rig: Rig, member: str) -> Any:
    request = pb.JoinGroupRequest(group=GROUP, topics=["orders"], member=member)
    return await rig.stubs.GroupService.Join(request)


async def beat(rig: Rig, view: Any, **fields: Any) -> Any:
    request = pb.HeartbeatRequest(
        group=GROUP, member=view.member, generation=view.generation, **fields
    )
    return await rig.stubs.GroupService.Heartbeat(request)


async def poll(rig: Rig, view: Any, **fields: Any) -> Any:
    request = pb.PollRequest(group=GROUP, member=view.member, generation=view.generation, **fields)
    return await rig.stubs.GroupService.Poll(request)


def owned(view: Any) -> set[int]:
    return {p for row in view.partitions for p in row.partitions}


def test_join_poll_commit_move_and_leave() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions=2)
        await rig.send(b"a", b"b", partition=0)
        await rig.send(b"c", partition=1)
        a = await join(rig, "a")
        assert owned(a) == {0, 1}
        got = await poll(rig, a, wait_ms=2_000)
        rest = await poll(rig, a, poll=got.poll)
        seen = [(m.partition, m.value) for m in [*got.messages, *rest.messages]]
        assert sorted(seen) == [(0, b"a"), (0, b"b"), (1, b"c")]
        cursors = [pb.Cursor(topic="orders", partition=0, offset=2, metadata="note")]
        commit = pb.CommitRequest(group=GROUP, member="a", generation=a.generation, cursors=cursors)
        assert (await rig.stubs.GroupService.Commit(commit)).committed == 1
        listed = await rig.stubs.GroupService.ListCursors(pb.ListCursorsRequest(group=GROUP))
        assert [(c.partition, c.offset, c.metadata) for c in listed.cursors] == [(0, 2, "note")]
        b = await join(rig, "b")
        a = await beat(rig, a)
        a = await beat(rig, a, revoked=a.revoke)
        b = await beat(rig, b)
        assert len(owned(a)) == len(owned(b)) == 1
        assert owned(a) | owned(b) == {0, 1}
        commit.cursors[0].partition = min(owned(b))
        said = await refusal(rig.stubs.GroupService.Commit(commit))
        assert said == ("FAILED_PRECONDITION", "fenced_member")
        leave = pb.LeaveGroupRequest(group=GROUP, member="b", generation=b.generation)
        await rig.stubs.GroupService.Leave(leave)
        assert await refusal(beat(rig, b)) == ("NOT_FOUND", "unknown_member")
        a = await beat(rig, a)
        assert owned(a) == {0, 1}
        shown = await rig.stubs.GroupService.Show(pb.ShowGroupRequest(group=GROUP))
        assert [m.member for m in shown.stream.members] == ["a"]
        assert shown.stream.partitions[0].lag == 0
        assert shown.stream.lag == 1

    serve(scenario)


def test_replay_list_and_delete() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        request = messages_pb2.SendRequest(topic="orders")
        for n in range(5):
            request.messages.add(value=b"%d" % n, timestamp_ms=1_000 + n)
        await rig.stubs.MessageService.Send(request)
        reset = rig.stubs.GroupService.Reset
        wish = pb.ResetGroupRequest(group=GROUP, topic="orders", time_ms=1_003, dry_run=True)
        (row,) = (await reset(wish)).partitions
        assert (row.from_offset, row.to_offset, row.commit_end) == (-1, 3, 5)
        wish.dry_run = False
        await reset(wish)
        a = await join(rig, "a")
        got = await poll(rig, a, wait_ms=2_000)
        assert [m.value for m in got.messages] == [b"3", b"4"]
        assert (await refusal(reset(wish)))[1] == "group_not_empty"
        assert (await refusal(reset(pb.ResetGroupRequest(group=GROUP, topic="orders"))))[0] == (
            "INVALID_ARGUMENT"
        )
        deliveries = await rig.receive("workers")
        await rig.settle("ack", *deliveries)
        back = pb.ResetGroupRequest(group="workers", topic="orders", offset=4, kind=pb.KIND_WORK)
        await reset(back)
        assert [d.message.offset for d in await rig.receive("workers")] == [4]
        listed = (await rig.stubs.GroupService.List(pb.ListGroupsRequest())).groups
        assert {(g.group, g.kind) for g in listed} == {(GROUP, "stream"), ("workers", "work")}
        await rig.stubs.GroupService.Delete(pb.DeleteGroupRequest(group="workers"))
        show = rig.stubs.GroupService.Show(pb.ShowGroupRequest(group="workers"))
        assert await refusal(show) == ("NOT_FOUND", "unknown_group")

    serve(scenario)


def test_waiting_messages() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions=2)
        sent = []
        for n in range(5):
            sent += await rig.send(b"%d" % n, partition=n % 2, delay_ms=60_000 + n)
        service = rig.stubs.ScheduledService
        page = await service.List(scheduled.ListScheduledRequest(topic="orders", limit=2))
        rest = await service.List(
            scheduled.ListScheduledRequest(topic="orders", limit=100, after=page.next)
        )
        assert page.count == 5
        assert [m.id for m in [*page.messages, *rest.messages]] == [r.id for r in sent]
        assert rest.next == ""
        shown = await service.Show(scheduled.ShowScheduledRequest(id=sent[0].id))
        assert (shown.state, shown.message.value) == ("waiting", b"0")
        moved = await service.Move(scheduled.MoveScheduledRequest(id=sent[1].id, delay_ms=90_000))
        assert moved.due_ms > sent[1].due_ms
        await service.Cancel(scheduled.CancelScheduledRequest(id=sent[0].id))
        stats = await service.Stats(scheduled.ScheduledStatsRequest(topic="orders"))
        assert (stats.total.waiting, stats.total.cancelled, stats.total.scheduled) == (4, 1, 5)
        assert [(row.partition, row.waiting) for row in stats.partitions] == [(0, 2), (1, 2)]
        assert stats.total.next_due_ms == sent[2].due_ms
        one = await service.Stats(scheduled.ScheduledStatsRequest(topic="orders", partition=1))
        assert one.total.waiting == 2
        gone = await service.Show(scheduled.ShowScheduledRequest(id=sent[0].id))
        assert gone.state == "cancelled"
        await service.Move(scheduled.MoveScheduledRequest(id=sent[2].id, delay_ms=0))
        (got,) = await rig.receive(wait_ms=8_000)
        assert (got.message.value, got.message.id) == (b"2", sent[2].id)
        where = await service.Show(scheduled.ShowScheduledRequest(id=sent[2].id))
        assert (where.state, where.message_id) == ("released", "orders.0.0")
        nothing = service.Move(scheduled.MoveScheduledRequest(id=sent[3].id))
        assert (await refusal(nothing))[0] == "INVALID_ARGUMENT"

    serve(scenario)


def test_dead_letters() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        service = rig.stubs.DeadLetterService
        none = await service.List(letters_pb.ListDeadLettersRequest(topic="orders"))
        assert not none.letters
        lost = service.List(letters_pb.ListDeadLettersRequest(topic="nowhere"))
        assert await refusal(lost) == ("NOT_FOUND", "unknown_topic")
        await rig.send(b"a", b"b", b"c")
        await rig.settle("reject", *await rig.receive(), reason="poison")
        async with asyncio.timeout(15):
            while True:
                page = await service.List(letters_pb.ListDeadLettersRequest(topic="orders"))
                if len(page.letters) == 3:
                    break
                await asyncio.sleep(0.05)
        first = page.letters[0]
        assert (first.message.value, first.reason, first.error) == (b"a", "REJECTED", "poison")
        assert (first.origin_id, first.group, first.attempts) == ("orders.0.0", "workers", 1)
        shown = await service.Show(letters_pb.ShowDeadLetterRequest(id=first.message.id))
        assert shown == first
        work = letters_pb.DeadLetterWork(topic="orders", ids=[first.message.id])
        work.dry_run = True
        assert (await service.Redrive(work)).matched == 1
        work.dry_run = False
        async with asyncio.timeout(15):
            while not (await service.Redrive(work)).done:  # noqa: ASYNC110 - not buried yet
                await asyncio.sleep(0.05)
        (again,) = await rig.receive(wait_ms=8_000)
        assert (again.message.value, again.attempt) == (b"a", 1)
        rest = letters_pb.DeadLetterWork(topic="orders")
        assert (await refusal(service.Purge(rest)))[1] == "invalid_argument"
        rest.filter.reason = "REJECTED"
        rest.ids[:] = [letter.message.id for letter in page.letters[1:]]
        assert (await refusal(service.Purge(rest)))[1] == "invalid_argument", "one of the two"
        rest.ClearField("filter")
        assert (await service.Purge(rest)).done == 2

    serve(scenario)


def test_topics_and_the_cluster() -> None:
    async def scenario(rig: Rig) -> None:
        admin = rig.stubs.AdminService
        await rig.create(partitions=3, retention_ms=3_600_000)
        again = admin.CreateTopic(admin_pb2.CreateTopicRequest(name="orders"))
        assert await refusal(again) == ("ALREADY_EXISTS", "topic_exists")
        wide = admin_pb2.CreateTopicRequest(name="wide", replication_factor=3)
        assert (await refusal(admin.CreateTopic(wide)))[0] == "FAILED_PRECONDITION"
        topic = await admin.ShowTopic(admin_pb2.ShowTopicRequest(name="orders"))
        assert len(topic.partitions) == 3
        assert topic.settings["retention_ms"].number == 3_600_000
        change = admin_pb2.SetTopicRequest(name="orders")
        change.settings["lanes"].number = 3
        await admin.SetTopic(change)
        listed = (await admin.ListTopics(admin_pb2.ListTopicsRequest())).topics
        assert listed[0].settings["lanes"].number == 3
        grown = admin_pb2.SetTopicRequest(name="orders", partitions=4)
        await admin.SetTopic(grown)
        topic = await admin.ShowTopic(admin_pb2.ShowTopicRequest(name="orders"))
        assert (len(topic.partitions), topic.settings["lanes"].number) == (4, 3)
        grown.partitions = 2
        assert (await refusal(admin.SetTopic(grown)))[0] in (
            "INVALID_ARGUMENT",
            "FAILED_PRECONDITION",
        )
        await rig.send(b"a", b"b", partition=0)
        await admin.TrimTopic(admin_pb2.TrimTopicRequest(name="orders", partition=0, offset=1))
        assert (await admin.NewProducer(admin_pb2.NewProducerRequest())).producer_id > 0
        made = await admin.EnsureTopic(admin_pb2.EnsureTopicRequest(name="made"))
        assert (made.name, len(made.partitions)) == ("made", 6)
        again = await admin.EnsureTopic(admin_pb2.EnsureTopicRequest(name="made"))
        assert (again.name, again.uuid) == (made.name, made.uuid)  # leaders come meanwhile
        shards = await admin.ListShards(admin_pb2.ListShardsRequest(topics=["orders", "nowhere"]))
        assert [(row.topic, row.partition) for row in shards.shards] == [
            ("orders", number) for number in range(4)
        ]
        assert shards.shards[0].leader == 1  # it took messages
        assert {row.leader for row in shards.shards} <= {0, 1}
        assert [row.id for row in shards.nodes] == [1]
        assert len((await admin.ListShards(admin_pb2.ListShardsRequest(all=True))).shards) == 10
        cluster = await admin.ShowCluster(admin_pb2.ShowClusterRequest())
        assert cluster.ready
        assert [topic.name for topic in cluster.topics] == ["made", "orders"]
        assert [node.name for node in cluster.nodes] == ["node-1"]
        verified = await admin.Verify(admin_pb2.VerifyRequest())
        assert verified.identical
        assert "orders/0" in [shard.name for shard in verified.shards]
        gone = admin_pb2.RemoveNodeRequest(node="node-9")
        assert await refusal(admin.RemoveNode(gone)) == ("NOT_FOUND", "unknown_node")
        await admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="orders"))
        show = admin.ShowTopic(admin_pb2.ShowTopicRequest(name="orders"))
        assert await refusal(show) == ("NOT_FOUND", "unknown_topic")

    serve(scenario)
