"""`jaxspec generate --method ciar` and `jaxspec calibrate` on random networks."""

import importlib
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxspec.evaluation import threshold_trials
from jaxspec.evaluation.threshold_search import prompts_hash
from jaxspec.io import shipped
from jaxspec.run.cloud_calls import cloud_calls

LOCAL = "local"
CIAR = ("--method", "ciar", "--gamma", 3, "--max-run", 4)


@pytest.fixture
def generate(run, bundle):
  def call(*args, source=bundle):
    outcome = run("generate", "a red apple", *CIAR, *args, "--checkpoint", source, "--json", "figures.json", "--samples", 3)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    with open("figures.json", encoding="utf-8") as file:
      return json.load(file), outcome

  return call


@pytest.mark.slow
def test_figures_messages_and_the_map(generate):
  """Shares add up, traffic is that of the calls, and the map shows locally accepted tokens."""
  document, outcome = generate("--tau", 0.25, "--target-prefix", 0.2, "--network", "4g", "--heatmap", "map.png")
  cloud, method = document["cloud"], document["methods"]["ciar"]
  assert document["settings"]["draft"] == "edge" and method["cloud"] == cloud
  assert cloud["local"] + cloud["accepted"] + cloud["by_cloud"] == pytest.approx(1)
  assert cloud["call_rate"] == pytest.approx(method["target_calls"] / 48)
  assert cloud["cloud_passes"] >= method["target_calls"]  # their number is that of tests/evaluation/test_cloud_calls.py
  assert cloud["by_cloud"] >= 3 / 16  # the prefix
  messages = method["messages"]
  traffic = messages["traffic"]
  assert messages["same_tokens"] and traffic["exchanges"] == method["target_calls"] - 3  # prefills answer with a reply only
  assert traffic["downlink_bytes"] == 20 * method["target_calls"] and traffic["uplink_bytes"] > 20 * traffic["exchanges"]
  both = messages["network_s"]["4g"]
  assert both["one_way"] - both["rtt_per_call"] == pytest.approx(0.05 * method["target_calls"])
  for words in ("cloud calls per token", "accepted on the edge", "bytes up per image", "4g, latency once a call"):
    assert words in outcome.stdout
  with Image.open("map.png") as maps:
    seen = set(map(tuple, np.asarray(maps).reshape(-1, 3)))
  assert {(204, 204, 204), (213, 94, 0)} <= seen  # the edge's, the cloud's


@pytest.mark.slow
def test_an_open_gate(generate):
  """After the prefix the edge draws alone; the same program as above. tests/drafters has the limits of the decode."""
  cloud = generate("--tau", "inf", "--target-prefix", 0.2)[0]["cloud"]
  assert cloud["local"] == 13 / 16 and cloud["by_cloud"] == cloud["call_rate"] == 3 / 16


@pytest.mark.slow
def test_calibration_is_stored_and_used(run, fails, generate, bundle, tmp_path, monkeypatch):
  copy = tmp_path / "copy"
  shutil.copytree(bundle, copy)
  missing = run("generate", "a red apple", *CIAR, "--checkpoint", copy)
  assert missing.exit_code == 2 and "jaxspec calibrate" in missing.stderr
  outcome = run("calibrate", "--checkpoint", copy, "--rates", "0.3,0.5", "--gamma", 3, "--tolerance", 0.01, "--samples", 4)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  with open(copy / "edge" / "config.json", encoding="utf-8") as file:
    stored = json.load(file)["meta"]["calibration"]
  low, high = stored["thresholds"]
  assert abs(low["achieved"] - 0.3) <= 0.02 and abs(high["achieved"] - 0.5) <= 0.02 and low["tau"] > high["tau"]
  assert stored["images"] == 64 and stored["policy"] == "search" and stored["prompts"] != stored["held_out_prompts"]
  for entry in stored["thresholds"]:  # of 64 images; random networks hardly listen to their prompts
    assert abs(entry["held_out"] - entry["achieved"]) < 0.1
  document, _ = generate(source=copy)
  assert 0.1 < document["cloud"]["call_rate"] < 0.6
  document, _ = generate("--cloud-rate", 0.5, source=copy)
  assert document["settings"]["options"]["tau"] is None and 0.3 < document["cloud"]["call_rate"] < 0.7
  again = ("calibrate", "one", "--held-out", "other", "--checkpoint", copy, "--rates", "0.4", "--gamma", 3, "--dry-run")
  quick = run(*again, "--quantile", "--samples", 16)  # the rows of a batch of the search, for the same program
  assert quick.exit_code == 0 and "cloud rate 0.400" in quick.stdout, quick.output
  # Prompts of files, and more images than most trials take: 16 of 64.
  monkeypatch.setattr(importlib.import_module("jaxspec.evaluation.calibration"), "FEW", 16)
  for name, first in (("found", 0), ("tried", 32)):
    (tmp_path / name).write_text("".join(f"{first + number} red apples\n" for number in range(32)), encoding="utf-8")
  files = ("--prompt-file", tmp_path / "found", "--held-out-file", tmp_path / "tried")
  images = []
  monkeypatch.setattr(threshold_trials, "cloud_calls", lambda out: (images.append(len(out.lengths)), cloud_calls(out))[1])
  settings = (*again[4:-1], "--tolerance", 0.01, "--samples", 2, "--batch", 16, "--journal", tmp_path / "trials.journal")
  many = run(*again[:1], *files, *settings)
  assert many.exit_code == 0, (many.output, many.exception)
  with open(copy / "edge" / "config.json", encoding="utf-8") as file:
    stored = json.load(file)["meta"]["calibration"]
  assert stored["images"] == 64 and abs(stored["thresholds"][0]["achieved"] - 0.4) <= 0.02
  assert images[0] == 16 and images[-1] == 64 and set(images) == {16, 64}
  assert stored["held_out_prompts"] == prompts_hash([f"{32 + number} red apples" for number in range(32)])
  # A repeated run decodes nothing, with the same output; another prompt is another calibration.
  made = len(images)
  assert run(*again[:1], *files, *settings).stdout == many.stdout and len(images) == made
  assert "one with other batch, prompts" in fails(*again[:1], "one more", *files, *settings)
  assert "one with other held-out prompts" in fails(*again[:1], "--held-out", "one more", *files, *settings)


def test_contradictions(fails, bundle):
  ciar = ("generate", "a red apple", *CIAR, "--checkpoint", bundle)
  assert "tau or cloud_rate" in fails(*ciar, "--tau", 1, "--cloud-rate", 0.3)
  assert "above target_prefix" in fails(*ciar, "--cloud-rate", 0.2, "--target-prefix", 0.3)
  assert "--verify greedy" in fails(*ciar, "--tau", 1, "--network", "4g", "--verify", "lantern")
  assert "we instead got speculative" in fails("generate", "a red apple", "--network", "5g", "--checkpoint", bundle)
  assert "jaxspec calibrate" in fails(*ciar)
  assert "accepted locally" in fails("audit", "--method", "ciar", "--tau", 1, "--checkpoint", bundle)


def test_options_of_calibrate(fails, bundle):
  calibrate = ("calibrate", "--checkpoint", bundle)
  assert "--tolerance" in fails(*calibrate, "--tolerance", -1)
  assert "number as --tolerance" in fails(*calibrate, "--tolerance", "nan")
  assert "--seed" in fails(*calibrate, "--seed", 2**32 - 1)  # the next one must exist too
  assert "--rates between 0 and 1" in fails(*calibrate, "--rates", "0.2,1.5")
  assert "target_prefix of at most 1" in fails(*calibrate, "--target-prefix", 2)
  assert "Must have a word" in fails(*calibrate, "--held-out", " ")
  for option in ("--prompt-file", "--held-out-file"):
    assert "Cannot read prompts from missing.txt" in fails(*calibrate, option, "missing.txt")
  assert "a draft in small" in fails(*calibrate, "--draft", "huge")


def test_calibration_changes_no_installed_package(fails, bundle, monkeypatch):
  monkeypatch.setattr(shipped, "_INSTALLED", bundle.parent)
  assert "Must have --dry-run, or --model DIR with a copy of" in fails("calibrate", "--checkpoint", bundle)
