"""Every Python example of the documents runs as it stands, one after the other."""

import re
import shlex
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.cluster.conftest import MakeRig
from tests.cluster.test_grpc import wait_serving

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "blocks_min", "expected"),
    [
        (
            "docs/guides/python.md",
            8,
            ("orders.", "one book", "dear reader", "dear user@example.com", "done 1"),
        ),
        ("docs/coming-from/sqs.md", 1, ("sending a parcel",)),
        ("docs/coming-from/rabbitmq.md", 1, ("sending to everybody",)),
        ("docs/coming-from/nats.md", 1, ("packing one box",)),
        ("docs/coming-from/celery.md", 1, ("done after 2 tries",)),
        ("docs/coming-from/kafka.md", 2, ("kafka read b'a click'", "worked on a click")),
        ("docs/protocols/http.md", 1, ("received one book attempt 1", "{'settled': 1")),
        ("docs/protocols/grpc.md", 1, ("received b'one book' attempt 1", "acked 1")),
        ("README.md", 1, ("one book",)),
    ],
)
def test_the_examples_of_a_page_run(
    make_rig: MakeRig,
    capsys: pytest.CaptureFixture[str],
    page: str,
    blocks_min: int,
    expected: tuple[str, ...],
) -> None:
    rig = make_rig(nodes=1)
    text = (ROOT / page).read_text()
    node = rig.node(rig.names[0])
    space: dict[str, object] = {"__name__": "guide"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= blocks_min
    for block in blocks:
        # Blank lines in front, so that an error names the line of the page.
        lines = "\n" * text.count("\n", 0, block.start(1))
        code = block[1].replace("http://127.0.0.1:8080", node.http)
        code = code.replace("127.0.0.1:9000", node.grpc)
        code = code.replace("127.0.0.1:9092", node.kafka)
        exec(compile(lines + code, page, "exec"), space)
    said = capsys.readouterr().out
    for words in expected:
        assert words in said, said


def test_grpcurl_could_do_what_the_page_says(make_rig: MakeRig) -> None:
    """What grpcurl does with its arguments: reflection, and JSON into the request it describes."""
    text = (ROOT / "docs/protocols/grpc.md").read_text()
    lines = re.search(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert lines is not None
    commands = [
        shlex.split(line) for line in lines[1].replace("\\\n", " ").replace("$ ", "").splitlines()
    ]
    assert [words[-1] for words in commands] == ["list", "raftline.v1.MessageService/Send"]
    service, method = commands[1][-1].split("/")
    rig = make_rig(nodes=1)
    wait_serving(rig, *rig.names)
    with grpc.insecure_channel(rig.node(rig.names[0]).grpc) as channel:
        described = ProtoReflectionDescriptorDatabase(channel)
        assert service in described.get_services()
        pool = DescriptorPool(described)
        found = pool.FindServiceByName(service).FindMethodByName(method)
        request = json_format.Parse(
            commands[1][commands[1].index("-d") + 1], GetMessageClass(found.input_type)()
        )
        call = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(found.output_type).FromString,
        )
        reply = call(request, timeout=10)
    assert json_format.MessageToDict(reply)["results"][0]["id"].startswith("orders.")
