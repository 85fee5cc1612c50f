"""Published networks by name: their shapes, their companion networks, and their published sampling."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.core.types import PyTree
from jaxspec.io import checkpoints
from jaxspec.io.bundle import Bundle, Defaults, read_bundle
from jaxspec.io.model_folders import model_folder, network_name, released_config
from jaxspec.models import registry
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.conditions import Caption, ClassLabels, OrderedLabels, Prompt, padded_length
from jaxspec.models.dit.dit import DiTConfig
from jaxspec.models.janus import JanusConfig
from jaxspec.models.language.emu3 import Emu3Config
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.image_language import ImageLanguageConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.mar.mar import MARConfig
from jaxspec.models.tokenizers.emu3_vq import Emu3VQConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from jaxspec.models.trunk import trunk_of
from jaxspec.models.var.var import VARConfig
from jaxspec.planning.sizes import Sized, sized


@dataclasses.dataclass(frozen=True)
class TextEncoder:
  """A network that runs once per prompt, known by its number of parameters."""

  name: str
  parameters: int


# T5 1.1 XL: 32,128 x 2,048 embeddings and 24 blocks of width 2,048 with an MLP of 3 x 2,048 x 5,120.
T5_XL = TextEncoder("flan-t5-xl encoder", 1_223_527_424)
_VQ16 = LlamaGenVQConfig.named("VQ-16")
# Chameleon's tokenizer has these levels, and attention in the middle only: 5 million parameters fewer than this.
_CHAMELEON_VQ = LlamaGenVQConfig(codebook_size=8192, codebook_dim=256)
_ANOLE_PREFIX = 66  # a prompt of 64 tokens
_JANUS_PREFIX = 71  # the same, in a conversation
_EMU3_PREFIX = 128  # slots of prompts and of the negative prompt, which has about 60 tokens


@dataclasses.dataclass(frozen=True)
class Model:
  """A generating network, without weights.

  Attributes:
    name: name in this project.
    family: its family in `jaxspec.models.registry`.
    config: its config there.
    num_tokens: tokens of a row.
    prefix: positions of the condition before the tokens.
    guidance: the published scale of classifier-free guidance; 1 is none.
    logits: computed rows of the output matrix, if not all.
    tokenizer: config of the image tokenizer; None for text.
    text: encoder of prompts, if it is a network.
    draft: the published draft network or that of its bundle, as for `find_model`; None: the first layers of the network
      itself.
    defaults: settings of its bundle.
  """

  name: str
  family: str
  config: Any
  num_tokens: int
  prefix: int = 1
  guidance: float = 1.0
  logits: int | None = None
  tokenizer: Any = None
  text: TextEncoder | None = None
  draft: str | None = None
  defaults: Defaults = dataclasses.field(default=Defaults(), hash=False)

  @property
  def vocab_size(self) -> int | None:
    """Size of the vocabulary; None for continuous tokens."""
    return self.logits or getattr(self.config, "vocab_size", None)

  @property
  def grid(self) -> tuple[int, int] | None:
    """Rows and columns of the tokens of an image, from the network's family; None for text."""
    found = getattr(self.config, "grid", None)
    return (found, found) if isinstance(found, int) else found

  @property
  def side(self) -> int | None:
    """Pixels of a side of the image; None for text, and for a network without an autoencoder."""
    return None if self.tokenizer is None or self.grid is None else self.grid[0] * self.tokenizer.factor

  def sized(self, dtype: str) -> Sized:
    """The network as shapes in a dtype."""
    return sized(self.family, self.config, self.name, dtype=dtype)

  def condition_shapes(self, batch: int) -> PyTree:
    """Shapes of a condition of ``batch`` rows."""
    config, kind = self.config, getattr(self.config, "model_type", None)
    of = lambda dtype, *shape: jnp.zeros((batch, *shape), dtype)
    if isinstance(config, MARConfig):
      return jax.eval_shape(lambda: OrderedLabels(of(jnp.int32), of(jnp.int32, self.num_tokens)))
    if self.vocab_size is None or kind == "c2i":
      return jax.eval_shape(lambda: ClassLabels(of(jnp.int32)))
    if kind == "t2i":
      shape = (config.prefix_len, config.caption_dim)
      return jax.eval_shape(lambda: Caption(of(jnp.float32, *shape), of(jnp.bool_, shape[0])))
    return jax.eval_shape(lambda: Prompt(of(jnp.int32, self.prefix), of(jnp.bool_, self.prefix)))

  def with_tokens(self, num_tokens: int) -> Model:
    """The same network for rows of another length.

    Raises:
      ValueError: if the config does not allow it.
    """
    if num_tokens < 1:
      raise ValueError(f"Must have at least 1 token in a row, we instead got {num_tokens}")
    config = self.config
    most = getattr(config, "max_positions", None)
    if most is not None and self.prefix + num_tokens > most:
      raise ValueError(
        f"Must have at most {most - self.prefix} tokens after {self.prefix} with {self.name}, we instead got {num_tokens}"
      )
    if hasattr(config, "num_tokens"):
      config = dataclasses.replace(config, num_tokens=num_tokens)
    return dataclasses.replace(self, config=config, num_tokens=num_tokens)


def _llamagen(name: str, size: str, num_tokens: int = 256, *, text: bool = False) -> Model:
  """FoundationVision/LlamaGen: guidance 4 for classes, 7.5 for text."""
  kind = dict(model_type="t2i") if text else {}
  config = LlamaGenConfig.named(size, num_tokens=num_tokens, **kind)
  guidance, encoder = (7.5, T5_XL) if text else (4.0, None)
  return Model(name, "llamagen", config, num_tokens, config.prefix_len, guidance, tokenizer=_VQ16, text=encoder)


def _image_language(name: str, config: ImageLanguageConfig, prefix: int, tokenizer: Any, marks: int = 0) -> Model:
  """Networks that draw images in a vocabulary of texts: only the output rows of image tokens are computed.

  Args:
    marks: tokens that the published decoders draw besides an image: its sizes and the markers around it.
  """
  fields = trunk_of(config).head_fields(config)
  num_tokens, logits = fields["num_tokens"] + marks, fields["vocab_size"]
  family = registry.family_name(config)
  return Model(name, family, config, num_tokens, prefix, 3.0, logits=logits, tokenizer=tokenizer)


def _chameleon(name: str, config: ChameleonConfig, prefix: int, marks: int = 0) -> Model:
  """Anole and Lumina-mGPT."""
  return _image_language(name, config, prefix, _CHAMELEON_VQ, marks)


def _emu3(name: str, config: Emu3Config) -> Model:
  """Emu3-Gen; the published decoder also draws the ends of the frame, of the image and of the text."""
  prefix = padded_length(max(_EMU3_PREFIX, len(config.prompt_ids(config.null_text))))
  return _image_language(name, config, prefix, Emu3VQConfig(), marks=3)


def _lumina(side: int) -> Model:
  """Lumina-mGPT for square images; every row of codes ends with a marker."""
  config = ChameleonConfig(layout="lumina", rows=side // 16, columns=side // 16)
  return _chameleon(f"lumina-7b-{side}", config, 49, marks=5)


def _janus(name: str, config: JanusConfig, draft: str | None = None) -> Model:
  """deepseek-ai/Janus, generation_inference.py: guidance 5."""
  num_tokens = config.rows * config.columns
  return Model(name, "janus", config, num_tokens, _JANUS_PREFIX, 5.0, tokenizer=_VQ16, draft=draft)


def _mar(name: str, size: str, guidance: float, draft: str | None = "mar-b") -> Model:
  """LTH14/mar with its KL-16 autoencoder."""
  config = MARConfig.named(size)
  return Model(name, "mar", config, config.num_tokens, 1, guidance, tokenizer=KLVAEConfig(), draft=draft)


def _gpt_neo(name: str, size: str, draft: str | None = "gpt-neo-125m") -> Model:
  """EleutherAI's networks, for prompts of 64 tokens and continuations of 256."""
  return Model(name, "gpt_neo", GPTNeoConfig.named(size), 256, 64, draft=draft)


_FOUND = (
  _llamagen("llamagen-b", "GPT-B"),
  _llamagen("llamagen-l", "GPT-L"),
  _llamagen("llamagen-xl", "GPT-XL", 576),
  _llamagen("llamagen-xxl", "GPT-XXL", 576),
  _llamagen("llamagen-3b", "GPT-3B", 576),
  _llamagen("llamagen-7b", "GPT-7B", 1024),
  _llamagen("llamagen-b-t2i", "GPT-B", text=True),
  _llamagen("llamagen-l-t2i", "GPT-L", text=True),
  _llamagen("llamagen-xl-t2i", "GPT-XL", text=True),
  _llamagen("llamagen-xl-t2i-512", "GPT-XL", 1024, text=True),
  _llamagen("llamagen-xxl-t2i-512", "GPT-XXL", 1024, text=True),
  _llamagen("llamagen-3b-t2i-512", "GPT-3B", 1024, text=True),
  _llamagen("llamagen-7b-t2i-512", "GPT-7B", 1024, text=True),
  _chameleon("anole-7b", ChameleonConfig(), _ANOLE_PREFIX),
  _lumina(512),
  _lumina(768),
  _lumina(1024),
  _emu3("emu3-8b", Emu3Config()),
  _janus("janus-pro-1b", JanusConfig.named("1B")),
  _janus("janus-pro-7b", JanusConfig.named("7B"), "janus-pro-1b"),
  _mar("mar-b", "MAR-B", 2.9, None),
  _mar("mar-l", "MAR-L", 3.0),
  _mar("mar-h", "MAR-H", 3.2),
  _gpt_neo("gpt-neo-125m", "125M", None),
  _gpt_neo("gpt-neo-1.3b", "1.3B"),
  _gpt_neo("gpt-neo-2.7b", "2.7B"),
)

MODELS: dict[str, Model] = {model.name: model for model in _FOUND}


# Tokenizers of image families, for folders that do not name one.
_TOKENIZERS = {"llamagen": _VQ16, "mar": KLVAEConfig(), "causal_tokens": KLVAEConfig()}


def find_model(name: str) -> Model:
  """A published network by name, or that of a folder by its config: of a bundle the target, with its default settings.

  Weights are not read.

  Raises:
    ValueError: for an unknown name, a damaged folder, or a network that does not generate alone.
  """
  if name in MODELS:
    return MODELS[name]
  if (config := released_config(name)) is not None:
    return _model_of(network_name(name), registry.family_name(config), config)
  path = model_folder(name)
  if not path.is_dir():
    close = [known for known in MODELS if known.startswith(name.lower())] or difflib.get_close_matches(name, MODELS)
    hint = f"did you mean {' or '.join(close[:3])}?" if close else "jaxspec plan --list shows the models"
    raise ValueError(f"Must have a published model or a checkpoint folder, we instead got {name!r}: {hint}")
  bundle = read_bundle(path)
  document = checkpoints.read_config(model_folder(bundle.target_folder()))
  family = document["family"]
  model = _model_of(bundle.name, family, registry.make_config(family, document["config"]))
  return dataclasses.replace(model, defaults=bundle.defaults, draft=_draft_of(bundle, family))


def _draft_of(bundle: Bundle, family: str) -> str | None:
  """The folder of a bundle's first draft with the target's family, its default draft before the others."""
  for name in sorted(bundle.drafts, key=lambda name: name != bundle.defaults.draft):
    folder = model_folder(bundle.folder(bundle.drafts[name]))
    if checkpoints.read_config(folder)["family"] == family:
      return str(folder)
  return None


def _model_of(name: str, family: str, config: Any) -> Model:
  """The network of a config.

  Raises:
    ValueError: for a network that does not generate alone, or not one token after the other.
  """
  if family in registry.FAMILIES and family not in registry.generating():
    raise ValueError(f"Must have a network that generates ({', '.join(registry.generating())}), {name} holds a {family}")
  if isinstance(config, (VARConfig, DiTConfig)):
    whole = "scales" if isinstance(config, VARConfig) else "noisy images"
    raise ValueError(f"Must have a network that draws one token after the other, {name} draws whole {whole} ({family})")
  if isinstance(config, ChameleonConfig):
    return _chameleon(name, config, _ANOLE_PREFIX)
  if isinstance(config, Emu3Config):
    return _emu3(name, config)
  if isinstance(config, JanusConfig):
    return _janus(name, config)
  is_text = hasattr(config, "max_positions")
  prefix = min(64, config.max_positions // 2) if is_text else getattr(config, "prefix_len", 1)
  num_tokens = min(256, config.max_positions - prefix) if is_text else config.num_tokens
  return Model(name, family, config, num_tokens, prefix, tokenizer=_TOKENIZERS.get(family))
