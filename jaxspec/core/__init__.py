"""The contracts of the library and the loop that joins them.

1. `types` has the contracts: models, drafters, verifiers, acceptance rules, and the values between them. `state` is a decode
   between rounds, and its result.
2. `loop` runs rounds in one program, and `rounds` is one round: draft, verify, and `commit_reply`, which writes the tokens.
3. `commits` decides what a round commits: the tokens of each row and their positions, the end token that stops a row, and
   its new length. Every reader of a verdict uses it.
4. `rng` derives every random key by name; `trees` is the geometry of draft trees; `orders`, `token_space` and `token_kinds`
   describe tokens.
5. `options` declares options with help and range, `plugins` registers names, `command_line` has the exit statuses and prints
   the one line of an error, which `error_lines` formats.
"""
