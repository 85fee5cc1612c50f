"""Texts: prompts of different lengths, continuations, drafts of other families, and texts that are too long."""

import dataclasses

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models

from jaxspec import methods
from jaxspec.core.network import Network
from jaxspec.families.family import FamilyParts
from jaxspec.families.texts import make_family
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.methods.method import SAME_FAMILY
from jaxspec.models import registry
from jaxspec.models.conditions import Prompt
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.nn.rope_text import Rope
from jaxspec.models.registry import FamilySpec
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from tests.run import tiny

_TABLE, _OTHER = ({"weight": np.full((len(tiny.WORDS), 16), value)} for value in (1.0, 2.0))


@dataclasses.dataclass(frozen=True)
class OwnConfig:
  width: int = 3


def make(config, folder, **params):
  return make_family(tiny.checkpoint(config, folder, params), FamilyParts(folder, {}))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
  folder = tmp_path_factory.mktemp("texts")
  for name in ("target", "draft"):
    (folder / name).mkdir()
    tiny.byte_tokenizer().save(str(folder / name / TOKENIZER_FILE))
  return folder


@pytest.fixture(scope="module")
def family(texts):
  return make(tiny.NEO, texts / "target", wte=_TABLE)


@pytest.fixture(scope="module")
def llama(texts):
  return make(tiny.LLAMA, texts / "draft", embed_tokens=_TABLE, lm_head=_OTHER)


def test_what_a_language_model_says(family, llama):
  size = len(tiny.WORDS)
  assert (family.noun, family.space.kind, family.space.vocab_size) == ("text", "discrete", size)
  assert family.space.num_tokens is None and family.space.grid is None
  assert family.end_token == (tiny.WORDS.index(tiny.END),) and family.default_length(SamplingConfig()) == 64
  for network in (family, llama):
    assert network.space.embedding() is _TABLE["weight"] and network.space.codebook is None


def test_every_language_model_may_draft(family, llama):
  """By the registry: also one that is added, and no network of another kind."""
  known = family.draft_families
  assert known == llama.draft_families and {"gpt_neo", "llama"} <= set(known) < set(registry.generating())
  for kind, found in (("texts", (*known, "own")), ("token_images", known)):
    with registry.FAMILIES.adding("own", FamilySpec(OwnConfig, lambda config: None, f"jaxspec.families.{kind}:make_family")):
      assert family.draft_families == llama.draft_families == found


@pytest.mark.parametrize("form", [np.array, tuple, iter, lambda texts: dict.fromkeys(texts).keys()])
def test_texts_of_every_form(family, form):
  encoded = family.encode(form(["once", "upon"]), form(["one", "two"]))
  assert encoded.captions == ["one", "two"]
  np.testing.assert_array_equal(encoded.condition.tokens, family.encode(["once", "upon"]).condition.tokens)
  assert family.encode(np.array("once")).captions == ["once"] == family.encode(np.str_("once")).captions


@pytest.mark.parametrize("wrong", [None, 3, b"once", {"once": 1}, iter([]), [b"once"], np.array([1, 2]), [["once"]]])
def test_what_are_no_texts(family, wrong):
  with pytest.raises(ValueError, match="Must have (at least one text|text as every text), "):
    family.encode(wrong)


def test_ragged_beginnings(family):
  encoded = family.encode(["once", "é"])
  assert isinstance(encoded.condition, Prompt) and encoded.condition.batch_size == 2
  assert encoded.condition.tokens.shape == (2, 8) and encoded.condition.mask.sum(axis=1).tolist() == [2, 2]
  ragged = family.encode(["once upon", "é"]).condition
  assert ragged.tokens.shape == (2, 8) and ragged.mask.sum(axis=1).tolist() == [6, 2] and not ragged.mask[1, :6].any()
  assert ragged.longest == 6
  assert family.encode("once").captions == ["once"]
  for prompts, words in (([], "at least one text"), (["one", ""], "text 2 is ''"), (["\udcff"], "every text in UTF-8")):
    with pytest.raises(ValueError) as caught:
      family.encode(prompts)
    assert words in str(caught.value)


def test_continuations(family):
  condition = family.encode(["once upon", "é"]).condition
  tokens = np.zeros((2, 3), np.int32)
  tokens[0, :2] = family.encode("once").condition.tokens[0, -2:]
  tokens[1] = [tiny.WORDS.index("on")] * 2 + [family.end_token[0]]
  assert family.decode(tokens, lengths=np.asarray([2, 3]), condition=condition) == ["once upononce", "éonon"]
  assert family.decode(tokens, lengths=np.asarray([1, 2])) == ["on", "onon"]


def test_drafts(family, llama, tmp_path):
  family.check_fit(llama.target, SAME_FAMILY)
  with pytest.raises(ValueError, match="vocab_size 300 instead of"):
    family.check_fit(tiny.checkpoint(dataclasses.replace(tiny.LLAMA, vocab_size=300), "draft"), SAME_FAMILY)
  tiny.byte_tokenizer([*reversed(tiny.WORDS[:-1]), tiny.WORDS[-1]]).save(str(tmp_path / TOKENIZER_FILE))
  with pytest.raises(ValueError, match="its tokenizer has other tokens"):
    family.check_fit(tiny.checkpoint(tiny.LLAMA, tmp_path), SAME_FAMILY)
  family.check_fit(tiny.checkpoint(tiny.LLAMA, tmp_path / "none"), SAME_FAMILY)  # optional for a draft
  family.check_fit(tiny.checkpoint(EagleConfig.of(tiny.NEO), "own"), "eagle")
  fields = dataclasses.asdict(EagleConfig.of(tiny.NEO)) | {"vocab_size": 8}
  head = tiny.checkpoint(EagleConfig(**fields), "feature")
  with pytest.raises(ValueError, match=f"does not fit the target: vocab_size 8 instead of {family.space.vocab_size}"):
    family.check_fit(head, "eagle")


def test_tokenizers_that_do_not_fit(tmp_path):
  with pytest.raises(ValueError, match=f"No {TOKENIZER_FILE}"):
    make(tiny.NEO, tmp_path)
  Tokenizer(models.BPE({chr(300 + i): i for i in range(400)}, [])).save(str(tmp_path / TOKENIZER_FILE))
  with pytest.raises(ValueError, match="more tokens than the network"):
    make(tiny.NEO, tmp_path)


def test_a_draft_need_not_be_a_language_model(family):
  """A table of counts as draft of a user-defined method: without a known length, and without a cache."""
  condition, counts = family.encode("once upon").condition, Network(len, {"counts": np.zeros(4)})
  assert family.check_length(counts, condition, 10**6) == []
  with_draft, alone = (
    Decoder(family.network(family.target, "target"), methods.Speculative(gamma=2), draft) for draft in (counts, None)
  )
  assert with_draft.decode_bytes(1, condition, max_len=8) == alone.decode_bytes(1, condition, max_len=8)


def test_lengths(family, llama):
  condition = family.encode("once upon").condition  # 6 tokens
  learned, rotary = family.network(family.target, "target"), llama.network(llama.target, "small")
  assert family.check_length(learned, condition, 42) == []
  with pytest.raises(ValueError, match="at most 48 tokens for the target, we instead got 6 tokens of text and 43 more"):
    family.check_length(learned, condition, 43)
  assert family.check_length(rotary, condition, 10) == []
  assert family.check_length(rotary, condition, 11) == [
    "The draft small was trained on texts of up to 16 tokens, this one may get 6 tokens of text and 11 more"
  ]
  stretched = dataclasses.replace(tiny.LLAMA, rope=Rope(scaling="dynamic", factor=2.0, original_max_positions=16))
  assert family.check_length(dataclasses.replace(rotary, config=stretched), condition, 11) == []


CHAIN, TREE = methods.EagleChain(gamma=2), methods.Eagle(tree_size=4, tree_top_k=2, tree_depth=1)
HEADS = [(tiny.LLAMA, CHAIN), (tiny.NEO, TREE), (tiny.NEO, CHAIN), (tiny.LLAMA, TREE)]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "method"), HEADS)
def test_heads_continue_the_features_of_language_models(texts, config, method):
  """Greedy windows of a head are greedy decoding, of prompts of different lengths."""
  family = make(config, texts / "target", **tiny.weights(config, 1))
  head = tiny.checkpoint(EagleConfig.of(config), "head", tiny.weights(EagleConfig.of(config), 2), guided=False)
  family.check_fit(head, "eagle")
  condition, sampling = family.encode(["once upon", "é"]).condition, SamplingConfig(temperature=0.0)
  target = family.network(family.target, "target")
  plain, drafted = (
    Decoder(target, chosen, draft, sampling=sampling)(condition, key=jax.random.key(0), max_len=8)
    for chosen, draft in ((methods.Plain(), None), (method, head))
  )
  np.testing.assert_array_equal(plain.tokens, drafted.tokens)
  assert drafted.counters.drafted.sum() > 0
