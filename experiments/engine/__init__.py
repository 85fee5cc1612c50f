"""Common parts of all tables: cached decodes, timing, judges, Markdown."""
