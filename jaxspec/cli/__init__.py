"""The ``jaxspec`` command: it parses options and prints; `jaxspec.run` and other rooms compute.

- `main` lists the commands. Each has a file of its name; ``NAME_table`` and others that begin with it print its report. The
  report of `generate` is `summary`.
- Options that several commands share: `networks`, `prompts`, `method_options`, `cloud_options`, `options`.
- `guards` turns damaged files, signals and exhausted memory into errors of one line. `jaxspec.core.command_line` prints the
  line and has the exit statuses.
"""
