"""How cost grows: one module per axis, one runner (``python -m bench.scaling.run``)."""
