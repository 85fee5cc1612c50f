"""Tables of pairs of scales and of denoising steps, of tiny random networks from end to end."""

import json

import numpy as np
import pytest

from experiments import run
from experiments.configs import hosts
from experiments.engine.experiment import Lab
from experiments.engine.hosts import Hosts
from experiments.engine.rows import OPEN, row
from experiments.engine.tables import render
from jaxspec.core.overrides import override
from jaxspec.io.bundle import write_bundle
from jaxspec.models.dit.dit import DiTConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from jaxspec.models.tokenizers.var_vae import VARVAEConfig
from jaxspec.models.var.var import VARConfig
from tests.run import tiny
from tests.training.sharing import noise_digits

NAMES = tuple(map(str, range(10)))
# Decodes for the figures and for the clocks share the programs of a batch of two.
SIZES = dict(num_images=12, batch=2, num_calibration=8, clocks=(2,), turns=2)
TOKENIZER = VARVAEConfig(
  base_channels=2, multipliers=(1, 1, 1), num_res_blocks=1, codebook_size=8, codebook_dim=2, sides=(1, 4, 8), num_groups=1
)
VAR = VARConfig(depth=1, dim=8, num_heads=2, vocab_size=8, code_dim=2, num_classes=10, sides=(1, 4, 8), inter_head=True)
VAE = KLVAEConfig(
  base_channels=2,
  multipliers=(1, 1, 1),
  num_res_blocks=1,
  attention_levels=(),
  z_channels=2,
  latent_channels=2,
  num_groups=1,
)
DIT = DiTConfig(
  latent_size=8, latent_channels=2, patch_size=4, num_classes=10, dim=8, num_layers=1, num_heads=2, radius=True
)


def bundle(folder, config, tokenizer, **defaults):
  for number, (name, network) in enumerate((("target", config), ("draft", config), ("tokenizer", tokenizer))):
    tiny.save(folder / name, network, number, scale=0.3)
  parts = {"tokenizer": "tokenizer", "classes": NAMES}
  return str(write_bundle(folder, target="target", drafts={"small": "draft"}, parts=parts, **defaults).path)


def measured(table, tmp_path):
  document = run.finite(table.frame("t", "c") | table.measure(Lab(tmp_path / "runs")))
  return json.loads(json.dumps(document))


def check(document, calls, length):
  """Common checks of these tables."""
  rows = {entry["label"]: entry for entry in document["rows"]}
  assert rows["target"]["figures"]["calls_per_image"] == length and "minus_first" not in rows["target"]
  assert rows["draft alone"]["alone"] and rows["split"]["figures"]["calls_per_image"] == calls
  again = rows["target again"]
  assert again["per_image"] == rows["target"]["per_image"]
  for name in ("class_accuracy", "kid_digits"):  # the same images: no difference, and no power for a small one
    assert again["minus_first"][name]["value"] == 0 and again["minus_first"][name]["adjusted"] == 1
  moved = rows["draft alone"]["minus_first"]
  assert moved["kid_digits"]["adjusted"] >= moved["kid_digits"]["p_value"] and moved["class_accuracy"]["detectable"] > 0
  exact = rows["exact"]
  assert len(exact["along"]["tested"]) == length and exact["figures"]["drafted"] > 0
  assert all(len(entry["seconds"][batch]) == 2 for entry in document["rows"] for batch in map(str, SIZES["clocks"]))
  text = render(document)
  assert "Smallest true difference" in text and "speed over target, batch 2" in text and "nan" not in text
  return rows, text


@pytest.fixture
def digits(tmp_path, monkeypatch):
  pytest.importorskip("sklearn")
  return noise_digits(tmp_path, monkeypatch)


PLAIN = (row("ar", "target"), row("ar", "target again"), row("ar", "draft alone", alone=True))


@pytest.mark.slow
def test_a_table_of_maps(tmp_path, digits):
  path = bundle(tmp_path / "var", VAR, TOKENIZER, sampling={"cfg_scale": 1.5, "top_k": 0, "top_p": 1.0})
  rows = (
    *PLAIN,
    row("scale-ciar", "split", tau=OPEN, target_prefix=1 / 3),
    row("scale-speculative", "exact", gamma=1),
    row("scale-ciar", "CIAR", rate=0.34, max_window=1),
  )
  document = measured(Hosts(title="t", bundle=path, rows=rows, **SIZES), tmp_path)
  found, text = check(document, calls=1, length=3)
  wanted = found.get("CIAR", {"figures": {"calls_per_image": 3 * 0.34}})  # few scales: few reachable rates
  assert abs(wanted["figures"]["calls_per_image"] / 3 - 0.34) < 0.25
  assert ("CIAR" in found) != bool(document["left_out"]) and "accepted along the row" in text


@pytest.mark.slow
def test_a_table_of_states(tmp_path, digits):
  path = bundle(tmp_path / "dit", DIT, VAE, sampling={"steps": 4, "cfg_scale": 1.5})
  rows = (
    *PLAIN,
    row("step-ciar", "split", tau=OPEN, target_prefix=0.5),
    row("step-speculative", "exact", draft="small", gamma=2),
    row("step-speculative", "frozen", draft="frozen", gamma=2),
  )
  document = measured(Hosts(title="t", bundle=path, rows=rows, **SIZES), tmp_path)
  found, _ = check(document, calls=2, length=4)
  assert found["frozen"]["draft"] in (None, "frozen") and found["exact"]["draft"] == "small"


def test_rows_and_sizes_of_the_shipped_tables():
  for name, table in hosts.TABLES.items():
    assert table.num_images >= 1000 and table.clocks == (1, 8), name
    assert [entry.rate for entry in table.rows if entry.rate is not None] == list(hosts.RATES), name
    small = override(table, ["num_images=10", "num_calibration=5", "turns=0", "clocks=(1,)"])
    assert small.num_images == 10 and small.clocks == (1,)
    with pytest.raises(ValueError, match="num_calibration and clocks"):
      override(table, ["num_calibration=0"])
  prefixes = [dict(entry.options).get("target_prefix") for entry in hosts.TABLES["table10_var"].rows]
  assert [int(np.ceil(share * hosts.SCALES)) for share in prefixes if share] == [2, 3, 4, 5]
