"""The words by which a doubt that more looking will not end is told from one that is still being resolved."""

UNSURE = "cannot tell whether the batch was created"
