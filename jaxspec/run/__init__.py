"""From options to the results of a decode.

- `loading` makes a `pipeline` from files; `loaded_networks` has its networks, and chooses the default method and draft.
- `decode_options` and `prompt_request` turn options and prompts into a `job`, whose rows `batches` divides.
- `run` compiles and decodes a job, `callback` decodes it round by round (`rounds`), `programs` is the bounded cache of
  compiled programs. `generation` is the result; `figures`, `document`, `cloud_calls` and `compression` describe it.
- `plain_comparison`, `chain_bench`, `measure` and `round_times` measure times.
"""
