"""Tables of CIAR: rows at one rate of calls, what is kept of a search, what a bundle lacks, the sentences below a table."""

import numpy as np
import pytest

from experiments import ciar_comparison, ciar_devices, ciar_discrete, ciar_table, ciar_thresholds
from experiments.ciar_rows import CLOSED, GatedBench, GatedRun, Row, outcome_of, placed, with_options
from experiments.method_quality import PLAIN, Setting, Workbench
from experiments.quality_figures import ENCODER
from jaxspec.decode.state import Origin
from tests.cli.fake_bundle import make_fake_bundle

CONFIGS = [
  (ciar_comparison, ("", "0.4")), (ciar_thresholds, ("tau", "rho", "code", "window")), (ciar_discrete, ("", "gap")),
  (ciar_devices, ("depth", "heads-1", "heads-2", "loss-1", "loss-2")),
]  # fmt: skip


def test_configs_name_their_rows_and_files_apart():
  runs = [module.get_config(arg) for module, args in CONFIGS for arg in args]
  assert len({run.name for run in runs}) == len(runs)
  for run in runs:
    assert len({row.name for row in run.entries}) == len(run.entries) >= 4
  for module, bad in ((ciar_comparison, "0.01"), (ciar_thresholds, "k"), (ciar_devices, "heads"), (ciar_discrete, "mean")):
    with pytest.raises(ValueError, match="Must have"):
      run = module.get_config(bad)
      [row.setting for row in run.entries]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  return str(make_fake_bundle(tmp_path_factory.mktemp("bundle")))


def test_what_a_bundle_lacks_is_said(checkpoint):
  run = GatedRun("t", "t", checkpoint=checkpoint)
  assert placed(run, Row("plain", PLAIN)) == (PLAIN, None)
  setting, line = placed(run, Row.gated("own", rho=0.5))
  assert dict(setting.options)["draft"] == "device" and line is None
  setting, line = placed(run, Row.gated("deep", device="inter-5"))
  assert setting is None and "left out deep" in line and "inter-5" in line
  setting, line = placed(run, Row("named", Setting.of("lantern", draft="other")))
  assert setting is None and "other" in line


def figures(name, calls, kid, retrieval, wall=None):
  interval = lambda value: dict(value=value, low=value - 0.01, high=value + 0.01)
  others = ("kid_plain", f"frechet_{ENCODER}", f"f1_{ENCODER}", "prompt_retrieval_change", "attribute_accuracy")
  metrics = {metric: interval(0.5) for metric in others} | {"prompt_retrieval": interval(retrieval)}
  metrics[f"kid_{ENCODER}"] = interval(kid)
  cloud = dict(call_rate=calls, interval=(calls - 0.01, calls + 0.01), settled=0.5, accepted=0.2, by_cloud=0.3)
  settings = {"method": "ar" if name == "Base" else "ciar"}
  wall = wall and {"ratio": dict(median=wall, low=wall, high=wall)}
  return dict(name=name, metrics=metrics, cloud=cloud, wall=wall, options={"tau": 0.1}, settings=settings, pictures=8)


def test_sentences_and_table():
  base, ciar = figures("Base", 1.0, 0.10, 0.80), figures("CIAR", 0.3, 0.105, 0.795, wall=2.5)
  worse, better = figures("Random", 0.302, 0.2, 0.6), figures("Entropy", 0.3, 0.1, 0.8)
  again = figures("Base, another seed", 1.0, 0.15, 0.79)
  lines = ciar_comparison.findings([base, again, ciar, worse, better])
  text = "\n".join(lines)
  assert "Random at 30.0 % and 30.2 % calls: KID to real better (apart), prompt retrieval better (apart)" in text
  assert "Entropy at 30.0 % and 30.0 % calls: KID to real not better (intervals overlap)" in text
  assert "KID inside of both (or better) and prompt retrieval inside of both (or better)" in text
  assert "70 % of its cloud calls saved, 2.50 times" in text
  assert "KID inside of one" in ciar_comparison.findings([base, again, figures("CIAR", 0.3, 0.155, 0.5)])[-1]
  assert "retrieval inside of neither" in ciar_comparison.findings([base, again, figures("CIAR", 0.3, 0.2, 0.5)])[-1]
  assert "not in the table" in ciar_comparison.findings([base])[0]
  document = dict(
    title="T", command="c", group="g", prompts=dict(train=4, a=2, b=2), reference_pictures=9, device=dict(platform="cpu"),
    rows=[base, ciar], notes=["note"], findings=lines, left_out=["left out x"],
  )  # fmt: skip
  rows = [line for line in ciar_table.render(document).splitlines() if line.startswith("|")]
  assert len(rows) == 4 and len({line.count("|") for line in rows}) == 1
  assert "| 30.0 [29.0, 31.0] | 50 | 20 | 2.50 [2.50, 2.50] | 10.50 [9.50, 11.50] |" in rows[-1]


@pytest.mark.slow
def test_a_search_matches_the_rate_and_starts_again_from_what_it_kept(checkpoint, tmp_path, monkeypatch):
  run = GatedRun("t", "t", checkpoint=checkpoint, num_train=24, num_held_out=4, batch=16)
  bench = GatedBench(run, tmp_path)
  setting, _ = placed(run, Row.gated("CIAR", rho=0.125))
  found = bench.matched(setting, 0.35)
  calls = bench.calls(found)
  assert abs(calls.call_rate - 0.35) <= 0.02 and 0 < dict(found.options)["tau"]  # few tokens: few rates are in reach
  assert len(bench._programs) == 1  # thresholds share a program
  decoded = bench.decode(found)
  assert decoded.tokens.shape == decoded.scores.shape == (32, 16)
  shares = (decoded.origin == Origin.SETTLED).sum(1)
  np.testing.assert_array_equal(shares, decoded.counters["settled"])
  np.testing.assert_array_equal(outcome_of(decoded).counters.target_calls, decoded.counters["target_calls"])
  # A second bench, one batch lost: it decodes that one again, the same, and nothing else.
  before, lost = decoded.tokens, bench.kept_at(found, ".1.npz")
  lost.unlink()
  again, made = GatedBench(run, tmp_path), []
  monkeypatch.setattr(Workbench, "_decoder", _counting(Workbench._decoder, made))
  assert again.matched(setting, 0.35) == found and len(made) == 1
  np.testing.assert_array_equal(again.decode(found).tokens, before)
  assert again.calls(with_options(setting, tau=CLOSED)).settled == 0


def _counting(method, made):
  def decoder(self, setting, batches):
    made.append(setting)
    return method(self, setting, batches)

  return decoder
