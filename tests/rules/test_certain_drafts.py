"""A drawn draft that is tested as a certain one (q = 1, as in EAGLE's code): the residual decides whether that is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.rules.lossless import commit_leading
from jaxspec.sampling.residual import at
from jaxspec.testing import Tape
from tests.helpers import slow_but

QUARTERS = np.array([counts for counts in np.ndindex(5, 5, 5) if sum(counts) == 4]) / 4
CELLS = (np.arange(12) + 0.5) / 12  # thresholds and residuals are twelfths


def by_ratio(keys, draft, target):
  return jaxspec.lossless((), keys, draft, target)


def as_certain(keys, draft, target):
  """The whole rule of a certain draft: test p(x), residual p without x."""
  certain = jnp.where(jnp.arange(3)[None, None] == draft.tokens[..., None], 0.0, -jnp.inf)
  return jaxspec.lossless((), keys, draft._replace(proposal=certain), target)


def as_both(keys, draft, target):
  """The test p(x) of a certain draft, and the residual [p - q]+ of a drawn one."""
  return commit_leading(keys, draft, target, accept_prob=at(jax.nn.softmax(target[:, :-1]), draft.tokens))


@pytest.mark.parametrize("rule", slow_but([by_ratio, as_certain, as_both], [by_ratio]))
def test_the_distribution_of_a_token(rule):
  """By enumeration over drafts, tests and final draws, for every seventh pair of p and q."""
  p, q = (np.stack(side) for side in zip(*[(p, q) for p in QUARTERS for q in QUARTERS][::7]))
  drafted, tests, finals = (axis.ravel() for axis in np.meshgrid(np.arange(4), CELLS, CELLS, indexing="ij"))
  tape = Tape.of_rule(np.tile(tests, len(p))[:, None], np.tile(finals, len(p)))
  tokens = np.concatenate([np.searchsorted(np.cumsum(row), (np.arange(4) + 0.5) / 4)[drafted] for row in q]).astype(np.int32)
  with np.errstate(divide="ignore"):
    target, proposal = (jnp.asarray(np.log(np.repeat(side, len(tests), axis=0)), jnp.float32)[:, None] for side in (p, q))
  draft = jaxspec.Draft.chain(jnp.asarray(tokens)[:, None], proposal, 1, 0)
  verdict = jax.jit(rule)(tape.keys(), draft, jnp.concatenate([target, target], axis=1))
  accepted = np.asarray(verdict.num_accepted) > 0
  emitted = np.where(accepted, tokens, np.asarray(verdict.next_tokens[:, 0])).reshape(len(p), -1)
  tv = 0.5 * np.abs((emitted[..., None] == np.arange(3)).mean(axis=1) - p).sum(axis=1)
  share = accepted.reshape(len(p), -1).mean(axis=1)
  np.testing.assert_allclose(share, np.minimum(p, q).sum(axis=1) if rule is by_ratio else (p * q).sum(axis=1), atol=1e-6)
  assert tv.max() < 1e-6 if rule is not as_both else tv.max() > 0.1
