"""What may not come next, and what must: one module for each reason."""
