"""Texts: continuations of prompts of different lengths, plain and speculative, from the same distribution.

Run it by `python docs/examples/text.py`.
"""

import jax

import jaxspec

PROMPTS = ["river: a", "kindness: the quality of", "apple:"]


def main() -> None:
  pipe = jaxspec.load_pipeline("wordnet")
  for method in (jaxspec.methods.Plain(), jaxspec.methods.Speculative(gamma=4)):
    out = pipe(PROMPTS, key=jax.random.key(0), method=method, max_len=24, temperature=0.6)
    counters = out.counters
    print(f"{method.name}: {counters.target_calls} calls of the target, {counters.accepted} drafts accepted")
    for prompt, text in zip(PROMPTS, out.texts):
      print(f"  {prompt!r} -> {text!r}")


if __name__ == "__main__":
  main()
