"""From prompts to images or texts: loaded networks, their default settings, and one call.

    pipe = load_pipeline("scenes")
    out = pipe(["a red heart", "two cats"], key=jax.random.key(0))
    out.images, out.tokens, out.counters

A `Pipeline` joins a bundle (`jaxspec.io.bundle`), the target's family (`jaxspec.families.family.Family`) and a method
(`jaxspec.methods`). It decodes in one compiled and cached program per method, length and batch size.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxspec.core import rng
from jaxspec.core.types import Key
from jaxspec.families.family import FamilyParts
from jaxspec.methods.method import Method
from jaxspec.models import registry
from jaxspec.run.batches import batch_rows, check_batch, split
from jaxspec.run.callback import Callback, run_with_callback
from jaxspec.run.draft_networks import Drafts
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.run.loaded_networks import LoadedNetworks
from jaxspec.run.run import run
from jaxspec.sampling import AnySampling


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Pipeline(LoadedNetworks):
  """Loaded networks as one callable; made by `jaxspec.load_pipeline`."""

  def job(
    self,
    prompts: Any,
    *,
    method: Method | str | None = None,
    max_len: int | None = None,
    captions: Sequence[str] | None = None,
    sampling: AnySampling | None = None,
    audit: bool = False,
    seed: int | None = None,
    ends: bool = True,
    **overrides: Any,
  ) -> Job:
    """Resolves and checks the networks and settings of a decode.

    Args:
      prompts: as for `encode`.
      method: a `Method`, or a name with the bundle's default options. None is the default method.
      max_len: largest number of tokens of a row; by default a full image, or 64 tokens of text.
      captions: texts of the rows for display.
      sampling: all sampling settings.
      audit: report the exact distribution of every committed token, as ``result.metrics``.
      seed: seed of the row keys.
      ends: whether the family's end token ends a row.
      overrides: single sampling settings, over the bundle's defaults: ``temperature=0.9``.
    Raises:
      PromptError: for a prompt that cannot be encoded.
      OptionError: for a method, an option or a setting that does not fit; both are a ValueError of one line.
    """
    decoder = self.decoder(method, sampling=sampling, audit=audit, **overrides).built()
    encoded, length = self.encode(prompts, captions), self.length(decoder, max_len)
    warnings = [*encoded.warnings, *self.warnings(decoder, encoded.condition, length)]
    return Job(self, decoder, encoded, length, seed, ends, warnings)

  def __call__(
    self,
    prompts: Any,
    *,
    key: Key | int,
    method: Method | str | None = None,
    max_len: int | None = None,
    captions: Sequence[str] | None = None,
    sampling: AnySampling | None = None,
    audit: bool = False,
    batch: int | None = None,
    callback: Callback | None = None,
    **overrides: Any,
  ) -> Generation:
    """Generates one row per prompt.

    Args:
      prompts, method, max_len, captions, sampling, audit, overrides: as for `job`.
      key: one typed key, ``[R]`` row keys, or a seed; consumed. A row depends on its own key and prompt only; row r decodes
        with ``fold_in(key, r)``, like the first samples of ``jaxspec generate --seed``. Keys of other generators are folded
        into threefry keys.
      batch: rows decoded together; by default all of them.
      callback: called with a `jaxspec.run.callback.Committed` after every round. Raising `jaxspec.errors.Cancelled` in it
        ends the decode with the tokens so far. Rounds are then called from Python, with the same tokens.
    Raises:
      PromptError: for a prompt that cannot be encoded.
      OptionError: for a method, an option, a setting or a batch that does not fit.
      OutOfMemory: for a batch that does not fit into memory.
      ValueError: for any other argument; the errors above are of this class too, in one line that names what does not fit.
    """
    given = dict(method=method, max_len=max_len, captions=captions, sampling=sampling, audit=audit)
    job = self.job(prompts, seed=key if isinstance(key, int) else None, **given, **overrides)
    num = job.num_prompts
    rows = num if batch is None else batch_rows(batch, num)
    each = np.arange(num)
    batches = split(job.condition, rng.row_key_data(key, num), each, np.zeros_like(each), rows=rows)
    return run(job, batches) if callback is None else run_with_callback(job, batches, callback)

  def warmup(self, prompts: Any = None, *, batch: int | None = None, **settings: Any) -> float:
    """Compiles all that a later call needs, by one call whose result is dropped.

    Args:
      prompts: those of the later call; by default ``batch`` short ones, or one. Texts are padded to 8, 16, 32, ... tokens,
        and each of these lengths has a program of its own.
      batch: rows decoded together.
      settings: those of the later call that are not traced numbers: ``method``, ``max_len``, ``top_k``, ...
    Returns:
      The seconds that it took.
    Raises:
      ValueError: as a call.
    """
    check_batch(batch)
    start = time.perf_counter()
    given = (batch or 1) * [self.family.example_prompt] if prompts is None else prompts
    _ = self(given, key=0, batch=batch, **settings).outputs
    return time.perf_counter() - start

  def alone(self, draft: str) -> Pipeline:
    """A pipeline with one of the drafts as target, for comparisons.

    Raises:
      ValueError: for an unknown draft, or one that cannot generate alone.
    """
    loaded = self.drafts.loaded(draft)
    family = registry.family_maker(loaded.family_name)(loaded, self.parts or FamilyParts(self.name, {}))
    defaults = dataclasses.replace(self.defaults, method=None, draft=None)
    target = family.network(loaded, draft)
    return dataclasses.replace(
      self, name=f"{self.name}/{draft}", family=family, target=target, drafts=Drafts(family), defaults=defaults
    )
