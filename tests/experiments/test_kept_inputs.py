"""Steps on a part of an image: the part, and the ordinary loss for the full image."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.train.kept_inputs import kept_inputs
from experiments.train.scene_target import SceneRun, captions_of, init_params, loss_fn
from jaxspec.evaluation.scenes.world import GRID, Object, Scene
from jaxspec.models.conditions import Prefixed
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.training.common_losses import token_cross_entropy

LAST = GRID * GRID - 1


def _forward(run, params, batch, tokens):
  """Teacher-forced output at the positions that predict all tokens of an image."""
  output, _ = llamagen_fns(run.model).apply(params["target"], Prefixed(captions_of(run, params, batch), tokens[:, :-1]))
  return jax.tree.map(lambda x: x[:, run.model.prefix_len - 1 :], output)


def at(*places):
  return Scene("white", tuple(Object("cat", "noto", None, "small", row, column) for row, column in places))


@pytest.mark.parametrize("seed", range(4))
def test_objects_come_first(seed):
  """In random order, with the token before each of their rows; the rest is random."""
  scene, generator = at((2, 5), (8, 0)), np.random.default_rng(seed)
  first = {row * GRID + column for row in (2, 3, 4) for column in (4, 5, 6, 7)}
  second = {row * GRID + column for row in (8, 9, 10) for column in (-1, 0, 1, 2)}
  for num, inside in ((12, [first, second]), (24, [first | second])):
    assert set(kept_inputs(scene, num, generator).tolist()) in inside
  found = [kept_inputs(scene, 48, generator) for _ in range(2)]
  for one in found:
    assert one.dtype == np.int32 and (np.diff(one) > 0).all() and 0 <= one[0] and one[-1] < LAST
    assert first | second <= set(one.tolist())
  assert set(found[0].tolist()) != set(found[1].tolist())


def test_edges():
  """At the first and last tokens, which have no neighbour on one side."""
  found = kept_inputs(at((0, 0), (9, 9)), 24, np.random.default_rng(0))
  assert found[0] == 0 and found[-1] == LAST - 1
  assert kept_inputs(at((0, 0)), LAST, np.random.default_rng(0)).tolist() == list(range(LAST))


@pytest.mark.slow
def test_whole_images_have_the_ordinary_loss():
  """Tokens keep their positions: with all of them, the loss equals plain teacher forcing; with a part, it differs."""
  run = SceneRun()
  model = dataclasses.replace(run.model, num_layers=1, dim=16, num_heads=2, vocab_size=16)
  run = dataclasses.replace(run, model=model, text=dataclasses.replace(run.text, num_layers=1))
  params = init_params(run, None)
  generator = np.random.default_rng(0)
  # The head starts at zero: every token would be equally likely.
  params["target"]["output"]["weight"] = jax.random.normal(jax.random.key(1), (16, 16))
  tokens = generator.integers(0, 16, (3, LAST + 1)).astype(np.int32)
  batch = {
    "ids": generator.integers(2, 200, (3, 16)).astype(np.int32),
    "mask": np.arange(16) >= np.array([[3], [0], [10]]),
    "drop": np.array([False, True, False]),
  }

  def nats(kept):
    kept = np.broadcast_to(kept, (3, len(kept)))
    inputs, after = (np.take_along_axis(tokens, places, axis=1) for places in (kept, kept + 1))
    targets = np.concatenate([tokens[:, :1], after], axis=1)
    loss, (figures, _) = loss_fn(run, None, params, (), batch | {"kept": kept, "inputs": inputs, "targets": targets}, None)
    assert float(loss) == pytest.approx(float(figures["nats_per_image"]) / (LAST + 1), rel=1e-6)
    return float(figures["nats_per_image"])

  plain = token_cross_entropy(_forward(run, params, batch, tokens).logits, tokens)
  assert nats(np.arange(LAST)) == pytest.approx(float(plain) * (LAST + 1), rel=1e-5)
  assert nats(np.arange(7)) < nats(np.arange(30))  # both are sums of their predictions
  assert nats(np.arange(0, LAST, 3)) != pytest.approx(nats(np.arange(1, LAST, 3)), rel=1e-4)


@pytest.mark.parametrize("kept", [-1, LAST + 1])
def test_more_tokens_than_an_image_has(kept):
  with pytest.raises(ValueError, match=f"kept of 0 to {LAST}, we instead got {kept}"):
    SceneRun(kept=kept)
