"""Every method in the studio, on every kind of networks."""

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

from jaxspec.core.options import options_of
from jaxspec.methods import METHODS
from jaxspec.run.loading import load_pipeline
from jaxspec.run.sources import Sources
from jaxspec.studio.api import make_app
from jaxspec.studio.studio_session import StudioSession
from tests.methods.networks import CAUSAL, MAR, SMALL
from tests.run import test_denoising as test_states
from tests.run import tiny

# Sources, how they are loaded, a prompt, and sampling settings that decode fast.
KINDS = {
  "captions": (tiny.captions, {}, "red apple", {}),
  "texts": (tiny.texts, {}, "on", {}),
  "causal": (lambda path: tiny.vectors(path, CAUSAL), {}, "1", {"steps": "ddim5"}),
  "mar": (lambda path: tiny.vectors(path, MAR), {}, "1", {"steps": "ddim5"}),
  "maps": (tiny.scales, {}, "1", {}),
  "states": (test_states.write_tiny, {}, "1", {"steps": str(test_states.STEPS)}),
}

# Captions show methods of ids with drafts of several kinds; test_api.py has others, and an audit of a lossy method. Masked
# networks show every method of vectors. For others of the same tokens, those that are refused and one with drafts. All other
# kinds show all of their methods.
CHOSEN = {
  "captions": {"sqs", "eagle", "ciar", "rows"},
  "texts": {"speculative", "lantern"}, "causal": {"cspd", "parallel"},
}  # fmt: skip

# Methods that do not fit a kind of networks, and their error.
REFUSED = {
  "causal": ({"parallel"}, "a masked network (MAR) for method parallel"),
  "texts": ({"lantern"}, "the codebook of the image tokenizer for method"),
}


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
  made = {}

  def of(kind):
    if kind not in made:
      write, parts, *_ = KINDS[kind]
      folder = write(tmp_path_factory.mktemp(kind) / "bundle")
      pipeline = load_pipeline(folder, matmul_precision="float32", **parts)
      made[kind] = TestClient(make_app(StudioSession(pipeline, Sources(folder)), hosts=["testserver"])), pipeline
    return made[kind]

  return of


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_these_networks_are_shown(clients, kind):
  """Each token comes once with its round; figures, outputs, commands and snippets are there; nothing is a NaN."""
  (client, pipeline), prompt, sampling = clients(kind), *KINDS[kind][2:]
  about, (refused, why) = client.get("/api/about").json(), REFUSED.get(kind, ((), ""))
  assert [method["name"] for method in about["methods"]] == pipeline.methods()
  for name in [name for name in pipeline.methods() if name in CHOSEN.get(kind, METHODS)]:
    options = {key: value for key, value in SMALL[name].items() if key in options_of(METHODS[name])}
    wanted = {"prompts": [prompt] * 2, "entrants": [{"method": name, "options": options}], "sampling": sampling}
    wanted |= {"max_tokens": 6} if about["noun"] == "text" else {}
    reply = client.post("/api/race", json=wanted | {"messages": True, "audit": about["can_audit"]})
    if reply.status_code == 400 and "no audit with method" in reply.json()["message"]:
      reply = client.post("/api/race", json=wanted | {"messages": True})
    if name in refused:
      assert reply.status_code == 400 and why in reply.json()["message"]
      continue
    assert reply.status_code == 200, (name, reply.text)
    events = [json.loads(line) for line in reply.text.splitlines() if line]
    assert events[-1]["event"] == "finished", (name, events[-1])
    (done,), rounds = ([event for event in events if event["event"] == kind] for kind in ("done", "round"))
    for row in (0, 1):
      positions = [token[0] for event in rounds for token in event["rows"][row]["tokens"]]
      assert len(set(positions)) == len(positions) and set(positions) == set(range(len(positions))), name
      assert positions or about["noun"] == "text", name
    assert done["figures"]["is_exact"] == METHODS[name](**options).is_exact
    shown = done.get("images") or done.get("texts")
    assert len(shown) == 2 and all(shown), name
    assert f"--method {name}" in events[-1]["commands"][0] and "load_pipeline" in events[-1]["snippets"][0]
    document = client.get(f"/api/races/{events[-1]['name']}/figures.json").json()
    assert np.isfinite(document["figures"][0]["tokens_per_s"]), name
