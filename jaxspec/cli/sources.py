"""Where pictures come from: a bundle with prompts, or converted LlamaGen checkpoints with classes or features."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from jaxspec import checkpoints
from jaxspec.bundle import load_bundle, read_bundle
from jaxspec.checkpoints import Checkpoint
from jaxspec.cli.errors import UserError, check_texts, reading
from jaxspec.cli.features import read_features
from jaxspec.cli.settings import LLAMAGEN_DEFAULTS, Settings, check_lengths, resolve, unread, with_support
from jaxspec.cli.shipped import shipped
from jaxspec.decode.assemble import assemble
from jaxspec.decode.methods import METHODS
from jaxspec.decode.state import SpecParams
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.eagle import EagleConfig
from jaxspec.models.inter_head import InterHeadConfig
from jaxspec.models.interval_features import IntervalFeaturesConfig
from jaxspec.types import Drafter, PyTree, Verifier

DEFAULT_BUNDLE = "emoji64"


@dataclasses.dataclass(frozen=True)
class Source:
  """Loaded networks and what the pictures are conditioned on.

  Attributes:
    condition: the condition pytree of all prompts, numpy leaves ``[prompts, ...]``.
    captions: one text per prompt.
    warnings: what the user should know before looking at the pictures.
  """

  name: str
  target: Checkpoint
  draft: Checkpoint | None
  tokenizer: Checkpoint
  condition: PyTree
  captions: list[str]
  settings: Settings
  warnings: list[str]
  noun: ClassVar[str] = "picture"

  @property
  def num_tokens(self) -> int:
    return self.target.config.num_tokens

  @property
  def draft_guidance(self) -> bool:
    """False for a draft that was trained to need no guidance."""
    return self.draft is None or self.draft.meta.get("guided", True) is not False

  @property
  def interval_features(self) -> IntervalFeaturesConfig | None:
    """What a gated device can tell the cloud besides its tokens."""
    config = None if self.draft is None else self.draft.config
    return config.features if isinstance(config, InterHeadConfig) else None

  @property
  def end_token(self) -> None:
    """Every picture has the same number of tokens."""
    return None

  def assemble(self, settings: Settings, **chosen: Any) -> tuple[SpecParams, Drafter, Verifier]:
    """What `jaxspec.speculate` takes, of these networks; ``chosen`` go over the settings (``method``, ``audit``)."""
    draft, options = self.draft, settings.assembly()
    # A device says how its heads become one law, unless the user does.
    said_by_device = lambda name: getattr(getattr(draft, "config", None), name, None)
    options["combination"] = options["combination"] or said_by_device("combination")
    return assemble(
      self.target.fns,
      self.target.params,
      None if draft is None else draft.fns,
      None if draft is None else draft.params,
      draft_guidance=self.draft_guidance,
      codebook=self.tokenizer.fns.codebook(self.tokenizer.params),
      vocab_size=self.target.config.vocab_size,
      grid=self.target.config.grid,
      num_tokens=self.num_tokens,
      calibration=None if draft is None else draft.meta.get("calibration"),
      interval_features=self.interval_features,
      **({"method": settings.method} | options | chosen),
    )


def default_bundle() -> Path:
  """``JAXSPEC_CHECKPOINT``, else the shipped bundle."""
  if path := os.environ.get("JAXSPEC_CHECKPOINT"):
    return Path(path)
  return shipped(DEFAULT_BUNDLE)


def from_bundle(path: Path, prompts: list[str], chosen: dict[str, Any], *, compare: bool) -> Source:
  """Loads a bundle and encodes prompts.

  Args:
    chosen: the settings the user gave, None where not.
    compare: whether both methods will run.
  """
  check_texts(prompts)
  with reading(path):
    document = read_bundle(path)
    settings = resolve(chosen, document["defaults"])
    drafts = list(document["drafts"])
  if compare and settings.method == "ar":
    raise UserError("Must have a method besides ar to compare it with plain decoding, for example --method speculative")
  if settings.parts.draft_family is None:
    settings = dataclasses.replace(settings, draft=None)
  elif not drafts:
    raise UserError(f"The bundle {path} has no draft: use --method ar")
  elif chosen.get("draft") is None:
    with reading(path):
      settings = dataclasses.replace(settings, draft=_default_draft(path, document, settings))
  with reading(path):
    bundle = load_bundle(path, dtype=settings.dtype, drafts=[] if settings.draft is None else [settings.draft])
    draft = bundle.drafts.get(settings.draft)
    _check_fit(bundle.target, draft, bundle.tokenizer, settings)
    settings = with_support(settings, bundle.target.config.vocab_size)
    _check_text(bundle)
    ids, mask, num_dropped = bundle.encode(prompts)
    condition = jax.device_get(jax.jit(bundle.text.fns.apply)(bundle.text.params, ids, mask))
  warnings = unread(chosen, settings) + _guidance_warnings(draft, settings)
  for number, dropped in enumerate(num_dropped, 1):
    if dropped:
      limit = bundle.text.config.max_tokens
      warnings.append(f"Prompt {number} is too long: its last {dropped} of {limit + dropped} word pieces were cut off")
  name = path.resolve().name
  return Source(name, bundle.target, draft, bundle.tokenizer, condition, prompts, settings, warnings)


def from_llamagen(
  model: Path,
  tokenizer: Path,
  draft_model: Path | None,
  chosen: dict[str, Any],
  *,
  classes: list[int],
  features: Path | None,
  captions: list[str],
  compare: bool,
) -> Source:
  """Loads converted LlamaGen checkpoints; the condition is a list of classes or a file of T5 features."""
  check_texts(captions, "caption")
  with reading(model):
    fields = checkpoints.read_config(model)
    if fields["family"] != "llamagen":
      raise UserError(f"Must have a llamagen checkpoint as --model, {model} holds a {fields['family']}")
    model_type = fields["config"].get("model_type", "c2i")
  if model_type == "c2i" and not classes:
    raise UserError(f"{model} is class-conditional: give --class NUMBER instead of prompts or features")
  if model_type == "t2i" and features is None:
    raise UserError(f"{model} is text-conditional: give --features FILE with T5 features of the prompts")
  if chosen.get("method") is None:
    chosen = chosen | {"method": "ar" if draft_model is None else "speculative"}
  if draft_model is None and METHODS[chosen["method"]].draft_family is not None:
    raise UserError(f"Must have --draft-model DIR for --method {chosen['method']}; ar, sjd and gsd need none")
  if compare and chosen["method"] == "ar":
    raise UserError("Must have a method besides ar to compare: give --draft-model DIR, or --method sjd, which needs none")
  settings = resolve(chosen, LLAMAGEN_DEFAULTS.get(model_type, {}))
  speculative = settings.parts.draft_family is not None
  settings = dataclasses.replace(settings, draft=draft_model.resolve().name if speculative else None)

  target = _load(model, dtype=settings.dtype)
  if classes:
    if wrong := [label for label in classes if not 0 <= label < target.config.num_classes]:
      raise UserError(f"Must have --class from 0 to {target.config.num_classes - 1}, we instead got {wrong[0]}")
    condition = ClassLabels(np.asarray(classes, np.int32))
    captions = captions or [f"class {label}" for label in classes]
  else:
    condition = read_features(features, prefix_len=target.config.prefix_len, width=target.config.caption_dim)
    captions = captions or [f"{features.name} row {row}" for row in range(len(condition.mask))]
  if len(captions) != jax.tree.leaves(condition)[0].shape[0]:
    raise UserError(
      f"Must have as many captions as classes or features, we instead got {len(captions)} for "
      f"{jax.tree.leaves(condition)[0].shape[0]}"
    )
  draft = _load(draft_model, dtype=settings.dtype) if speculative else None
  vq = _load(tokenizer)
  _check_fit(target, draft, vq, settings)
  settings = with_support(settings, target.config.vocab_size)
  warnings = unread(chosen, settings) + _guidance_warnings(draft, settings)
  return Source(model.resolve().name, target, draft, vq, condition, captions, settings, warnings)


def _default_draft(path: Path, document: dict[str, Any], settings: Settings) -> str:
  """The bundle's default draft with its default method, else the first draft of the family the method drafts with."""
  family, names = settings.parts.draft_family, list(document["drafts"])
  if settings.draft is not None and settings.method == document["defaults"].get("method", settings.method):
    return settings.draft
  for name in names:
    if checkpoints.read_config(path / document["drafts"][name])["family"] == family:
      return name
  how = "; docs/ciar.md tells how to train one" if family == "inter_head" else ""
  found = ", ".join(names)
  raise UserError(f"Must have a draft of the family {family} for --method {settings.method}, {path} has {found}{how}")


def _load(path: Path, **kwargs) -> Checkpoint:
  with reading(path):
    return checkpoints.load(path, **kwargs)


def _check_fit(target: Checkpoint, draft: Checkpoint | None, tokenizer: Checkpoint, settings: Settings) -> None:
  """Refuses networks that do not belong together."""
  if not hasattr(tokenizer.fns, "decode"):
    raise UserError(f"Must have an image tokenizer, {tokenizer.path} holds a {tokenizer.family}")
  codes = jax.eval_shape(tokenizer.fns.codebook, tokenizer.params).shape[0]
  if codes < target.config.vocab_size:
    raise UserError(
      f"{target.path} draws from {target.config.vocab_size} tokens but {tokenizer.path} has only {codes} codes"
    )
  check_lengths(settings, target.config.num_tokens)
  if draft is None:
    return
  family = settings.parts.draft_family
  if draft.family != family:
    raise UserError(f"Must have a checkpoint of the family {family} as draft, {draft.path} holds a {draft.family}")
  if family == "eagle":
    fitting = dataclasses.replace(EagleConfig.of(target.config), norm_eps=draft.config.norm_eps)
    for name, ours in dataclasses.asdict(fitting).items():
      if ours != (theirs := getattr(draft.config, name)):
        raise UserError(f"The draft {draft.path} does not fit the target: {name} {theirs} instead of {ours}")
    return
  for name in ("model_type", "vocab_size", "num_tokens", "prefix_len"):
    ours, theirs = getattr(target.config, name), getattr(draft.config, name)
    if ours != theirs:
      raise UserError(f"The draft {draft.path} does not fit the target: {name} {theirs} instead of {ours}")
  width = "num_classes" if target.config.model_type == "c2i" else "caption_dim"
  if getattr(target.config, width) != getattr(draft.config, width):
    raise UserError(f"The draft {draft.path} does not fit the target: it has another {width}")


def _check_text(bundle) -> None:
  text, target = bundle.text.config, bundle.target.config
  if bundle.vocabulary.get_vocab_size() > text.vocab_size:
    raise UserError(f"Corrupt bundle {bundle.path}: its vocabulary is larger than its text encoder")
  if (text.max_tokens, text.caption_dim) != (target.prefix_len, target.caption_dim):
    raise UserError(
      f"Corrupt bundle {bundle.path}: the text encoder gives {text.max_tokens} x {text.caption_dim} features, the "
      f"target takes {target.prefix_len} x {target.caption_dim}"
    )


def _guidance_warnings(draft: Checkpoint | None, settings: Settings) -> list[str]:
  trained_at = None if draft is None else draft.meta.get("distilled_at_cfg")
  if trained_at is None or trained_at == settings.cfg_scale:
    return []
  return [
    f"The draft was trained for --cfg-scale {trained_at:g}: at {settings.cfg_scale:g} fewer of its tokens may be accepted"
  ]
