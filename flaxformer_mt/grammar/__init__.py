"""The built-in English-German grammar and its text: words, clauses, held-out rule, sampler."""
