"""Review of clusters by people: who sees which cluster, and what they answered."""
