"""Where texts come from: converted language models and the beginnings they continue."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer

from jaxspec import checkpoints
from jaxspec.checkpoints import Checkpoint
from jaxspec.cli.errors import UserError, check_texts, reading
from jaxspec.cli.settings import Settings, resolve, unread, with_support
from jaxspec.cli.shipped import shipped
from jaxspec.data import language_tokenizer
from jaxspec.decode.assemble import assemble
from jaxspec.decode.state import SpecParams
from jaxspec.models.conditions import Prompt
from jaxspec.models.registry import LANGUAGE_FAMILIES
from jaxspec.types import Drafter, Verifier

SHIPPED_PAIR = "wordnet"
# The other methods read what only pictures have: a codebook, the features of a LlamaGen network.
METHODS_OF_TEXT = ("ar", "speculative", "sqs", "sjd")


@dataclasses.dataclass(frozen=True)
class TextSource:
  """Loaded networks and the texts they continue; what it shares with `jaxspec.cli.sources.Source` means the same.

  Attributes:
    condition: the beginnings, padded on the left, numpy leaves ``[texts, P]``.
    captions: the beginnings as they were given.
    num_tokens: most tokens of a continuation.
  """

  name: str
  target: Checkpoint
  draft: Checkpoint | None
  tokenizer: Tokenizer
  condition: Prompt
  captions: list[str]
  num_tokens: int
  settings: Settings
  warnings: list[str]
  noun: ClassVar[str] = "text"
  draft_guidance: ClassVar[bool] = True

  @property
  def end_token(self) -> tuple[int, ...] | None:
    return self.target.config.end_ids or None

  def assemble(self, settings: Settings, **chosen: Any) -> tuple[SpecParams, Drafter, Verifier]:
    """What `jaxspec.speculate` takes, of these networks; ``chosen`` go over the settings (``method``)."""
    draft = self.draft
    return assemble(
      self.target.fns,
      self.target.params,
      None if draft is None else draft.fns,
      None if draft is None else draft.params,
      vocab_size=self.target.config.vocab_size,
      **({"method": settings.method} | settings.assembly() | chosen),
    )


def shipped_pair() -> tuple[Path, Path]:
  """The target and the draft that come with the package.

  Raises:
    UserError: if this copy has none.
  """
  folder = shipped(SHIPPED_PAIR)
  if not (folder / "target").is_dir():
    raise UserError("Must have --model DIR with --text, a language model as in docs/text.md: no pair comes with this copy")
  return folder / "target", folder / "draft"


def from_checkpoints(
  model: Path,
  draft_model: Path | None,
  texts: list[str],
  chosen: dict[str, Any],
  *,
  max_tokens: int,
  compare: bool,
) -> TextSource:
  """Loads a language model, and the smaller one that drafts, and encodes the texts.

  Args:
    chosen: the settings the user gave, None where not.
    compare: whether plain decoding will run too.
  """
  check_texts(texts, "text")
  settings = _settings(chosen, draft_model, compare)
  target = _load(model, "--model", settings)
  draft = None if settings.draft is None else _load(draft_model, "--draft-model", settings)
  with reading(model):
    tokenizer = language_tokenizer.load_tokenizer(model)
  if tokenizer.get_vocab_size() > target.config.vocab_size:
    raise UserError(f"Corrupt {model}: its tokenizer has more tokens than the network")
  settings = with_support(settings, target.config.vocab_size)
  rows = language_tokenizer.encode(tokenizer, texts)
  if draft is not None:
    _check_fit(target, draft, tokenizer)
  warnings = unread(chosen, settings)
  for network in (target, draft):
    if network is not None:
      warnings += _check_length(network, max(map(len, rows)), max_tokens)
  prompt = language_tokenizer.pad_left(rows)
  return TextSource(model.resolve().name, target, draft, tokenizer, prompt, texts, max_tokens, settings, warnings)


def _settings(chosen: dict[str, Any], draft_model: Path | None, compare: bool) -> Settings:
  if chosen.get("method") is None:
    chosen = chosen | {"method": "ar" if draft_model is None else "speculative"}
  settings = resolve(chosen, {})
  if settings.method not in METHODS_OF_TEXT:
    raise UserError(f"Must have --method {', '.join(METHODS_OF_TEXT)} with --text, we instead got {settings.method}")
  if compare and settings.method == "ar":
    raise UserError("Must have a method besides ar to compare: give --draft-model DIR, or --method sjd, which needs none")
  if settings.parts.draft_family is None:
    return dataclasses.replace(settings, draft=None)
  if draft_model is None:
    raise UserError(f"Must have --draft-model DIR for --method {settings.method}; ar and sjd need none")
  return dataclasses.replace(settings, draft=draft_model.resolve().name)


def _load(path: Path, option: str, settings: Settings) -> Checkpoint:
  with reading(path):
    family = checkpoints.read_config(path)["family"]
    if family not in LANGUAGE_FAMILIES:
      raise UserError(f"Must have a language model ({', '.join(LANGUAGE_FAMILIES)}) as {option}, {path} holds a {family}")
    return checkpoints.load(path, dtype=settings.dtype)


def _check_fit(target: Checkpoint, draft: Checkpoint, tokenizer: Tokenizer) -> None:
  """Refuses a draft whose tokens mean something else."""
  ours, theirs = target.config.vocab_size, draft.config.vocab_size
  if ours != theirs:
    raise UserError(f"The draft {draft.path} does not fit the target: {theirs} tokens instead of {ours}")
  if (draft.path / language_tokenizer.TOKENIZER_FILE).is_file():
    with reading(draft.path):
      if language_tokenizer.load_tokenizer(draft.path).get_vocab() != tokenizer.get_vocab():
        raise UserError(f"The draft {draft.path} does not fit the target: its tokenizer has other tokens")


def _check_length(network: Checkpoint, prompt_len: int, max_tokens: int) -> list[str]:
  """Warnings about texts longer than the network is meant for; learned positions end there."""
  longest, total = network.config.max_positions, prompt_len + max_tokens
  if total <= longest:
    return []
  size = f"{prompt_len} tokens of text and --max-tokens {max_tokens}"
  if network.family == "gpt_neo":
    raise UserError(f"Must have at most {longest} tokens for {network.path}, we instead got {size}")
  if network.config.rope.scaling == "dynamic":
    return []
  return [f"{network.path} was trained on texts of up to {longest} tokens, this one may get {size}"]
