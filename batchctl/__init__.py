"""batchctl: bulk LLM work at batch price, one output row for each input row."""

__version__ = "0.1.0"
