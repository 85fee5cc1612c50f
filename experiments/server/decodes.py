"""Decodes of shipped networks over any cloud, one sequence at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.experiment import Lab
from experiments.engine.rows import Row
from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.serving.edge import edge_stream, link_times
from jaxspec.serving.server.engine import Engine
from jaxspec.serving.server.from_bundle import engine_of
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.method_codecs import codec_of
from jaxspec.serving.wire.profiles import find_profile
from jaxspec.serving.wire.traffic import Traffic

_SHARED = ("coding", "sparsifier", "support", "ell", "max_drafts", "gamma", "verify", "bonus")  # options that both ends have


@dataclasses.dataclass(frozen=True)
class Case:
  """What is decoded.

  Attributes:
    bundle: of the networks.
    row: method, options and sampling.
    prompts: sequence i continues prompt i.
    tokens: of every sequence; no token ends one.
    max_prompt: most tokens of a prompt of text; None where prompts are no texts that the target reads.
  """

  bundle: str
  row: Row
  prompts: tuple[str, ...]
  tokens: int
  max_prompt: int | None = None

  @property
  def profile(self) -> str:
    """What ``jaxspec serve --profile`` calls the method."""
    options = ",".join(f"{name}={value}" for name, value in self.row.options if name in _SHARED)
    return f"{self.row.method}:{options}" if options else self.row.method


class Edge:
  """The edge of a case."""

  def __init__(self, case: Case, lab: Lab):
    self.case, self.pipeline = case, lab.pipeline(case.bundle)
    self._bench = Bench(self.pipeline, case.prompts, lab.decodes, batch=1, ends=False)
    self._batches = self._bench.batches(case.row, 1)
    self.decoder = self._bench.decoder(case.row)
    self.codec = codec_of(self.decoder.method, self.pipeline.family.space.vocab_size)

  def engine(self, **sizes: Any) -> Engine:
    """An engine for this case alone."""
    case, sampling = self.case, self.decoder.sampling
    with self.pipeline.context():
      methods = [self.decoder.method]
      return engine_of(self.pipeline, methods, sampling=sampling, max_len=case.tokens, max_prompt=case.max_prompt, **sizes)

  def run(self, index: int, cloud: Cloud, **options: Any) -> tuple[np.ndarray, Traffic]:
    """Decodes a sequence.

    Args:
      index: of the prompt.
      options: of `jaxspec.serving.edge.edge_stream.Edge.run`: ``journal``, ``observer`` and others.
    Returns:
      Its tokens ``[N]``, and the traffic of frames.
    """
    sampling, parts = self.decoder.sampling, self.decoder.parts
    settings = {name: getattr(sampling, name) for name in ("top_p", "cfg_scale")}
    profile = find_profile(cloud.description, self.codec, top_k=sampling.top_k, **settings).id
    sizes = dict(max_len=self.case.tokens, profile=profile, target_prefix=parts.target_prefix)
    sizes |= dict(pipeline=getattr(self.decoder.method, "pipeline", 1), table_of=link_times.table_of(self.decoder.method))
    text = self.case.prompts[index] if self.pipeline.family.sends_text else None
    with self.pipeline.context():
      edge = edge_stream.Edge(
        parts.params.draft, parts.drafter, self.codec, temperature=sampling.temperature, **sizes, **settings
      )
      found, traffic = edge.run(*self._row(index), cloud, caption=text, **options)
    return np.asarray(found.tokens[0]), traffic

  def fused(self, index: int) -> DecodeResult:
    """The same sequence by one compiled program in this process."""
    condition, key = self._row(index)
    return self.decoder(condition, key=key, max_len=self.case.tokens)

  def _row(self, index: int) -> tuple[Any, jax.Array]:
    return self._batches.condition[index], rng.of_key_data(self._batches.key_data[index])
