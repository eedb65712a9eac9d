"""What is in deploy/ names real settings, ports and files, and its scripts run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import yaml

from raftline.config.loader import environment_name, sections
from raftline.config.settings import Settings
from scripts.install_deploy_tools import VERSIONS, find_compose, find_helm, find_schemas

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "kubernetes" / "helm" / "raftline"
VARIABLES = {
    environment_name(section, field.name)
    for section, kind in sections().items()
    for field in msgspec.structs.fields(kind)
}
FILES = [
    DEPLOY / "Dockerfile",
    DEPLOY / "docker-compose.yml",
    CHART / "values.yaml",
    CHART / "templates" / "statefulset.yaml",
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_variable_is_a_setting(file: Path):
    named = set(re.findall(r"\bRAFTLINE_(?!IMAGE)[A-Z_]+\b", file.read_text()))
    assert named
    assert named <= VARIABLES, f"{file.name}: no setting has {sorted(named - VARIABLES)}"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())


def test_composed_nodes_know_each_other_and_tell_clients_the_published_ports():
    services = compose()["services"]
    nodes = {name: service for name, service in services.items() if name.startswith("node-")}
    assert len(nodes) == 3
    for name, service in nodes.items():
        environment = service["environment"]
        assert environment["RAFTLINE_NODE_NAME"] == name
        assert f"{name}={name}:7000" in environment["RAFTLINE_NODE_PEERS"].split(",")
        published = {
            inside: outside for _, outside, inside in (port.split(":") for port in service["ports"])
        }
        for gateway, inside in (("HTTP", "8080"), ("GRPC", "9000"), ("KAFKA", "9092")):
            told = environment[f"RAFTLINE_LISTEN_ADVERTISE_{gateway}"]
            assert told == f"localhost:{published[inside]}"


def test_composed_services_publish_on_loopback_and_no_port_twice():
    ports = [port for service in compose()["services"].values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    outside = [port.split(":")[1] for port in ports]
    assert len(outside) == len(set(outside))


def test_composed_services_mount_files_that_are_there():
    mounts = [
        mount.split(":")[0]
        for service in compose()["services"].values()
        for mount in service["volumes"]
    ]
    volumes = compose()["volumes"]
    for mount in mounts:
        assert mount in volumes or (DEPLOY / mount).exists(), mount


def test_dockerfile_pleases_hadolint():
    hadolint = str(Path(sys.executable).parent / "hadolint")
    ran = subprocess.run(
        [hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def test_dockerfile_copies_only_what_the_build_context_lets_in():
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = re.findall(r"^COPY (?!--from)(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()[:-1]}
    assert sources
    assert sources <= let_in
    assert all((ROOT / source).exists() for source in sources)


def deploy(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DEPLOY / "deploy.sh"), *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("deploy", "eksctl create cluster --name raftline-dev"),
        ("raftline", "helm upgrade --install raftline"),
        ("goqueue", "helm upgrade --install raftline"),
        ("url", "kubectl get service raftline"),
        ("benchmark", "raftline bench --server"),
    ],
)
def test_deploy_script_shows_what_it_would_run(verb: str, said: str):
    ran = deploy(verb, "dev", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


@pytest.mark.parametrize(
    "words", [(), ("deploy",), ("nothing", "dev"), ("url", "../dev"), ("url", "dev", "--no")]
)
def test_deploy_script_refuses_what_it_does_not_know(words: tuple[str, ...]):
    ran = deploy(*words)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr


def test_deployed_load_balancer_is_not_public():
    """There is no authentication: a cloud's load balancer is public unless told."""
    file = DEPLOY / "kubernetes" / "helm" / "internal-load-balancer.yaml"
    assert f"--values {file}" in deploy("deploy", "dev", "--dry-run").stdout
    service = yaml.safe_load(file.read_text())["service"]
    assert service["type"] == "LoadBalancer"
    assert {"true", "internal", "Internal"} == set(service["annotations"].values())
    assert "LoadBalancer" not in (DEPLOY / "deploy.sh").read_text()


def test_deployed_environment_has_the_last_word_over_our_values(monkeypatch: pytest.MonkeyPatch):
    file = DEPLOY / "kubernetes" / "test-only.yaml"
    file.write_text("replicaCount: 5\n")
    try:
        said = deploy("raftline", "test-only", "--dry-run").stdout
        assert said.index("internal-load-balancer.yaml") < said.index(str(file))
        assert "--set" not in said
        monkeypatch.setenv("NODES", "7")
        assert "--set replicaCount=7" in deploy("raftline", "test-only", "--dry-run").stdout
    finally:
        file.unlink()


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [("r.io:5000/raftline:1.2", "r.io:5000/raftline", "1.2"), ("r.io:5000/raftline", None, None)],
)
def test_deployed_image_may_have_a_port_and_no_tag(
    monkeypatch: pytest.MonkeyPatch, image: str, repository: str | None, tag: str | None
):
    monkeypatch.setenv("RAFTLINE_IMAGE", image)
    said = deploy("raftline", "dev", "--dry-run").stdout
    assert f"image.repository={repository or image}" in said
    assert (f"image.tag={tag}" in said) is (tag is not None)
    assert ("image.tag" in said) is (tag is not None)


def test_chart_uses_only_values_that_it_has():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values\.([A-Za-z.]+)", template.read_text()):
            held: Any = values
            for part in path.split("."):
                assert part in held, f"{template.name} asks for {path}"
                held = held[part]


CHARTS = {
    "plain": [],
    "one": ["--set", "replicaCount=1"],
    "grown": ["--set", "replicaCount=5,foundingNodes=3,service.type=NodePort"],
    "all": [
        *("--set", "persistence.storageClass=fast,nodeSelector.disk=ssd,podAnnotations.a=b"),
        *("--set", "settings.RAFTLINE_TOPICS_PARTITIONS=12,service.annotations.c=d"),
        *("--set-json", 'tolerations=[{"key": "only", "operator": "Exists"}]'),
    ],
}


@pytest.fixture(scope="module")
def helm() -> str:
    found = find_helm()
    if found is None:
        pytest.skip("helm is not here and cannot be unpacked")
    return str(found)


@pytest.mark.parametrize("options", CHARTS.values(), ids=CHARTS)
def test_chart_pleases_helm(helm: str, options: list[str]) -> None:
    rendered = render(helm, ["lint", "--strict", str(CHART), *options])
    assert "0 chart(s) failed" in rendered
    rendered = render(helm, ["template", "raftline", str(CHART), *options])
    founders = 1 if "replicaCount=1" in options else 3
    assert f"-lt {founders} ]" in rendered


def test_chart_spreads_pods_and_tells_clients_names_of_every_namespace(helm: str) -> None:
    rendered = render(helm, ["template", "raftline", str(CHART), "--namespace", "queues"])
    objects = {one["kind"]: one for one in yaml.safe_load_all(rendered) if one}
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    spread = [one["topologyKey"] for one in pod["topologySpreadConstraints"]]
    assert "kubernetes.io/hostname" in spread
    told = {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}
    for gateway in ("HTTP", "GRPC", "KAFKA"):
        assert ".raftline-peers.queues.svc:" in told[f"RAFTLINE_LISTEN_ADVERTISE_{gateway}"]


def render(helm: str, words: list[str]) -> str:
    ran = subprocess.run([helm, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", CHARTS.values(), ids=CHARTS)
def test_chart_makes_what_kubernetes_takes(helm: str, options: list[str], version: str) -> None:
    """Every object, field by field, against the strict schemas of that version."""
    schemas = find_schemas()
    if schemas is None:
        pytest.skip("the schemas of Kubernetes cannot be fetched")
    rendered = render(helm, ["template", "raftline", str(CHART), *options])
    objects = [one for one in yaml.safe_load_all(rendered) if one]
    kinds = sorted(one["kind"] for one in objects)
    assert kinds == ["PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    for one in objects:
        assert not wrong_fields(schemas / version, one)
    objects[0]["spec"]["no_such_field"] = 1  # the check can fail
    assert wrong_fields(schemas / version, objects[0])


def wrong_fields(folder: Path, one: dict[str, Any]) -> list[str]:
    """Return what the schema of an object's kind says against it."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", one["apiVersion"])
    schema = json.loads((folder / f"{one['kind'].lower()}-{group}.json").read_text())
    shared = json.loads((folder / "_definitions.json").read_text())
    registry = jsonschema_rs.Registry([(shared["$id"], shared)])
    checker = jsonschema_rs.validator_for(schema, registry=registry)
    return [f"{error.instance_path}: {error.message}" for error in checker.iter_errors(one)]


def test_compose_reads_the_file_as_it_is_meant(tmp_path: Path) -> None:
    """By the loader that compose itself uses: merged, interpolated, paths resolved."""
    program = find_compose()
    if program is None:
        pytest.skip("compose's loader is not here and cannot be built")
    ran = load_composed(program, DEPLOY / "docker-compose.yml")
    assert ran.returncode == 0, ran.stderr
    services = json.loads(ran.stdout)["services"]
    assert {"node-1", "node-2", "node-3", "prometheus", "grafana"} == set(services)
    for number in (1, 2, 3):
        node = services[f"node-{number}"]
        assert node["image"] == "raftline:latest"
        assert node["build"]["context"] == str(ROOT)
        assert "node-2=node-2:7000" in node["environment"]["RAFTLINE_NODE_PEERS"]
    wrong = tmp_path / "docker-compose.yml"  # the check can fail
    wrong.write_text((DEPLOY / "docker-compose.yml").read_text().replace("hostname:", "hostnam:"))
    assert "hostnam" in load_composed(program, wrong).stderr


def load_composed(program: Path, file: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAFTLINE_IMAGE"}
    words = [str(program), "--format", "json", str(file)]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=DEPLOY, env=environment
    )


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not here")
    text = (DEPLOY / "systemd" / "raftline.service").read_text()
    unit = tmp_path / "raftline.service"  # its program is not installed on this machine
    unit.write_text(text.replace("/opt/raftline/bin/raftline", "/bin/true"))
    ran = subprocess.run(
        [program, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert str(unit) not in ran.stderr, ran.stderr
    assert "raftline.service" not in ran.stderr, ran.stderr


@pytest.mark.parametrize("file", sorted((DEPLOY / "kubernetes" / "chaos-mesh").glob("*.yaml")))
def test_chaos_manifests_choose_the_pods_of_the_chart(file: Path):
    manifest = yaml.safe_load(file.read_text())
    assert manifest["apiVersion"] == "chaos-mesh.org/v1alpha1"
    assert "app.kubernetes.io/name: raftline" in file.read_text()
    assert 'define "raftline.selector"' in (CHART / "templates" / "_helpers.tpl").read_text()


def test_the_unit_may_write_where_a_fresh_settings_file_says():
    """Its comment begins with --print-config, and that has a relative directory."""
    lines = (DEPLOY / "systemd" / "raftline.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    written = Path(unit["WorkingDirectory"], Settings().node.data_dir)
    assert written.is_relative_to(unit["ReadWritePaths"])
    assert unit["ReadWritePaths"] == f"/var/lib/{unit['StateDirectory']}"


def test_the_image_that_is_built_is_the_one_the_chart_asks_for():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    words = ["make", "--no-print-directory", "-n", "docker-build"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert f"-t {image['repository']}:{image['tag'] or chart['appVersion']} " in ran.stdout
