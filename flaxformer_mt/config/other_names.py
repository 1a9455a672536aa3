"""What other toolkits (fairseq, OpenNMT-py, JoeyNMT, Marian, transformers) call our settings."""

# Our key or flag, and their names with underscores.
_NAMES = {
    "training.schedule.peak": "lr learning_rate max_lr peak_lr",
    "training.schedule.kind": "lr_scheduler lr_scheduler_type decay_method scheduling scheduler",
    "training.schedule.warmup_steps": "warmup warmup_updates learning_rate_warmup lr_warmup",
    "training.steps": """
        epochs epoch max_epoch max_epochs num_epochs num_train_epochs after_epochs after
        after_batches train_steps max_update max_updates max_steps num_updates updates
    """,
    "training.label_smoothing": "smoothing label_smooth",
    "training.optimizer.kind": "optimizer optim",
    "training.adapters.rank": "lora_rank lora_r lora_dim",
    "training.optimizer.clip_norm": "max_grad_norm clip_grad_norm clip_gradient clip grad_clip",
    "training.optimizer.beta1": "adam_beta1 adam_betas betas",
    "training.optimizer.beta2": "adam_beta2",
    "training.optimizer.epsilon": "adam_eps adam_epsilon eps",
    "training.optimizer.accumulation": """
        update_freq accum_count batch_multiplier gradient_accumulation_steps optimizer_delay
        accumulate_grad_batches
    """,
    "training.optimizer.ema_decay": "ema average_decay exponential_smoothing",
    "training.validate_every": """
        valid_steps valid_freq validation_freq validate_interval validate_interval_updates
        eval_steps eval_every
    """,
    "training.save_every": """
        save_checkpoint_steps save_interval save_interval_updates save_freq save_steps
    """,
    "training.keep_latest": """
        keep_checkpoint keep_last_epochs keep_interval_updates save_total_limit
    """,
    "training.keep_best": "keep_best_ckpts keep_best_checkpoints keep_best_epochs",
    "training.log_every": "log_interval report_every logging_freq logging_steps disp_freq",
    "training.patience": "early_stopping early_stopping_patience",
    "training.best_metric": "best_checkpoint_metric early_stopping_metric metric_for_best_model",
    "training.trackers": "tensorboard tensorboard_logdir wandb wandb_project report_to",
    "training.seed": "random_seed",
    "data.batch.tokens": """
        batch_size max_tokens tokens_per_batch mini_batch mini_batch_words train_batch_size
        per_device_train_batch_size
    """,
    "data.batch.form": "batch_type packing",
    "data.train": "train train_src train_tgt train_data train_sets trainpref train_file",
    "data.valid": """
        valid valid_src valid_tgt valid_data valid_sets validpref validation_file dev dev_data
    """,
    "data.test": "test testpref test_data test_file",
    "data.src_lang": "source_lang source_language src_language",
    "data.tgt_lang": "target_lang target_language tgt_language trg_lang",
    "data.filter.max_length": """
        max_len max_sent_length src_seq_length tgt_seq_length max_source_positions
        max_target_positions max_source_length max_target_length
    """,
    "data.vocabulary.model": "spm_model sp_model sentencepiece_model bpe_model",
    "data.vocabulary.size": "vocab_size src_vocab_size tgt_vocab_size bpe_size voc_limit",
    "data.vocabulary.shared": "share_vocab share_all_embeddings joined_dictionary",
    "data.vocabulary.kind": "tokenizer subword_type bpe",
    "model.tie": """
        tied_embeddings tied_embeddings_all tied_softmax share_embeddings share_decoder_embeddings
        share_decoder_input_output_embed tie_word_embeddings
    """,
    "model.encoder_layers": "layers num_layers n_layers enc_layers enc_depth num_encoder_layers",
    "model.decoder_layers": "dec_layers dec_depth num_decoder_layers",
    "model.d_model": """
        hidden_size word_vec_size rnn_size embedding_dim emb_dim embed_dim dim_emb model_dim
        encoder_embed_dim decoder_embed_dim width
    """,
    "model.d_ff": """
        transformer_ff ff_size ffn_dim encoder_ffn_embed_dim decoder_ffn_embed_dim dim_feedforward
        transformer_dim_ffn intermediate_size
    """,
    "model.num_heads": """
        heads n_heads nhead transformer_heads attention_heads num_attention_heads
        encoder_attention_heads decoder_attention_heads
    """,
    "model.dropout": "dropout_rate transformer_dropout hidden_dropout",
    "model.ffn_dropout": "relu_dropout activation_dropout transformer_dropout_ffn",
    "model.attention_dropout": "attn_dropout transformer_dropout_attention",
    "model.norm": "encoder_normalize_before decoder_normalize_before layer_norm pre_norm",
    "model.activation": "activation_fn activation_function pos_ffn_activation_fn",
    "model.positions": "position_encoding encoder_learned_pos positional_encoding",
    "model.dtype": "fp16 bf16 precision amp mixed_precision",
    "model.remat": "checkpoint_activations gradient_checkpointing",
    "decoding.beam_size": "beam num_beams",
    "decoding.length_penalty": "lenpen alpha beam_alpha",
    "decoding.min_length": "min_decoding_length min_len min_new_tokens min_output_length",
    "decoding.no_repeat_ngram": "no_repeat_ngram_size block_ngram_repeat",
    "mesh.data": "world_size num_gpus gpus gpu_ranks devices distributed_world_size",
    "--workdir": "save_dir save_model model_dir output_dir out_dir run_dir",
    "--init-from": "train_from restore_file load_model finetune_from_model pretrained_model",
}
OURS = {alias: name for name, aliases in _NAMES.items() for alias in aliases.split()}
# Others set the layers of both stacks at once.
_ALSO = {"layers": "model.decoder_layers", "num_layers": "model.decoder_layers"}
_ALSO["n_layers"] = "model.decoder_layers"


def ours(other: str) -> list[str]:
    """Our settings or flags for another toolkit's name, written with dashes or underscores."""
    name = other.strip("-").replace("-", "_").lower()
    return [names[name] for names in (OURS, _ALSO) if name in names]
