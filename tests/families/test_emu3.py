"""Emu3 as a family: settings, tables, exactness of its methods around row ends, and mismatches."""

import dataclasses
import shutil

import numpy as np
import pytest

from conversion import emu3
from jaxspec import methods
from jaxspec.io.text import emu3_vocabulary
from jaxspec.io.text.language_tokenizer import from_json
from jaxspec.models.conditions import Prompt
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling import SamplingConfig
from tests.families.row_ends import EXACT, check_greedy
from tests.models import emu3_golden as golden
from tests.run import tiny_chameleon

OPTIONS = dict(ratio="1:2", area=32, negative="lowres, blurry.")  # 4 rows of 2 codes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return golden.convert(tmp_path_factory.mktemp("emu3"), **OPTIONS)


@pytest.fixture(scope="module")
def pipe(folder, tmp_path_factory):
  path = tmp_path_factory.mktemp("drafts")
  sides = {"rows": 4, "columns": 2}  # no vision tokenizer lies beside it that tells the pixels of a code
  small = golden.write_small(path / "hub")
  emu3.convert_folder(small, path / "small", sides, dtype="float32", negative=OPTIONS["negative"])
  return load_pipeline(folder, drafts={"small": path / "small", **tiny_chameleon.save_heads(path, folder)})


@pytest.mark.slow
def test_what_the_family_says(pipe):
  space, config = pipe.family.space, pipe.family.target.config
  assert (space.vocab_size, space.num_tokens, space.grid, space.unit_codes) == (28, 12, (4, 3), False)
  assert pipe.sampling() == SamplingConfig(cfg_scale=3.0, top_k=2048)
  tables = {name: np.asarray(getattr(space, name)()) for name in ("embedding", "codebook")}
  np.testing.assert_array_equal(tables["embedding"], pipe.family.target.params["embed_tokens"]["weight"][config.drawn_ids])
  assert tables["codebook"].shape == (28, 4) and not tables["codebook"][24:].any()
  assert pipe.family.fewest_slots == len(config.null_text) + 6 and pipe.encode("a").condition.tokens.shape == (1, 32)
  with pytest.raises(ValueError, match="cfg_interval -1"):
    pipe.sampling(cfg_interval=2)
  with pytest.raises(ValueError, match="a token in every prompt, prompt 2 is ''"):
    pipe.encode(["a", ""])
  long = Prompt(np.zeros((1, 256), np.int32), np.ones((1, 256), bool))
  assert "up to 256 tokens, this one gets 256 tokens of text and 12" in pipe.warnings(pipe.decoder("ar"), long)[0]


# Row ends are those of the base that Emu3 shares with Chameleon, whose tests have every kind of drafts, and distributions.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["speculative", "eagle-chain"])
def test_greedy_windows_are_greedy_decoding(pipe, name):
  check_greedy(pipe, name, 24)


@pytest.mark.slow
def test_what_does_not_fit(folder, pipe, tmp_path):
  copy = shutil.copytree(folder, tmp_path / "emu3")
  shutil.rmtree(copy / "vq")
  with pytest.raises(ValueError, match="a part 'tokenizer'"):
    load_pipeline(copy)
  with pytest.raises(ValueError, match="an image tokenizer, .* holds a emu3"):
    load_pipeline(copy, tokenizer=folder)
  family, config = pipe.family, pipe.family.target.config
  swapped = dataclasses.replace(family.target, config=dataclasses.replace(config, end_frame=23))
  with pytest.raises(ValueError, match="its tokenizer has end_frame 660, its network 23"):
    dataclasses.replace(family, target=swapped)
  other = dataclasses.replace(family.target, config=dataclasses.replace(config, rows=2))
  with pytest.raises(ValueError, match="does not fit the target: rows 2 instead of 4"):
    family.check_fit(other, methods.Speculative.draft_family)
  other = dataclasses.replace(family.target, config=dataclasses.replace(config, null_text=(3,)))
  with pytest.raises(ValueError, match=r"does not fit the target: null_text \(3,\) instead of"):
    family.check_fit(other, methods.Speculative.draft_family)
  (copy / "tokenizer.json").unlink()
  with pytest.raises(ValueError, match="No tokenizer.json"):
    load_pipeline(copy)
  content = (folder / "tokenizer.json").read_text()
  for old, new, words in (
    ("<|visual token 000003|>", "<|visual token 000099|>", "image codes that follow each other in here"),
    ("<|image start|>", "<|image begin|>", r"Emu3 in here, <\|image start\|> is missing"),
  ):
    with pytest.raises(ValueError, match=words):
      emu3_vocabulary.read_ids(from_json(content.replace(old, new).encode(), "here"), "here")


@pytest.mark.slow
def test_shapes_alone_are_enough_to_build(folder, tmp_path):
  pipe = load_pipeline(folder, drafts=tiny_chameleon.save_heads(tmp_path, folder), target_weights=False)
  head = pipe.decoder(EXACT["eagle"]).parts.params.draft.model
  assert head["tok_embeddings"]["weight"].shape == head["output"]["weight"].shape == (28, 32)
  assert not pipe.target.has_weights and pipe.target.params["lm_head"]["weight"].shape == (28, 32)
