"""Heads of a tiny random Anole: from its own samples to a bundle that decodes with them."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

from jaxspec import load_pipeline, methods
from jaxspec.io.bundle import read_bundle
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.heads.inter_head import edge_from_cloud
from jaxspec.training.distillation.draft_student import DraftSettings
from jaxspec.training.distillation.drawn_samples import Drawing, draw_samples
from jaxspec.training.distillation.eagle_student import EagleSettings
from jaxspec.training.distillation.inter_head_student import InterHeadSettings
from jaxspec.training.distillation.students import STUDENTS
from jaxspec.training.distillation.training import Training, export, join
from tests.run import tiny_chameleon

PROMPTS = ["a red fox", "two cats on a mat", "é"]


def short(settings, steps):
  loop = dataclasses.replace(settings.loop, num_steps=steps, log_every=1, eval_every=0, checkpoint_every=steps)
  return dataclasses.replace(settings, num_samples=12, num_held_out=4, batch_size=2, loop=loop)


@pytest.mark.slow
def test_samples_heads_and_decodes(tmp_path):
  folder = tiny_chameleon.networks(tmp_path)["anole"]
  pipe = load_pipeline(folder)
  with pytest.raises(ValueError, match="draws all ids of its checkpoint to cut a draft"):
    DraftSettings().check(pipe.target)
  samples = draw_samples(pipe, Drawing(PROMPTS, 12, batch=4), tmp_path / "samples.npz", {})
  assert samples.tokens.shape == (12, 16) and samples.tokens.max() < 16
  assert collections.Counter(samples.prompt_rows.tolist()) == {0: 4, 1: 4, 2: 4}
  for kind, settings in {
    "eagle": short(EagleSettings(), 3),
    "inter-head": short(InterHeadSettings(num_layers=1), 2),
  }.items():
    training = Training(pipe, samples, STUDENTS[kind].make_student(pipe, settings), settings)
    name = training.student.name
    export(training, training.run(tmp_path / name), folder / name, command="train")
    join(pipe, folder, name)
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
  plain = trained(PROMPTS, method="ar", **kwargs)
  # tests/families has every kind of heads of this network.
  out = trained(PROMPTS, method=methods.Ciar(draft="inter-1", gamma=2, max_run=2, tau=-1.0), **kwargs)
  np.testing.assert_array_equal(out.tokens, plain.tokens)
  assert out.images.shape == (3, 8, 8, 3)
