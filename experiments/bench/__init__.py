"""Benchmarks and attacks of single parts of the library; `experiments.configs.bench` lists them."""
