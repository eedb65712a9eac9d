"""What is in deploy/ names real settings, ports and files, and its scripts run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from raftline.config.loader import environment_name, sections

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


def test_chart_uses_only_values_that_it_has():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values\.([A-Za-z.]+)", template.read_text()):
            held: Any = values
            for part in path.split("."):
                assert part in held, f"{template.name} asks for {path}"
                held = held[part]


def test_chart_pleases_helm():
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed here")
    for options in (
        [],
        ["--set", "replicaCount=1"],
        ["--set", "replicaCount=5", "--set", "foundingNodes=3", "--set", "service.type=NodePort"],
    ):
        for command in (["lint", str(CHART)], ["template", "raftline", str(CHART)]):
            ran = subprocess.run(
                [helm, *command, *options], capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        founders = 3 if len(options) > 2 else (1 if options else 3)
        assert f"-lt {founders} ]" in ran.stdout


@pytest.mark.parametrize("file", sorted((DEPLOY / "kubernetes" / "chaos-mesh").glob("*.yaml")))
def test_chaos_manifests_choose_the_pods_of_the_chart(file: Path):
    manifest = yaml.safe_load(file.read_text())
    assert manifest["apiVersion"] == "chaos-mesh.org/v1alpha1"
    assert "app.kubernetes.io/name: raftline" in file.read_text()
    assert 'define "raftline.selector"' in (CHART / "templates" / "_helpers.tpl").read_text()
