"""Text from WordNet: its lines, the split, and training rows."""

import dataclasses

import numpy as np
import pytest

from experiments.data import pack_text
from experiments.train import language_model
from jaxspec.io.text import wordnet
from tests.training.sharing import share_step

SAMPLE = """  1 This software and database is being provided to you
00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 ~ 00002137 n 0000 | that which is perceived  or known
00002137 03 n 02 abstraction 0 abstract_entity 0 001 @ 00001740 n 0000 | a general concept; "an abstraction"
00013160 00 a 01 last(p) 0 000 | lowest in rank
"""


def test_lines(tmp_path):
  expected = [
    "entity: that which is perceived or known",
    'abstraction, abstract entity: a general concept; "an abstraction"',
    "last: lowest in rank",
  ]
  assert list(wordnet.parse(SAMPLE.splitlines())) == expected
  for name in wordnet.FILES:
    with pytest.raises(ValueError, match=name):
      wordnet.read_lines(tmp_path)
    (tmp_path / name).write_text(SAMPLE)
  assert wordnet.read_lines(tmp_path) == expected * 4


def test_split_is_by_first_word():
  words = [f"word{i}" for i in range(2000)]
  share = np.mean([wordnet.is_held_out(f"{word}, other: text") for word in words])
  assert 0.03 < share < 0.07
  assert all(wordnet.is_held_out(f"{w}: a") == wordnet.is_held_out(f"{w.title()}, x: b") for w in words[:50])


def test_training_rows_are_a_function_of_the_step():
  lines = [f"word {i}: the number {i}" for i in range(60)]
  tokenizer = pack_text.train_tokenizer(lines, 300)
  tokens, starts = pack_text.pack(tokenizer, lines)
  assert tokenizer.decode(tokens[starts[3] + 1 : starts[4]].tolist()) == lines[3]
  assert (tokens[starts[:-1]] == pack_text.END_ID).all() and len(tokens) == starts[-1]
  run = dataclasses.replace(language_model.get_config("draft"), num_tokens=20, batch_size=3)
  make = lambda seed=0: language_model.make_batch_fn(run, tokens, starts, seed)
  batches = [make()(step)["tokens"] for step in range(4)]
  assert batches[0].shape == (3, 21) and batches[0].dtype == np.int32
  np.testing.assert_array_equal(batches[2], make()(2)["tokens"])
  assert (make(1)(0)["tokens"] != batches[0]).any()
  # Rows of an epoch are consecutive; the last token of a row is the first token of the next.
  rows = np.concatenate(batches)
  np.testing.assert_array_equal(rows[:-1, -1], rows[1:, 0])
  with pytest.raises(ValueError, match="more than 20 tokens"):
    language_model.make_batch_fn(run, tokens[:9], starts[:1], 0)


@pytest.mark.slow
def test_a_stopped_run_goes_on_exactly(tmp_path, monkeypatch):
  lines = [f"word {i}: the number {i}" for i in range(200)]
  tokenizer = pack_text.train_tokenizer(lines, 300)
  tokens, starts = pack_text.pack(tokenizer, lines)
  np.savez(tmp_path / pack_text.TOKENS_FILE, train=tokens, train_starts=starts, held_out=tokens, held_out_starts=starts)
  tokenizer.save(str(tmp_path / "tokenizer.json"))
  (tmp_path / "LICENSE").write_text("notice")
  base = language_model.get_config("target")
  model = dataclasses.replace(base.model, vocab_size=300, dim=16, num_layers=1, num_heads=2, window_size=8)
  loop = dataclasses.replace(base.loop, num_steps=6, log_every=1, eval_every=3, checkpoint_every=2)
  run = dataclasses.replace(base, model=model, loop=loop, batch_size=4, num_tokens=16, data=str(tmp_path))
  with monkeypatch.context() as patch:
    share_step(patch, language_model)
    whole = language_model.train(run, tmp_path / "whole")
    stopped = dataclasses.replace(run, loop=dataclasses.replace(loop, stop_after=3))
    language_model.train(stopped, tmp_path / "parts")
    language_model.train(run, tmp_path / "parts")
  assert (tmp_path / "whole/metrics.jsonl").read_text() == (tmp_path / "parts/metrics.jsonl").read_text()
  language_model.export(run, whole, tmp_path / "target", "command")
  draft = dataclasses.replace(run, teacher=str(tmp_path / "target"), model=dataclasses.replace(model, dim=8))
  language_model.train(draft, tmp_path / "draft")
  assert '"acceptance"' in (tmp_path / "draft/eval.jsonl").read_text()
