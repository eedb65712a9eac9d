"""The comparison with Kafka: turns, rounds that are added, goals and verdicts (without servers)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.figures import Figure
from bench.kafka_gateway import run
from bench.kafka_load import KafkaSpec
from bench.peers.kafka import compare, pieces
from bench.peers.kafka.page import page
from bench.peers.kafka.pieces import Piece
from bench.peers.kafka.sink import sink

RATE, CPU = "produce 2,000,000 x 100 B: rate", "produce 2,000,000 x 100 B: server CPU"


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let sides be numbers, and note who was measured when."""
    seen: list[str] = []

    @contextlib.contextmanager
    def both(work: Path, nodes: int) -> Iterator[dict[str, Any]]:
        yield {"Raftline": 4, "Kafka": 2}

    def round_of(topic: str, side: Any, *, quick: bool) -> list[Figure]:
        seen.append(f"{topic}:{side}")
        return [
            Figure(section="", name=RATE, value=100.0 * side + len(seen), unit="messages/s"),
            Figure(section="", name=CPU, value=2.0 - side / 4, unit="µs/message"),
        ]

    monkeypatch.setattr(pieces, "both", both)
    monkeypatch.setitem(pieces.ROUNDS, "three", round_of)
    return seen


def kept(work: Path) -> Piece:
    return msgspec.json.decode((work / "three.json").read_bytes(), type=Piece)


def test_sides_take_turns_and_rounds_add_up(turns: list[str], tmp_path: Path) -> None:
    words = ["three", "--quick", "--work", str(tmp_path)]
    assert compare.main([*words, "--rounds", "2"]) == 0
    assert turns == ["round-0-0:4", "round-0-1:2", "round-1-1:2", "round-1-0:4"]
    assert kept(tmp_path).sides["Raftline"][RATE].values == [401, 404]
    assert compare.main([*words, "--rounds", "1", "--more"]) == 0
    piece = kept(tmp_path)
    assert piece.rounds == 3
    assert piece.sides["Raftline"][RATE].values == [401, 404, 405]
    assert piece.sides["Kafka"][RATE].values == [202, 203, 206]
    assert len(piece.sync_p50_ms) == 4
    assert compare.main([*words, "--rounds", "1"]) == 0
    assert kept(tmp_path).rounds == 1, "begun anew"


def test_the_page_judges(turns: list[str], tmp_path: Path) -> None:
    compare.main(["three", "--quick", "--rounds", "1", "--work", str(tmp_path)])
    text = page([kept(tmp_path)])
    assert "| 401 messages/s | 202 messages/s | 1.5x better | 1.99x, met |" in text
    assert "| 1.00 µs/message | 1.50 µs/message | at most 1.2 | met |" in text
    piece = kept(tmp_path)
    piece.sides["Raftline"][RATE].values = [202.0]
    piece.sides["Raftline"][CPU].values = [1.3]
    text = page([piece])
    assert "1.00x, **missed** |" in text
    assert "at most 1.2 | **missed** |" in text


def test_a_piece_of_another_machine_says_so(turns: list[str], tmp_path: Path) -> None:
    compare.main(["three", "--quick", "--rounds", "1", "--work", str(tmp_path)])
    here, there = kept(tmp_path), kept(tmp_path)
    there.machine["python"] = "3.99.1"
    assert "on another machine" not in page([here, here])
    assert "on another machine: python 3.99.1.\n" in page([here, there])


def test_the_limit_of_a_client_is_measured_where_nothing_is_kept() -> None:
    with sink() as nothing:
        base = KafkaSpec(task="", servers=nothing.servers, topic="t", pids=nothing.pids)
        for task in ("produce", "produce_arrays"):  # each checks that all its messages arrived
            result = run(base, task=task, count=5_000)
            assert result.count == 5_000
            assert result.client_cpu_s > 0
