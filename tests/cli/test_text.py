"""`jaxspec generate --text` on random language models: texts, figures, errors."""

import json
import shutil

import pytest
from tokenizers import Tokenizer, models

from jaxspec.data.language_tokenizer import TOKENIZER_FILE
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
  for words in ("target  2 texts of up to 12 tokens", "draft draft, gamma 3, temperature 0", "target calls per text"):
    assert words in outcome.stdout
  assert "Speculation was" in outcome.stdout and "wrote figures.json" in outcome.stdout
  # The draft was made for shorter texts.
  assert len(outcome.stderr.splitlines()) == 1 and "up to 16 tokens" in outcome.stderr


@pytest.mark.slow
def test_samples_end_where_they_end(continue_texts):
  """A hot network draws its end token sooner or later; nothing is written behind it."""
  document, outcome = continue_texts("--text", "on", "--samples", 8, "--max-tokens", 40, "--temperature", 9, "--batch", 3)
  end = fake_language.TARGET.end_ids[0]
  rows = [entry["ar"] for entry in document["texts"]]
  assert len(rows) == 8 and document["batch"] == {"rows": 3, "batches": 3, "texts": 8}
  for row in rows:
    assert end not in row["tokens"][:-1] and row["ended"] == (row["tokens"][-1] == end) == (len(row["tokens"]) < 40)
    assert fake_language.END not in row["text"]
  assert document["methods"]["ar"]["tokens"] == sum(len(row["tokens"]) for row in rows)
  again, _ = continue_texts("--text", "on", "--samples", 8, "--max-tokens", 40, "--temperature", 9)
  assert [entry["ar"]["tokens"] for entry in again["texts"]] == [row["tokens"] for row in rows]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--out", "x.png"], "--out is about pictures"),
    (["--cfg-scale", 2], "--cfg-scale is about pictures"),
    (["--heatmap", "x.png", "--raw"], "is about pictures"),
    (["--tokenizer", "x"], "--tokenizer is about pictures"),
    (["--tree-size", 3], "--tree-size is about pictures"),
    (["a red heart"], "'a red heart'"),
    (["--method", "gsd"], "we instead got gsd"),
    (["--method", "eagle"], "we instead got eagle"),
    (["--method", "speculative"], "--draft-model DIR"),
    (["--compare"], "--method sjd"),
    (["--max-tokens", 0], "--max-tokens"),
    (["--max-tokens", 47], "at most 48 tokens"),
    (["--temperature", -1], "finite temperature"),
    (["--json", "x.txt"], "ends in .json"),
    (["--text", ""], "text 2 is ''"),
  ],
)
def test_options(fails, networks, options, words):
  assert words in fails("generate", "--text", "one", "--model", networks / "target", *options)


def test_pictures_take_no_text_options(fails, bundle, networks, monkeypatch):
  assert "--text" in fails("generate", "a red heart", "--checkpoint", bundle, "--max-tokens", 3)
  assert "goes with --model" in fails("generate", "--text", "one", "--draft-model", networks / "draft")
  monkeypatch.setattr("jaxspec.cli.text_source.SHIPPED_PAIR", "none")
  assert "--model DIR" in fails("generate", "--text", "one")


def test_networks_that_do_not_fit(fails, networks, bundle, tmp_path):
  text = ("--text", "one", "--model")
  target, draft = networks / "target", tmp_path / "draft"
  assert "No checkpoint folder" in fails("generate", *text, tmp_path / "none")
  assert "holds a llamagen" in fails("generate", *text, bundle / "target")
  assert "as --draft-model" in fails("generate", *text, target, "--draft-model", bundle / "draft")
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
  found = document["methods"]["sqs"]["compression"]
  assert found["wire_agrees"] and found["rounds"] == document["methods"]["sqs"]["rounds"] == found["exchanges"]
  assert found["tokens"] + len(TEXTS) // 2 == document["methods"]["sqs"]["tokens"]
  # A certain law is one token and the size of its support, 9 bits each here: nine drafts fit, and none is dropped.
  assert found["support"] == 1 and found["dropped"] == 0 and found["drafts_per_round"] <= 5
  assert found["formula_bits"] == 18 * found["drafted"] == found["coded_bits"]
  assert found["wire_bytes"] > found["coded_bits"] / 8
  assert document["settings"]["support"] == 256 and len(found["final_beta_each"]) == 2
  for words in ("conformal: threshold from 0.01", "resampling rate", "final beta", "on the wire"):
    assert words in outcome.stdout


@pytest.mark.slow
def test_top_k_has_no_threshold(continue_texts, networks):
  document, outcome = continue_texts(
    *TEXTS, "--draft-model", networks / "draft", *SQS, "--sparsifier", "topk", "--support", 8, "--coding", "trimmed"
  )
  found = document["methods"]["sqs"]["compression"]
  assert 1 < found["support"] <= 8 and 0 < found["dropped"] < 1 and "final_beta" not in found
  assert found["rejected"] <= found["rounds"] and "coded_bits" not in found and "final beta" not in outcome.stdout


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--budget", -1], "budget of at least 0 bits"),
    (["--budget", "nan"], "budget of at least 0 bits"),
    (["--ell", 0], "ell from 1 to 65535"),
    (["--support", 0], "support of at least 1"),
    (["--support", 1000], "1 to 259 tokens"),
    (["--coding", "dense", "--support", 8], "support of all 259 tokens"),
    (["--coding", "gzip"], "'gzip'"),
    (["--alpha", 1], "alpha of at least 0 and below 1"),
    (["--eta", -0.1], "eta of at least 0"),
    (["--beta1", -0.1], "beta1 of at least"),
    (["--max-drafts", 0], "max_drafts of at least 1"),
    (["--policy", "none"], "'none'"),
    (["--method", "ar", "--wire"], "--wire goes with --method sqs"),
  ],
)
def test_settings_of_sparse_decoding(fails, networks, options, words):
  draft = ("--draft-model", networks / "draft") if "ar" not in options else ()
  assert words in fails("generate", "--text", "one", "--model", networks / "target", *draft, *SQS, *options)


def test_sparse_decoding_needs_a_draft(fails, networks):
  assert "--draft-model DIR" in fails("generate", "--text", "one", "--model", networks / "target", *SQS)
