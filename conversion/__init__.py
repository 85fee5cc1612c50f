"""Converters of released weights: a file per family of networks, with its table of names.

`engine` converts by such a table, whose rows are `rules`. `auto` chooses the converter of a folder or a file by what
`released` recognises. `torch_files`, `gguf_files` and `hugging_face` read the sources, `command` is the command line.
"""
