"""Heads of a tiny random Anole: from its own samples to a bundle that decodes with them."""

import collections
import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.data import own_samples, sample_prompts, sampled_target
from experiments.train import eagle, inter_head
from experiments.train.student import HELD_OUT
from jaxspec import load_pipeline, methods
from jaxspec.core.token_kinds import CONTINUOUS, DISCRETE
from jaxspec.core.token_space import TokenSpace
from jaxspec.io.bundle import read_bundle
from jaxspec.models.conditions import Caption, ClassLabels, Prompt
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import edge_from_cloud
from tests.exit_status import status_of
from tests.run import tiny, tiny_chameleon

NUM = HELD_OUT + 4


def short(run, folder, steps):
  loop = dataclasses.replace(run.loop, num_steps=steps, log_every=1, eval_every=0, checkpoint_every=steps)
  samples = str(folder / "samples.npz")
  return dataclasses.replace(run, bundle=str(folder), samples=samples, num_samples=NUM, batch_size=2, loop=loop)


@pytest.mark.slow
def test_samples_heads_and_decodes(tmp_path, monkeypatch):
  folder = tiny_chameleon.networks(tmp_path)["anole"]
  (tmp_path / "prompts.txt").write_text("a red fox\n\ntwo cats on a mat\né\n", encoding="utf-8")
  arguments = {
    "--bundle": folder, "--prompts": tmp_path / "prompts.txt", "--num-samples": NUM, "--batch": 44,
    "--out": folder / "samples.npz", "--matmul-precision": "float32",
  }  # fmt: skip
  assert status_of(own_samples.main, *(word for pair in arguments.items() for word in pair)) == 0
  pipe = load_pipeline(folder)
  with np.load(folder / "samples.npz") as samples:
    assert samples["tokens"].shape == (NUM, 16) and samples["tokens"].max() < 16
    counts = collections.Counter(tuple(ids[mask]) for ids, mask in zip(samples["ids"], samples["mask"]))
  expected = pipe.encode(["a red fox", "two cats on a mat", "é"]).condition
  assert counts == {tuple(ids[mask]): NUM // 3 for ids, mask in zip(*expected)}

  eagle.train(short(eagle.get_config(), folder, 3), tmp_path / "eagle", export_to=folder)
  inter_head.train(short(inter_head.get_config("1"), folder, 2), tmp_path / "edge", export_to=folder)
  bundle = read_bundle(folder)
  assert (bundle.target, set(bundle.drafts), bundle.defaults.draft) == (".", {"eagle", "inter-1"}, "eagle")
  trained = load_pipeline(folder)
  assert trained.sampling() == pipe.sampling()  # the published settings stay
  head, edge = trained.drafts["eagle"], trained.drafts["inter-1"]
  assert head.config == EagleConfig.of(pipe.target.config) and not head.is_guided and head.meta["steps"] == 3
  assert 0 < head.meta["held_out"]["acceptance"] < 1 and edge.config.drawn == 16
  config, fresh = edge_from_cloud(pipe.target.config, pipe.target.params, 1, jax.random.key(0))
  assert config == edge.config
  assert jax.tree.map(np.shape, fresh) == jax.tree.map(np.shape, edge.params)
  moved = np.abs(np.asarray(fresh["trunk"]["lm_head"]["weight"]) - np.asarray(edge.params["trunk"]["lm_head"]["weight"]))
  assert 0 < moved.max() < 0.1
  kwargs = dict(key=jax.random.key(1), temperature=0.0, top_p=1.0)
  prompts = ["a red fox", "two cats on a mat", "é"]
  plain = trained(prompts, method="ar", **kwargs)
  for method in (methods.EagleChain(gamma=2), methods.Ciar(draft="inter-1", gamma=2, max_run=2, tau=-1.0)):
    out = trained(prompts, method=method, **kwargs)
    np.testing.assert_array_equal(out.tokens, plain.tokens)
    assert out.images.shape == (3, 8, 8, 3)


def test_prompts_of_a_file(tmp_path):
  with pytest.raises(ValueError, match="scenes or a file with prompts, we instead got .*none.txt"):
    sample_prompts.file_prompts(None, tmp_path / "none.txt", 2, 0)


def test_prompts_of_classes(tmp_path):
  """All classes once before any repeats, or the requested ones; the target reads them like other prompts."""
  folder = tiny.classes(tmp_path)
  pipe = load_pipeline(folder / "target", tokenizer=folder / "vq")
  batches = own_samples.prompts_of(pipe, None, [], 3, 0)
  labels = np.concatenate([batches(index)["labels"] for index in range(5)])
  assert [sorted(part) for part in np.split(labels, 3)] == [[0, 1, 2, 3, 4]] * 3
  assert set(own_samples.prompts_of(pipe, None, ["4"], 3, 0)(7)["labels"]) == {4}
  make, params = sampled_target.conditions_of(pipe)
  condition = make(params, batches(0))
  assert isinstance(condition, ClassLabels) and condition.batch_size == 3
  with pytest.raises(ValueError, match="a class from 0 to 4, we instead got 5"):
    own_samples.prompts_of(pipe, None, ["5"], 3, 0)
  with pytest.raises(ValueError, match="either --prompts or --class"):
    own_samples.prompts_of(pipe, "scenes", ["4"], 3, 0)


def test_targets_without_a_text_encoder_are_refused():
  """T5 features, ids where prompts need an encoder, and targets that do not draw discrete images."""
  named = lambda condition, kind=DISCRETE, noun="image": SimpleNamespace(
    name="other", family=SimpleNamespace(condition_type=condition, noun=noun, space=TokenSpace(kind))
  )
  with pytest.raises(ValueError, match="a small text encoder of its own for this, other has none$"):
    sampled_target.conditions_of(named(Caption))
  for what, draws in (({"kind": CONTINUOUS}, "continuous tokens"), ({"noun": "text"}, "texts")):
    with pytest.raises(ValueError, match=f"images of discrete tokens for this, other draws {draws}$"):
      sampled_target.conditions_of(named(ClassLabels, **what))
  with pytest.raises(ValueError, match="draws classes for --class, other reads prompts"):
    sample_prompts.class_prompts(named(Prompt), ["3"], 2, 0)
  with pytest.raises(ValueError, match="other has none: its prompts come from a file"):
    sample_prompts.scene_prompts(named(Prompt), 2, 0)
