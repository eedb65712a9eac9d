"""Settings: which source wins, what is understood, and that every mistake is reported at once."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from raftline.config.loader import SettingsError, environment_name, load, sections
from raftline.config.render import to_toml
from raftline.config.settings import Settings

THREE_NODES = """
[raft]
tick_ms = "80ms"

[nodes.a]
listen = { peer = "127.0.0.1:7100", http = "127.0.0.1:8100" }
node = { data_dir = "a-data" }

[nodes.b]
listen = { peer = "127.0.0.1:7101", http = "127.0.0.1:8101" }

[nodes.c]
listen = { peer = "127.0.0.1:7102", advertise_peer = "127.0.0.1:7202" }
"""


def problems_of(*args: object, **kwargs: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(*args, **kwargs)
    return caught.value.problems


def test_the_defaults_hold_together() -> None:
    assert load() == Settings()


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "raftline.toml"
    file.write_text("[raft]\ntick_ms = 50\nelection_ticks = 20\nheartbeat_ms = 30\n")
    environment = {"RAFTLINE_RAFT_ELECTION_TICKS": "30", "RAFTLINE_RAFT_HEARTBEAT_MS": "40ms"}
    raft = load(file, environment, {"raft.heartbeat_ms": "60"}).raft
    assert (raft.tick_ms, raft.election_ticks, raft.heartbeat_ms) == (50, 30, 60)


def test_words_become_numbers() -> None:
    settings = load(
        None,
        {"RAFTLINE_LOG_OUTPUT_LEVEL": "debug", "RAFTLINE_TOPICS_AUTO_CREATE": "no"},
        {
            "topics.retention_ms": "7d",
            "topics.retention_bytes": "10GB",
            "log.free_ratio_min": "0.1",
            "node.name": "a",
            "node.peers": "a=127.0.0.1:1,b=127.0.0.1:2",
        },
    )
    assert settings.log_output.level == "debug"
    assert settings.topics.auto_create is False
    assert settings.topics.retention_ms == 604_800_000
    assert settings.topics.retention_bytes == 10**10
    assert settings.log.free_ratio_min == 0.1
    assert settings.node.peers == {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}


def test_every_mistake_is_reported_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "raftline.toml"
    file.write_text(
        "stray = 1\n[raft]\nelecton_ticks = 3\n[wal]\nbytes_max = '3 houses'\n[wat]\na=1"
    )
    found = problems_of(file, {"RAFTLINE_RAFT_TIK_MS": "1"}, {"raft.tick_ms": "0"})
    text = "\n".join(found)
    assert len(found) == 6
    for part in (
        "stray must be a table",
        "raft.electon_ticks: raft has no such setting; did you mean election_ticks?",
        "'3 houses' is no size",
        "there is no section wat",
        "did you mean RAFTLINE_RAFT_TICK_MS?",
        "flag: raft.tick_ms = '0': Expected `int` >= 1",
    ):
        assert part in text


def test_contradictions_are_reported_with_the_mistakes() -> None:
    flags = {
        "raft.tick": "1",
        "node.name": "a/b",
        "node.peers": "a=127.0.0.1:1",
        "listen.http": "0.0.0.0:80",
        "raft.election_ticks": "2",
        "delivery.backoff_ms": "2m",
    }
    found = problems_of(None, {}, flags)
    assert len(found) == 5, found
    text = "\n".join(found)
    for part in (
        "raft.tick:",
        "node.name = 'a/b'",
        "--insecure",
        "one lost packet",
        "backoff_ms_max",
    ):
        assert part in text
    assert "must list this node" not in text, "whatever node.name is to be"


def test_variables_of_others_are_left_alone() -> None:
    environment = {
        "RAFTLINE_SERVER": "http://x",
        "RAFTLINE_NODE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "RAFTLINE_NODE_SERVICE_HOST": "10.0.0.1",
        "PATH": "/bin",
    }
    assert load(None, environment) == Settings()


def test_one_file_serves_all_nodes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(THREE_NODES)
    settings = load(file, {}, {"node.name": "a"})
    assert settings.node.name == "a"
    assert settings.node.data_dir == "a-data"
    assert settings.listen.http == "127.0.0.1:8100"
    assert settings.raft.tick_ms == 80
    assert settings.node.peers == {
        "a": "127.0.0.1:7100",
        "b": "127.0.0.1:7101",
        "c": "127.0.0.1:7202",
    }
    assert load(file, {"RAFTLINE_NODE_NAME": "b"}).listen.http == "127.0.0.1:8101"


def test_a_node_must_be_picked_from_a_shared_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(THREE_NODES)
    assert "pick one with --id, from a, b, c" in problems_of(file)[0]
    assert "has no node 'd'" in problems_of(file, {}, {"node.name": "d"})[0]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "there is no settings file"),
        (b"a = ", "is not TOML"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: bytes | None, part: str) -> None:
    file = tmp_path / "bad.toml"
    if text is not None:
        file.write_bytes(text)
    found = problems_of(file)
    assert part in found[0]
    assert str(file) in found[0]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"listen.http": "0.0.0.0:8080"}, "--insecure"),
        ({"listen.http": ":8080"}, "--insecure"),
        ({"listen.http": "8080"}, "is no address"),
        ({"listen.http": "::1:80"}, "brackets"),
        ({"listen.http": "127.0.0.1:9000"}, "are both 127.0.0.1:9000"),
        ({"listen.advertise_http": "host:0"}, "others need a host and a port"),
        ({"node.peers": "b=127.0.0.1:1"}, "must list this node too"),
        ({"node.join": "127.0.0.1:1", "node.bootstrap": "true"}, "joins a cluster or founds one"),
        ({"node.name": "a/b"}, "node.name"),
        ({"raft.election_ticks": "2"}, "one lost packet"),
        ({"wal.bytes_max": "64MiB"}, "must fit in wal.bytes_max"),
        ({"limits.batch_bytes_max": "1GB"}, "<= 12582912"),
        ({"topics.partitions": "20000"}, "limits.partitions_max"),
        ({"node.bootstrap": "maybe"}, "say true or false"),
    ],
)
def test_relations(flags: dict[str, str], part: str) -> None:
    assert part in "\n".join(problems_of(None, {}, flags))


def test_insecure_allows_every_address() -> None:
    settings = load(None, {}, {"listen.http": "0.0.0.0:8080", "node.insecure": "true"})
    assert settings.listen.http == "0.0.0.0:8080"


def test_printed_settings_read_back(tmp_path: Path) -> None:
    flags = {"node.name": "a", "node.peers": "a=127.0.0.1:1", "wal.bytes_max": "2GiB"}
    settings = load(None, {}, flags)
    file = tmp_path / "printed.toml"
    file.write_text(to_toml(settings))
    assert load(file) == settings
    assert tomllib.loads(to_toml(Settings()))["raft"]["tick_ms"] == 100


def test_every_setting_has_help_and_a_name_of_its_own() -> None:
    names: list[str] = []
    for section, kind in sections().items():
        for field in msgspec.structs.fields(kind):
            assert get_args(field.type)[1].description, f"{section}.{field.name}"
            names.append(environment_name(section, field.name))
    assert len(names) == len(set(names))


def test_loading_settings_is_light() -> None:
    code = (
        "import sys, raftline.config.loader;"
        "heavy = {'asyncio', 'typer', 'rich', 'aiokafka', 'ssl', 'http', 'tomllib', 'difflib'};"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_large_disk_is_full_later() -> None:
    log = load(None, {}, {"log.free_bytes_enough": "2GB"}).log
    assert log.free_bytes_min(10**10) == 5 * 10**8, "a twentieth of a small disk"
    assert log.free_bytes_min(10**12) == 2 * 10**9, "what is enough on a large one"


@pytest.mark.parametrize(
    ("setting", "given", "said"),
    [
        ("log_output.level", "loud", "use one of debug, error, info, warning"),
        ("topics.partitioner", "md5", "use one of murmur2, crc32"),
        ("node.name", "a b", "use 1 to 64 letters, digits"),
        ("telemetry.otlp_endpoint", "collector", "write http://host:port"),
    ],
)
def test_a_wrong_choice_is_told_what_there_is(setting: str, given: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {}, {setting: given})
    (problem,) = caught.value.problems
    assert said in problem
    assert "regex" not in problem
