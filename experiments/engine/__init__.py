"""What all tables share: decodes that are kept, clocks, judges, Markdown."""
