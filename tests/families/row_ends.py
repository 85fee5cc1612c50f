"""Exactness of every kind of method on images whose rows end with a token of their own: 4 rows of 2 codes and an end."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import methods
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.sampling import SamplingConfig
from jaxspec.sampling.logit_processing import probabilities
from jaxspec.testing import assert_same_distribution

PROMPTS = ["a red fox", "two cats on a mat", "é"]
SAMPLING = SamplingConfig(cfg_scale=2.0, top_k=4)  # of distributions
# Windows of every kind: drafts of a smaller network, of the target, of a head on its features, of an edge network. The edge
# accepts nothing locally, so that its windows are exact, too.
EXACT = {
  "speculative": methods.Speculative(draft="small", gamma=3),
  "sjd": methods.Sjd(window=3),
  "eagle": methods.Eagle(draft="head", tree_size=4, tree_top_k=2, tree_depth=1),
  "eagle-chain": methods.EagleChain(draft="head", gamma=3),
  "block-head": methods.BlockHead(draft="block", gamma=3),
  "ciar": methods.Ciar(draft="edge", gamma=3, max_run=2, tau=-1.0),
}


def check_greedy(pipe, name: str, codes: int) -> None:
  """Greedy tokens are those of plain decoding: guided, a batch of prompts of different lengths. The end of a row is the id
  ``codes``."""
  kwargs = dict(key=jax.random.key(0), temperature=0.0)
  plain = pipe(PROMPTS, method="ar", **kwargs)
  windows = pipe(PROMPTS, method=EXACT[name], **kwargs)
  np.testing.assert_array_equal(plain.tokens, windows.tokens)
  grid = plain.tokens.reshape(3, 4, 3)
  assert (grid[:, :, 2] == codes).all() and (grid[:, :, :2] < codes).all() and plain.images.shape == (3, 8, 4, 3)
  assert (windows.counters.target_calls < plain.counters.target_calls).all()


def _repeated(prompt: Prompt, rows: int) -> Prompt:
  return Prompt(*(np.repeat(leaf, rows, axis=0) for leaf in prompt))


def joint_across_rows(pipe, codes: int, prompt: Prompt) -> np.ndarray:
  """The distribution ``[codes, codes]`` of the codes on both sides of a row end, with guidance and top-k.

  Args:
    codes: number of codes, which is also the id of a row's end.
    prompt: leaves ``[1, T]``.
  """
  fns, side = SAMPLING.side(pipe.target)
  pairs = codes**2
  first, second = (ids.ravel() for ids in np.meshgrid(np.arange(codes), np.arange(codes), indexing="ij"))
  tokens = np.stack([first, second, np.full(pairs, codes)], axis=1).astype(np.int32)
  with pipe.context():  # products are rounded as in the decode
    output, _ = fns.apply(side.model, Prefixed(_repeated(prompt, pairs), tokens), None, positions=None)
  logits = output.logits[:, prompt.tokens.shape[1] - 1 :]
  p = probabilities(pipe.decoder(sampling=SAMPLING).context.warp()(logits, side.sampling, jnp.arange(4)[None]))
  before = p[np.arange(pairs), 0, first] * p[np.arange(pairs), 1, second]  # of the first row of codes
  assert np.asarray(p[:, 2, codes] == 1).all()
  return np.asarray(before[:, None] * p[:, 3, :codes], np.float64).reshape(codes, codes, codes).sum(0)


def check_distribution(pipe, name: str, prompt: Prompt, joint: np.ndarray) -> None:
  """Chi-square of the codes on both sides of a row end against `joint_across_rows` of the prompt."""
  out = pipe.decoder(EXACT[name], sampling=SAMPLING)(_repeated(prompt, 4096), key=jax.random.key(3), max_len=5)
  assert out.counters.accepted.sum() > 4096  # a row end, and codes
  assert (np.asarray(out.tokens[:, 2]) == len(joint)).all()
  assert_same_distribution(out.tokens[:, np.asarray([1, 3])], joint)
