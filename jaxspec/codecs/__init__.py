"""What is sent of a law and what it costs: pure, traced functions."""
