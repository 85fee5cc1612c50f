"""`jaxspec generate --text` on random language models: texts, figures, errors."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from jaxspec.io import shipped
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from tests.cli import fake_language

TEXTS = ("--text", "once upon", "--text", "é")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
  return fake_language.make(tmp_path_factory.mktemp("language"))


@pytest.fixture
def continue_texts(run, networks):
  def call(*args):
    outcome = run("generate", "--model", networks / "target", *args, "--json", "figures.json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    with open("figures.json", encoding="utf-8") as file:
      return json.load(file), outcome

  return call


@pytest.mark.slow
def test_compare_greedy(continue_texts, networks):
  """Greedy speculation continues as greedy plain decoding does, and every figure is consistent."""
  options = ("--draft-model", networks / "draft", "--temperature", 0, "--max-tokens", 12, "--gamma", 3)
  document, outcome = continue_texts(*TEXTS, *options, "--compare", "--repeats", 1)
  fast, plain = document["methods"]["speculative"], document["methods"]["ar"]
  assert fast["tokens"] == plain["tokens"] == plain["target_calls"]
  assert document["speedup"] > 0 and document["settings"]["draft"] == "draft"
  for entry, text, tokens in zip(document["texts"], TEXTS[1::2], (6, 2)):
    assert entry["speculative"]["tokens"] == entry["ar"]["tokens"]
    assert entry["prompt"] == text and entry["prompt_tokens"] == tokens
    assert entry["ar"]["text"].startswith(text) and text in outcome.stdout
    assert entry["ar"]["ended"] == (entry["ar"]["tokens"][-1] in fake_language.TARGET.end_ids)
  for words in (
    "target  2 texts of up to 12 tokens",
    "speculative decoding, draft draft, gamma 3, temperature 0",
    "target calls per text",
  ):
    assert words in outcome.stdout
  assert "Speculation was" in outcome.stdout and "wrote figures.json" in outcome.stdout
  # The draft was made for shorter texts.
  assert len(outcome.stderr.splitlines()) == 1 and "up to 16 tokens" in outcome.stderr


@pytest.mark.slow
def test_samples_end_where_they_end(continue_texts):
  """A hot network draws its end token sooner or later; nothing is written after it."""
  document, outcome = continue_texts("--text", "on", "--samples", 8, "--max-tokens", 40, "--temperature", 9, "--batch", 3)
  end = fake_language.TARGET.end_ids[0]
  rows = [entry["ar"] for entry in document["texts"]]
  assert len(rows) == 8 and document["batch"] == {"rows": 3, "batches": 3, "texts": 8}
  for row in rows:
    assert end not in row["tokens"][:-1] and row["ended"] == (row["tokens"][-1] == end) == (len(row["tokens"]) < 40)
    assert fake_language.END not in row["text"]
  assert document["methods"]["ar"]["tokens"] == sum(len(row["tokens"]) for row in rows)
  more = ("--samples", 8, "--max-tokens", 40, "--temperature", 9, "--mesh", "data=1")
  again, _ = continue_texts("--text", "on", *more)
  assert again["settings"]["mesh"] == {"data": 1, "model": 1}
  assert [entry["ar"]["tokens"] for entry in again["texts"]] == [row["tokens"] for row in rows]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--out", "x.png"], "--out is about images"),
    (["--heatmap", "x.png"], "--heatmap is about images"),
    (["--raw"], "--raw is about images"),
    (["a red heart"], "'a red heart'"),
    (["--tokenizer", "x"], "parts that"),
    (["--cfg-scale", 2], "an unconditional condition"),
    (["--method", "gsd"], "codebook"),
    (["--method", "eagle"], "has none"),
    (["--method", "speculative"], "has none"),
    (["--method", "sqs"], "has none"),
    (["--compare"], "--method sjd"),
    (["--max-tokens", 0], "--max-tokens"),
    (["--max-tokens", 47], "at most 48 tokens"),
    (["--json", "x.txt"], "ends in .json"),
    (["--text", ""], "text 2 is ''"),
    (["--method", "cspd"], "draws discrete tokens"),
    (["--mesh", "rows=2"], "a mesh such as data=2,model=4"),
    (["--mesh", "model=4096"], "4096 devices for the mesh model=4096"),
    (["--mesh", "data=1", "--wire"], "--mesh goes with decodes in one program"),
    (["--mesh", "data=1", "--cloud", "grpcs://here:1"], "--mesh needs the target in this process"),
  ],
)
def test_options(fails, networks, options, words):
  assert words in fails("generate", "--text", "one", "--model", networks / "target", *options)


def test_a_pair_is_a_bundle(fails, networks):
  """Texts may be prompts where the networks continue texts."""
  pair = ("--checkpoint", networks)
  assert "--out is about images" in fails("generate", "once upon", *pair, "--out", "x.png")
  assert "continues texts" in fails("generate", "--features", "f.npz", "--model", networks / "target")
  assert "draws no classes: give --text" in fails("generate", "--class", "1", *pair)
  assert "we instead got speculative" in fails("generate", "--text", "once", *pair, "--max-tokens", 6, "--wire")


def test_images_take_no_text_options(fails, bundle, monkeypatch):
  assert "--max-tokens goes with" in fails("generate", "a red heart", "--checkpoint", bundle, "--max-tokens", 3)
  assert "draws images: give prompts" in fails("generate", "--text", "one", "--checkpoint", bundle)
  monkeypatch.setattr(shipped, "shipped", lambda name: Path("no") / name)
  assert "no networks wordnet come" in fails("generate", "--text", "one")


def test_networks_that_do_not_fit(fails, networks, bundle, tmp_path):
  text = ("--text", "one", "--model")
  target, draft = networks / "target", tmp_path / "draft"
  assert "No checkpoint folder" in fails("generate", *text, tmp_path / "none")
  assert "give --text" not in fails("generate", *text, bundle / "target")
  assert "as draft" in fails("generate", *text, target, "--draft-model", bundle / "draft")
  shutil.copytree(networks / "draft", draft)
  words = fake_language.VOCABULARY
  fake_language.tokenizer([*reversed(words[:-1]), words[-1]]).save(str(draft / TOKENIZER_FILE))
  assert "other tokens" in fails("generate", *text, target, "--draft-model", draft)
  document = json.loads((draft / "config.json").read_text())
  document["config"]["rope"] = {"scaling": "magic"}
  (draft / "config.json").write_text(json.dumps(document))
  assert "RoPE scaling" in fails("generate", *text, target, "--draft-model", draft)
  shutil.copytree(target, tmp_path / "mute")
  (tmp_path / "mute" / TOKENIZER_FILE).unlink()
  assert f"No {TOKENIZER_FILE}" in fails("generate", *text, tmp_path / "mute")
  big = Tokenizer(models.BPE({chr(300 + i): i for i in range(400)}, []))
  big.save(str(tmp_path / "mute" / TOKENIZER_FILE))
  assert "more tokens" in fails("generate", *text, tmp_path / "mute")


SQS = ("--method", "sqs", "--max-tokens", 12)


@pytest.mark.slow
def test_greedy_sparse_decoding_is_plain_decoding_and_its_bits_are_counted(continue_texts, networks):
  """Through one program and through messages; every figure is consistent with the others."""
  options = ("--draft-model", networks / "draft", *SQS, "--temperature", 0, "--budget", 90, "--wire", "--compare")
  document, outcome = continue_texts(*TEXTS, *options, "--repeats", 1)
  for entry in document["texts"]:
    assert entry["sqs"]["tokens"] == entry["ar"]["tokens"]
  method = document["methods"]["sqs"]
  found, messages = method["compression"], method["messages"]
  traffic = messages["traffic"]
  assert messages["same_tokens"] and found["rounds"] == method["rounds"] == traffic["exchanges"]
  assert found["tokens"] + len(TEXTS) // 2 == method["tokens"]
  # A certain distribution is one token and the size of its support, 9 bits each here: nine drafts fit, and none is dropped.
  assert found["support"] == 1 and found["dropped"] == 0 and found["drafts_per_round"] <= 5
  assert found["formula_bits"] == 18 * found["drafted"] == traffic["coded_bits"]
  assert traffic["uplink_bytes"] > traffic["coded_bits"] / 8
  assert document["settings"]["options"]["support"] == 256 and len(found["final_beta_each"]) == 2
  for words in (
    "sparsifier conformal",
    "resampling rate",
    "final beta",
    "bytes up per text",
    "same tokens through messages",
  ):
    assert words in outcome.stdout


@pytest.mark.slow
def test_top_k_has_no_threshold(continue_texts, networks):
  document, outcome = continue_texts(
    *TEXTS, "--draft-model", networks / "draft", *SQS, "--sparsifier", "topk", "--support", 8, "--coding", "trimmed"
  )
  found = document["methods"]["sqs"]["compression"]
  assert 1 < found["support"] <= 8 and 0 < found["dropped"] < 1 and "final_beta" not in found
  assert (
    found["rejected"] <= found["rounds"]
    and "messages" not in document["methods"]["sqs"]
    and "final beta" not in outcome.stdout
  )


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--support", 1000], "1 to 259 tokens"),
    (["--coding", "dense", "--support", 8], "support of all 259 tokens"),
    (["--beta1", -0.1], "beta1 of at least"),
  ],
)
def test_settings_of_sparse_decoding(fails, networks, options, words):
  """What the vocabulary, or the options together, refuse."""
  draft = ("--draft-model", networks / "draft")
  assert words in fails("generate", "--text", "one", "--model", networks / "target", *draft, *SQS, *options)
