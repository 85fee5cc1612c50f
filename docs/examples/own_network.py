"""A converted network from a folder, with a draft from another folder.

Run it by `python docs/examples/own_network.py [TARGET DRAFT]`. The folders are those that `jaxspec convert` writes. Without
arguments they are the networks of the shipped text bundle.
"""

import sys

import jax

import jaxspec
from jaxspec.io.shipped import named


def main(target: str, draft: str) -> None:
  network = jaxspec.load(target)
  print(f"target: {type(network.config).__name__}, vocabulary {network.config.vocab_size}")
  pipe = jaxspec.load_pipeline(target, draft=draft)
  method = jaxspec.methods.Speculative(gamma=5)
  out = pipe(["a large river: "], key=jax.random.key(0), method=method, max_len=24, temperature=0.7)
  calls, tokens = int(out.counters.target_calls[0]), int(out.result.lengths[0])
  print(f"{tokens} tokens in {calls} calls of the target: {out.texts[0]!r}")


if __name__ == "__main__":
  bundle = named("wordnet")
  main(*(sys.argv[1:] or (str(bundle / "target"), str(bundle / "draft"))))
