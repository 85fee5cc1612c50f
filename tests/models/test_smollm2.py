"""Known answers of a released language model. The test runs only if the model was fetched.

Run ``python -m experiments.data.smollm2 weights/smollm2``, then ``JAXSPEC_SMOLLM2=weights/smollm2 pytest -m slow``. The
numbers come from two independent readers of the same file (dequantized, float32).
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.io.text import language_tokenizer

FOLDER = os.environ.get("JAXSPEC_SMOLLM2")
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(FOLDER is None, reason="needs JAXSPEC_SMOLLM2, a folder made by experiments.data.smollm2"),
]

PROMPTS = {
  "The capital of France is": {
    "ids": [504, 3575, 282, 4649, 314],
    "top": {7042: 17.3713, 260: 14.8886, 4528: 13.2450, 2250: 13.0095, 1315: 12.9515},
    "logsumexp": 17.6293,
    "greedy": [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33],
  },
  "Once upon a time, in a small village by the sea, there lived": {
    "ids": [6403, 1980, 253, 655, 28, 281, 253, 1165, 6560, 411, 260, 3426, 28, 665, 4161],
    "top": {253: 7.2019, 354: 4.2249, 827: 3.7131, 1296: 2.1714, 800: 1.3116},
    "logsumexp": 7.3080,
    "greedy": [253, 9357, 284, 1942, 4166, 3365, 3906, 4075, 30, 2306, 436, 253],
  },
}


def test_known_answers():
  model, tokenizer = jaxspec.load(FOLDER), language_tokenizer.load_tokenizer(Path(FOLDER))
  rows = language_tokenizer.encode(tokenizer, list(PROMPTS))
  assert rows == [answer["ids"] for answer in PROMPTS.values()]
  prompt = jax.tree.map(jnp.asarray, language_tokenizer.pad_left(rows))
  logits = np.asarray(jax.jit(lambda p, x: model.fns.apply(p, x)[0].logits[:, -1])(model.params, prompt))
  for row, answer in zip(logits, PROMPTS.values()):
    assert list(np.argsort(-row)[:5]) == list(answer["top"])
    np.testing.assert_allclose(row[list(answer["top"])], list(answer["top"].values()), atol=1e-3)
    np.testing.assert_allclose(jax.nn.logsumexp(row), answer["logsumexp"], atol=1e-3)
  decoder = jaxspec.Decoder(model, sampling=jaxspec.SamplingConfig(temperature=0.0))
  out = decoder(prompt, key=jax.random.key(0), max_len=12, end_token=model.config.end_ids)
  np.testing.assert_array_equal(out.tokens, [answer["greedy"] for answer in PROMPTS.values()])
