"""Where images, digits and text come from: ``python -m experiments.data.NAME --help``."""
