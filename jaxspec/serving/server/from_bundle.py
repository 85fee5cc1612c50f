"""A server of a bundle of networks.

    with jaxspec.serve("wordnet", methods=["sqs"], max_streams=16, max_rows=8) as server:
      cloud = jaxspec.connect(server.address)

Only the target is loaded; drafts stay with the edges.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxspec.core import mesh as meshes
from jaxspec.core.types import ModelFns, PyTree
from jaxspec.families.family import Family
from jaxspec.families.token_images import CaptionFamily, LabelFamily
from jaxspec.io import checkpoints
from jaxspec.methods.method import DISCRETE, Method
from jaxspec.models.conditions import Caption, ClassLabels, Prompt
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.sampling import SamplingConfig
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.stream_condition import ReadCondition
from jaxspec.serving.wire.handshake import Condition
from jaxspec.serving.wire.method_codecs import codec_of

if TYPE_CHECKING:
  from jaxspec.serving.server.bearer_tokens import TokenFile
  from jaxspec.serving.server.prometheus import Metrics
  from jaxspec.serving.server.server import Listen, Server

Served = Method | str | tuple[str, Mapping[str, Any]]  # a name has the options of the bundle; a mapping overrides some
METHODS = ("sqs", "ar")
_LONGEST_TEXT, _LONGEST_PROMPT = 1024, 256  # tokens, for networks that can read more
_TEXT_BYTES, _TOKEN_BYTES = 1000, 8  # least limit of a text; bytes for each token of the longest prompt


def serve(
  bundle: str | os.PathLike | Pipeline | None = None,
  *,
  listen: str | Listen = "127.0.0.1:0",
  methods: Sequence[Served] = METHODS,
  tokens: TokenFile | str | os.PathLike | None = None,
  auth_every_call: bool = False,
  max_decode_ms: float = 100.0,
  forget_s: float = 600.0,
  metrics: Metrics | None = None,
  dtype: str = "float32",
  matmul_precision: str | None = None,
  mesh: str | Mesh | None = None,
  parts: Mapping[str, Any] = {},
  **options: Any,
) -> Server:
  """A server of a bundle's target, as a context that runs it in a thread.

  Args:
    bundle: as in `jaxspec.load_pipeline`, or a pipeline.
    listen: ``HOST:PORT``, port 0 for a free one; or address and certificates.
    methods: methods of the edges, see `engine_of`.
    tokens: bearer tokens that may open streams, or their file; None disables authentication.
    auth_every_call: require the token in every call, not only in handshakes.
    max_decode_ms: most milliseconds to decode the longest frame of a method on this machine.
    forget_s: seconds without a call after which a stream is removed.
    metrics: counters of the server; by default its own.
    dtype, matmul_precision, mesh: as in `jaxspec.load_pipeline`; a pipeline has its own. A mesh has devices of this process.
    parts: further arguments of `jaxspec.load_pipeline` for a converted network: ``tokenizer``, ``text``.
    options: of `engine_of`.
  Returns:
    A `jaxspec.serving.server.server.Server`; ``address`` is valid in its ``with`` block.
  Raises:
    ImportError: without the extra ``serve``.
    ValueError: in one line, for arguments that do not fit.
    OSError: in one line, if the port cannot be opened.
  """
  from jaxspec.serving.server.bearer_tokens import TokenFile
  from jaxspec.serving.server.dispatcher import Limits
  from jaxspec.serving.server.server import Listen, Server

  listen = Listen(listen) if isinstance(listen, str) else listen
  tokens = TokenFile(tokens) if isinstance(tokens, (str, os.PathLike)) else tokens
  listen.check()
  if not isinstance(bundle, Pipeline):
    kwargs = dict(dtype=dtype, matmul_precision=matmul_precision, mesh=mesh, **parts)
    load = functools.partial(load_pipeline, bundle, **kwargs)
    check_sizes(load(target_weights=False), methods, **options)
    bundle = load()
  engine = engine_of(bundle, methods, max_decode_ms=max_decode_ms, forget_s=forget_s, **options)
  limits = Limits(engine.max_known, forget_s=forget_s)
  return Server(engine, listen, tokens=tokens, auth_every_call=auth_every_call, limits=limits, metrics=metrics)


def engine_of(
  pipeline: Pipeline,
  methods: Sequence[Served] = METHODS,
  *,
  sampling: SamplingConfig | None = None,
  max_len: int | None = None,
  max_prompt: int | None = None,
  max_decode_ms: float = math.inf,
  **options: Any,
) -> Engine:
  """An engine of a pipeline's target.

  Args:
    methods: `Sqs`, `Ciar` or `Plain`; a name has the bundle's options, a name and options override some, as in
      `Pipeline.method`.
    sampling: the compiled settings: guidance, top-k and whether there is a top-p; by default those of the bundle. Each
      stream has its own temperature, scale and top-p.
    max_len: most tokens of a row; by default a whole image, or what the network was trained on.
    max_prompt: most tokens of a prompt of text.
    max_decode_ms: see `serve`.
    options: of `jaxspec.serving.server.engine.EngineSettings`.
  Raises:
    ValueError: in one line, for arguments that do not fit.
  """
  family, parts = pipeline.family, _parts(pipeline, methods, sampling, max_len, max_prompt)
  pipeline.check_weights()
  for profile in parts.profiles:
    profile.check_decode_time(parts.max_len, max_decode_ms / 1000)
  params = parts.params if pipeline.mesh is None else _on_mesh(parts.params, pipeline.mesh)
  defaults: dict[str, Any] = dict(
    digest=checkpoints.digest(family.target.folder), end_ids=family.end_token or (), max_len=parts.max_len,
    matmul_precision=pipeline.matmul_precision, max_condition=_text_bytes(parts.example) if family.sends_text else None,
    least_prompt=family.fewest_slots,
  )  # fmt: skip
  settings = EngineSettings(**(defaults | options))
  return Engine(
    params, parts.model, parts.profiles, example=parts.example, settings=settings, read_condition=parts.read,
    mesh=pipeline.mesh,
  )  # fmt: skip


def check_sizes(
  pipeline: Pipeline,
  methods: Sequence[Served] = METHODS,
  *,
  sampling: SamplingConfig | None = None,
  max_len: int | None = None,
  max_prompt: int | None = None,
  **options: Any,
) -> None:
  """Checks arguments of `engine_of` without the weights of the target.

  Raises:
    ValueError: in one line, for arguments that do not fit.
  """
  parts, mesh = _parts(pipeline, methods, sampling, max_len, max_prompt), pipeline.mesh
  settings: dict[str, Any] = options | dict(max_len=parts.max_len)
  sizes = EngineSettings(**settings).sizes(mesh)
  Programs(parts.params, parts.model, tuple(parts.profiles), sizes, parts.example, mesh).check_memory()


class _Parts(NamedTuple):
  """The parts of an engine, besides its sizes."""

  params: ModelParams
  model: ModelFns
  profiles: list[ServedProfile]
  example: PyTree
  read: ReadCondition | None
  max_len: int


def _parts(
  pipeline: Pipeline,
  methods: Sequence[Served],
  sampling: SamplingConfig | None,
  max_len: int | None,
  max_prompt: int | None,
) -> _Parts:
  if isinstance(methods, (str, Method)):
    raise ValueError(f"Must have a list of methods, we instead got {methods!r}")
  family, target = pipeline.family, pipeline.target
  if family.space.kind != DISCRETE or family.space.vocab_size is None:
    raise ValueError(f"Must have a network of discrete tokens to serve it, {pipeline.name} draws {family.space.noun}")
  settings, vocab = pipeline.sampling() if sampling is None else sampling, family.space.vocab_size
  assert isinstance(settings, SamplingConfig), "networks of discrete tokens have these settings"
  warp = dataclasses.replace(settings.warp(), legal=family.space.legal)
  profiles = [ServedProfile(codec_of(_method(pipeline, each), vocab), warp) for each in methods]
  example, read = _conditions(family, max_prompt)
  max_len = _length(family, max_len, example)
  family.check_length(target, example, max_len)
  model, params = settings.side(target)
  return _Parts(params, model, profiles, example, read, max_len)


def _on_mesh(params: ModelParams, mesh: Mesh) -> ModelParams:
  """Parameters on the devices of a mesh. Every device has the whole token table and output head, so a step exchanges only
  two sums a block."""
  specs = meshes.param_specs(params, mesh.shape[meshes.MODEL], vocab=False)
  return meshes.place(params, mesh, specs if mesh.shape[meshes.MODEL] > 1 else PartitionSpec())


def _text_bytes(example: PyTree) -> int:
  """Bytes of the longest text, where ``example`` is the largest condition."""
  return max(_TEXT_BYTES, _TOKEN_BYTES * (example.tokens.shape[1] if isinstance(example, Prompt) else 0))


def _method(pipeline: Pipeline, served: Served) -> Method:
  """A method without its draft network."""
  name, options = served if isinstance(served, tuple) else (served, {})
  method = pipeline.without_draft(name, **options)
  if getattr(method, "inject", "none") != "none":
    raise ValueError("Must have a method without interval features to serve it: streams that send them cannot be resumed")
  return method


def _length(family: Family, max_len: int | None, example: PyTree) -> int:
  if (fixed := max_len or family.space.num_tokens) is not None:
    return fixed
  longest, prompt = family.target.config.max_positions, example.tokens.shape[1]
  if prompt >= longest:
    raise ValueError(f"Must have max_len with a max_prompt of {prompt}, the network is made for {longest} tokens in all")
  return min(_LONGEST_TEXT, longest - prompt)


def _conditions(family: Family, max_prompt: int | None) -> tuple[PyTree, ReadCondition | None]:
  """The largest condition, and a reader of conditions for families without a default one."""
  config = family.target.config
  read = (lambda sent: _encoded(family, sent)) if family.sends_text else None
  if family.condition_type is Prompt:
    size = min(_LONGEST_PROMPT, config.max_positions // 2) if max_prompt is None else max_prompt
    if size < (least := family.fewest_slots):
      raise ValueError(f"Must have max_prompt of at least {least} for {family.target.path}, we instead got {size}")
    return Prompt(*(np.broadcast_to(np.ones((), dtype), (1, size)) for dtype in (np.int32, bool))), read
  if max_prompt is not None:
    raise ValueError(f"Must have max_prompt with networks that read prompts as text, we instead got {family.target.path}")
  if isinstance(family, LabelFamily):
    return ClassLabels(np.full(1, config.num_classes - 1, np.int32)), None
  if isinstance(family, CaptionFamily):
    sizes = (1, config.prefix_len)
    example = Caption(np.zeros((*sizes, config.caption_dim), np.float32), np.ones(sizes, bool))
    return example, read
  raise ValueError(f"Must have a network of texts, classes or captions to serve it, we instead got {family.target.path}")


def _encoded(family: Family, sent: Condition) -> PyTree:
  if not isinstance(sent, str):
    found = "a class label" if isinstance(sent, int) else "its ids"
    raise ValueError(f"Must have the text of a prompt, we instead got {found}")
  return family.encode([sent]).condition
