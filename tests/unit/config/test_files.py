"""Settings files: four forms, one meaning; what cannot be read says where."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftline.config.loader import SettingsError, load
from raftline.config.settings import Settings
from raftline.config.yaml_text import loads

ROOT = Path(__file__).parents[3]
FORMS = {
    "a.toml": '[node]\nname = "a"\n[raft]\ntick_ms = "90ms"\n[node.peers]\na = "127.0.0.1:1"\n',
    "a.yaml": 'node:\n  name: a\n  peers:\n    a: "127.0.0.1:1"\nraft:\n  tick_ms: 90ms\n',
    "a.yml": "node: {name: a, peers: {a: '127.0.0.1:1'}}\nraft:\n  tick_ms: 90\n",
    "a.json": '{"node": {"name": "a", "peers": {"a": "127.0.0.1:1"}}, "raft": {"tick_ms": 90}}',
    "a.env": "# mine\nexport RAFTLINE_NODE_NAME='a'\nRAFTLINE_NODE_PEERS=a=127.0.0.1:1\n"
    'PATH=/bin\nRAFTLINE_RAFT_TICK_MS="90ms" # often\n',
    ".env": "RAFTLINE_NODE_NAME=a\nRAFTLINE_NODE_PEERS=a=127.0.0.1:1\nRAFTLINE_RAFT_TICK_MS=90\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(FORMS[name])
    settings = load(file)
    assert (settings.node.name, settings.raft.tick_ms) == ("a", 90)
    assert settings.node.peers == {"a": "127.0.0.1:1"}
    assert load(file, {"RAFTLINE_RAFT_TICK_MS": "80"}).raft.tick_ms == 80
    assert load(file, {"RAFTLINE_RAFT_TICK_MS": "80"}, {"raft.tick_ms": 70}).raft.tick_ms == 70


def test_the_example_file_holds_the_defaults() -> None:
    assert load(ROOT / "config.example.yaml") == Settings()


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("a.yaml", "node:\n\tname: a\n", ["is not YAML", "line 2", "tab"]),
        ("a.yaml", "- a\n- b\n", ["holds no sections"]),
        ("a.json", "{", ["is not JSON"]),
        ("a.json", "[1]", ["holds no sections"]),
        ("a.env", "what is this\n", ["line 1 is no NAME=value"]),
        ("a.env", "RAFTLINE_RAFT_TIK_MS=1\n", ["did you mean RAFTLINE_RAFT_TICK_MS?"]),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, text: str, parts: list[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert all(part in problem for part in parts), problem


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("---\na: 1\n", {"a": 1}),
        ("a: 'it''s'  # x\nb: it's # y\n", {"a": "it's", "b": "it's"}),
        ('a: "x # \\"y\\" \\\\" # z', {"a": 'x # "y" \\'}),
        ("a:\n- 1\n- b: 2\n  c:\n    - d\n-\n  - e\n", {"a": [1, {"b": 2, "c": ["d"]}, ["e"]]}),
        ("a: [1, [2, x y], {b: c}]\nd: {}\ne: []\n",
         {"a": [1, [2, "x y"], {"b": "c"}], "d": {}, "e": []}),
        ("a: ~\nb:\nc: null\n", {"a": None, "b": None, "c": None}),
        ("a: http://h:1/#x\nb: 1.5\nc: -3\nd: 10GB\ne: 1e3\n",
         {"a": "http://h:1/#x", "b": 1.5, "c": -3, "d": "10GB", "e": "1e3"}),
    ],
)  # fmt: skip
def test_yaml(text: str, wanted: object) -> None:
    assert loads(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\n", "a: *x\n", "a: !!int 1\n", "a: |\n  x\n", "a: 'x\n", 'a: "x\n', "a: [1\n",
        "a: {b}\n", "a: 1\n b: 2\n", "a: 1\na: 2\n", "a: 1\nb\n", "? a\n: b\n", "a: 1\n---\nb: 2\n",
        "a: [1] 2\n", "a: " + "[" * 100 + "]" * 100,
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line "):
        loads(text)


scalars = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def show(value: object, indent: int) -> str:
    """Write a tree in block form; scalars as JSON, which is YAML too."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        rows = value.items()
        return "".join(f"{pad}{json.dumps(k)}:{below(v, indent)}" for k, v in rows)
    if isinstance(value, list) and value:
        return "".join(f"{pad}-{below(v, indent)}" for v in value)
    return f"{pad}{json.dumps(value)}\n"


def below(value: object, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + show(value, indent + 2)
    return f" {json.dumps(value)}  # note\n"


@given(trees)
def test_trees_read_back_in_both_forms(tree: object) -> None:
    assert loads(show(tree, 0)) == tree
    assert loads(json.dumps(tree)) == tree


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        loads(text)
    except ValueError as error:
        assert "line " in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "[node]\nname = 'b'"), ("a.yaml", "node: {name: b}"),
     ("a.json", '{"node": {"name": "b"}}'),
     (".env", "RAFTLINE_NODE_NAME=b")],
)  # fmt: skip
def test_a_mark_of_the_encoding_is_no_part_of_the_first_name(
    tmp_path: Path, name: str, text: str
) -> None:
    """Editors on Windows begin files with one: there was "no section node; did you mean node?"."""
    file = tmp_path / name
    file.write_text(text, encoding="utf-8-sig")
    assert load(file).node.name == "b"


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "a=" + "[" * 5000), ("a.json", "[" * 100_000)]
)
def test_what_is_nested_too_deep_is_refused_in_words(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(SettingsError, match="is not"):
        load(file)
