"""Results as files: rows joined with their answers, chosen, and written in each format."""
