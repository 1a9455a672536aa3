"""The built-in English-German grammar: words, clauses, held-out rule, sampler."""
