"""Sources of images, digits and text: ``python -m experiments.data.NAME --help``."""
