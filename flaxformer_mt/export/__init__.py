"""Models for other programs, and from them: CTranslate2, Hugging Face, StableHLO."""
