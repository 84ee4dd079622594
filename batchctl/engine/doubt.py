"""The words by which a doubt that more looking will not end is told from one that is still being resolved."""

UNSURE = "cannot tell whether the batch was created"
UNSURE_GONE = "cannot tell whether the batch is gone"
"""Said of a batch that was there, and that a key which sees nothing else either does not see any more."""
