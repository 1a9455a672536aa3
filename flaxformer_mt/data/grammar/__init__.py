"""The built-in English-German grammar: lexicon, syntax, realisations, held-out rule, sampler."""
