"""The files of docs/deploy: names agree with the code, and commands exist."""

from pathlib import Path

import pytest
import yaml

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from jaxspec.cli.main import COMMANDS
from jaxspec.cli.serve import serve
from jaxspec.serving.server.server import GRACE_S
from jaxspec.serving.server.servicer import SERVICE
from jaxspec.serving.wire.address import ROUTE_HEADER

FOLDER = Path(__file__).parents[3] / "docs" / "deploy"
SERVER, PROXY, SERVERS = "jaxspec-target", "jaxspec-proxy", "jaxspec-targets"


@pytest.fixture(scope="module")
def envoy():
  return yaml.safe_load((FOLDER / "envoy.yaml").read_text())["static_resources"]


@pytest.fixture(scope="module")
def kubernetes():
  """Objects by kind and name."""
  found = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
  return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(kubernetes, name):
  return kubernetes["Deployment", name]["spec"]["template"]["spec"]


def container(kubernetes, name):
  (found,) = pod(kubernetes, name)["containers"]
  return found


def ports(container):
  return {each["name"]: each["containerPort"] for each in container["ports"]}


def seconds(text):
  return float(text.removesuffix("s"))


def manager(envoy):
  (listener,) = envoy["listeners"]
  (chain,) = listener["filter_chains"]
  return chain["filters"][0]["typed_config"]


def test_streams_stay_at_one_server(envoy):
  (cluster,) = envoy["clusters"]
  assert cluster["lb_policy"] in ("RING_HASH", "MAGLEV")
  (host,) = manager(envoy)["route_config"]["virtual_hosts"]
  exchange, others = host["routes"]
  for route in host["routes"]:
    action = route["route"]
    assert action["hash_policy"] == [{"header": {"header_name": ROUTE_HEADER}}] and action["cluster"] == cluster["name"]
    assert action["timeout"] == "0s" and "retry_policy" not in action, "deadlines and retries are the edge's"
  assert exchange["match"] == {"path": f"/{SERVICE}/Exchange"} and others["match"] == {"prefix": f"/{SERVICE}/"}
  assert manager(envoy)["stream_idle_timeout"] == "5s"
  assert exchange["route"]["idle_timeout"] == "0s" and "idle_timeout" not in others["route"]
  assert "retry_policy" not in host


def test_health_is_that_of_the_service(envoy, kubernetes):
  (check,) = envoy["clusters"][0]["health_checks"]
  assert check["grpc_health_check"] == {"service_name": SERVICE}
  server = container(kubernetes, SERVER)
  for probe in ("startupProbe", "readinessProbe"):
    assert server[probe]["grpc"] == {"port": ports(server)["grpc"], "service": SERVICE}
  assert "livenessProbe" not in server and server["readinessProbe"]["failureThreshold"] == 1


def test_ports_and_names_fit(envoy, kubernetes):
  server, proxy = container(kubernetes, SERVER), container(kubernetes, PROXY)
  (endpoints,) = envoy["clusters"][0]["load_assignment"]["endpoints"]
  (endpoint,) = endpoints["lb_endpoints"]
  behind = endpoint["endpoint"]["address"]["socket_address"]
  headless, entrance = kubernetes["Service", SERVERS]["spec"], kubernetes["Service", "jaxspec"]["spec"]
  assert behind == {"address": SERVERS, "port_value": headless["ports"][0]["port"]}
  assert headless["clusterIP"] == "None" and headless["selector"] == {"app": SERVER}
  assert headless["ports"][0]["targetPort"] == "grpc" and headless["ports"][0]["port"] == ports(server)["grpc"]
  assert envoy["listeners"][0]["address"]["socket_address"]["port_value"] == ports(proxy)["edges"]
  assert entrance["selector"] == {"app": PROXY} and entrance["ports"][0]["targetPort"] == "edges"
  for name in (SERVER, PROXY):
    spec = kubernetes["Deployment", name]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {"app": name}
    mounted = {each["name"] for each in container(kubernetes, name)["volumeMounts"]}
    assert mounted == {each["name"] for each in pod(kubernetes, name)["volumes"]}
  policy = kubernetes["NetworkPolicy", SERVER]["spec"]
  assert policy["podSelector"]["matchLabels"] == {"app": SERVER}
  assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app": PROXY}}}]
  assert [each["ports"] for each in policy["ingress"]] == [[{"port": "grpc"}], [{"port": "metrics"}]]
  (certificate,) = envoy["listeners"][0]["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"][
    "tls_certificates"
  ]
  files = {each["filename"] for each in certificate.values()}
  mounts = [each["mountPath"] for each in proxy["volumeMounts"]]
  assert all(any(file.startswith(f"{mount}/") for mount in mounts) for file in (*files, proxy["args"][1]))


def test_the_command_is_one(kubernetes):
  """Its options are those of `jaxspec serve`, and its ports those of the container."""
  server = container(kubernetes, SERVER)
  name, *args = server["args"]
  assert server["command"] == ["jaxspec"] and name in COMMANDS
  options = serve.make_context(name, list(args)).params
  for option, port in {"listen": "grpc", "metrics": "metrics"}.items():
    assert options[option] == f"0.0.0.0:{ports(server)[port]}"
  assert options["insecure"] and options["tls_cert"] is None
  mounts = [each["mountPath"] for each in server["volumeMounts"]]
  assert str(options["checkpoint"]) in mounts and str(options["token_file"].parent) in mounts
  assert {each["name"]: each["value"] for each in server["env"]} == {"JAXSPEC_CACHE_DIR": "/cache"} and "/cache" in mounts
  annotations = kubernetes["Deployment", SERVER]["spec"]["template"]["metadata"]["annotations"]
  assert annotations["prometheus.io/port"] == str(ports(server)["metrics"])


def test_nobody_is_cut_off(envoy, kubernetes):
  """The proxy removes a server before its SIGTERM; then the server has time to answer waiting calls."""
  server = container(kubernetes, SERVER)
  command, pause_s = server["lifecycle"]["preStop"]["exec"]["command"]
  assert command == "sleep" and float(pause_s) > 2 * seconds(envoy["clusters"][0]["dns_refresh_rate"])
  assert pod(kubernetes, SERVER)["terminationGracePeriodSeconds"] > float(pause_s) + GRACE_S
  assert kubernetes["Deployment", SERVER]["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
