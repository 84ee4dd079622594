"""The store: what is true about jobs, batches, submissions and rows; and the spool where bulky bytes lie."""
